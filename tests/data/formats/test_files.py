from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from visiontrain.data.formats.files import (
    Place,
    Remarks,
    clip_to_image,
    find_images,
    folder_listing,
    read_sizes,
    visible_files,
)
from visiontrain.findings import Findings


def test_images_are_found_in_all_subfolders_in_order_whatever_the_case_of_their_suffix(tmp_path):
    for name in ("b/2.JPG", "a/1.png", "a/deep/3.WebP", "a/1.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = find_images(tmp_path, Remarks("train", Findings()))
    assert [path.relative_to(tmp_path).as_posix() for path in found] == ["a/1.png", "a/deep/3.WebP", "b/2.JPG"]


def test_a_circle_of_links_ends(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.png").touch()
    try:
        (tmp_path / "a" / "back").symlink_to(tmp_path, target_is_directory=True)
    except OSError:
        pytest.skip("links are not allowed here")
    assert len(find_images(tmp_path, Remarks("train", Findings()))) == 1


def test_sizes_come_in_the_order_of_the_paths_and_none_where_unreadable(tmp_path):
    paths = [tmp_path / f"{place}.png" for place in range(20)]
    for place, path in enumerate(paths):
        Image.new("RGB", (place + 1, 2)).save(path)
    paths[7].write_bytes(b"")
    remarks = Remarks("train", Findings())
    assert read_sizes(paths, remarks) == [(2, place + 1) if place != 7 else None for place in range(20)]
    (line,) = remarks.findings.lines()
    assert line.startswith("train: 1 images that cannot be read, left out: ")


def test_a_listing_climbs_to_the_first_folder_that_exists(tmp_path):
    (tmp_path / "there").mkdir()
    assert folder_listing(tmp_path) == f"{tmp_path} holds there/"
    assert folder_listing(tmp_path / "there") == f"{tmp_path / 'there'} is empty"
    gone = tmp_path / "gone" / "deeper"
    assert folder_listing(gone) == f"{gone} does not exist either; {tmp_path} holds there/"


def test_visible_files_are_files_of_the_suffixes_asked_for_whatever_their_case(tmp_path):
    (tmp_path / "folder.xml").mkdir()
    for name in ("b.XML", "a.xml", "._a.xml", "c.json", "d.txt"):
        (tmp_path / name).touch()
    assert [path.name for path in visible_files(tmp_path, ".xml", ".json")] == ["a.xml", "b.XML", "c.json"]
    assert visible_files(tmp_path / "gone", ".xml") == []


def test_a_box_is_clipped_to_the_image_with_a_remark_from_a_thousandth_on():
    remarks = Remarks("train", Findings())
    here, there, nowhere = (Place(Path(name), 7) for name in ("here", "there", "nowhere"))
    assert clip_to_image((-0.0009, 0.2, 0.5, 1.0009), here, remarks) == (0, 0.2, 0.5, 1)
    assert remarks.findings.lines() == []
    assert clip_to_image((-0.0011, 0.2, 0.5, 0.6), there, remarks) == (0, 0.2, 0.5, 0.6)
    assert clip_to_image((0.5, 0.2, 0.5, 0.6), nowhere, remarks) is None
    assert remarks.findings.lines() == [
        "train: 1 boxes without area inside the image, dropped: nowhere:7 [box-without-area]",
        "train: 1 boxes reaching beyond the image, clipped: there:7 [box-clipped]",
    ]
