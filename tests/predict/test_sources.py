from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from visiontrain.errors import ConfigError, DataError
from visiontrain.predict.sources import open_source


def paths_of(source):
    return [image.path for image in source]


@pytest.mark.parametrize(
    "form", ["str", "Path", "folder", "glob", "list", "txt", "array", "pil", "uint8 tensor", "float tensor", "batch"]
)
def test_every_form_of_an_image_gives_the_same_pixels(form, tmp_path, write, picture, reading):
    rgb = picture()
    path = write(tmp_path / "a.png", rgb)
    (tmp_path / "list.txt").write_text("a.png", encoding="utf-8")
    chw = torch.from_numpy(rgb).permute(2, 0, 1)
    source = {
        "str": str(path),
        "Path": path,
        "folder": tmp_path,
        "glob": str(tmp_path / "*.png"),
        "list": [str(path)],
        "txt": tmp_path / "list.txt",
        "array": rgb[..., ::-1],
        "pil": Image.fromarray(rgb),
        "uint8 tensor": chw,
        "float tensor": chw / 255,
        "batch": chw[None].half() / 255,
    }[form]
    opened = open_source(source, **reading)
    (image,) = opened
    assert len(opened) == 1
    assert image.image.dtype == np.uint8
    if form == "batch":  # half precision has 11 bits, which is enough for 8
        assert np.abs(image.image.astype(int) - rgb).max() <= 1
    else:
        np.testing.assert_array_equal(image.image, rgb)


def test_a_folder_gives_its_images_sorted_whatever_the_case_of_their_endings(tmp_path, write, picture, reading):
    for name in ("b.png", "a.JPG", "ü 花.png", "c.png"):
        write(tmp_path / name, picture())
    (tmp_path / "notes.txt").write_text("no image", encoding="utf-8")
    (tmp_path / "below.png").mkdir()
    assert paths_of(open_source(tmp_path, **reading)) == [
        str(tmp_path / name) for name in ("a.JPG", "b.png", "c.png", "ü 花.png")
    ]


def test_a_glob_crosses_folders_and_leaves_other_files_out(tmp_path, write, picture, reading):
    inner = write(tmp_path / "x" / "y" / "a.png", picture())
    outer = write(tmp_path / "b.png", picture())
    (tmp_path / "x" / "labels.txt").write_text("", encoding="utf-8")
    assert paths_of(open_source(f"{tmp_path}/**/*", **reading)) == [str(outer), str(inner)]


def test_a_file_whose_name_looks_like_a_pattern_is_a_file(tmp_path, write, picture, reading):
    path = write(tmp_path / "cat[1].png", picture())
    assert paths_of(open_source(str(path), **reading)) == [str(path)]


def test_a_list_mixes_forms_and_numbers_images_from_memory(tmp_path, write, picture, reading):
    path = write(tmp_path / "a.png", picture())
    source = [picture(), path, torch.zeros(2, 3, 8, 8), tmp_path]
    assert paths_of(open_source(source, **reading)) == ["image0", str(path), "image1", "image2", str(path)]


def test_a_pil_image_is_turned_upright(picture, tmp_path, reading):
    path = tmp_path / "turned.png"
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(picture(height=20, width=30)).save(path, exif=exif)
    with Image.open(path) as image:
        (upright,) = open_source(image, **reading)
    np.testing.assert_array_equal(upright.image, np.rot90(picture(height=20, width=30), -1))


def test_a_source_can_be_walked_twice(tmp_path, write, picture, reading):
    write(tmp_path / "a.png", picture())
    (tmp_path / "b.png").write_bytes(b"broken")
    source = open_source(tmp_path, **reading)
    assert paths_of(source) == paths_of(source)
    assert len(source.messages) == 1


def test_files_are_read_only_when_their_turn_comes(tmp_path, write, picture, reading):
    for index in range(3):
        write(tmp_path / f"{index}.png", picture(index))
    read = []
    stream = iter(open_source(tmp_path, **{**reading, "read_image": lambda path: read.append(path.name)}))
    next(stream)
    assert read == ["0.png"]


def test_an_unreadable_image_in_a_folder_is_left_out_and_named(tmp_path, write, picture, reading):
    good = write(tmp_path / "good.png", picture())
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"broken")
    source = open_source(tmp_path, **reading)
    assert paths_of(source) == [str(good)]
    assert source.messages == [f"{bad}: is damaged or not an image; replace the file (left out)"]


def test_where_no_image_can_be_read_all_are_named(tmp_path, reading):
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(b"broken")
    with pytest.raises(DataError) as caught:
        list(open_source(tmp_path, **reading))
    assert [fault.split(":")[0] for fault in caught.value.faults] == [str(tmp_path / "a.png"), str(tmp_path / "b.png")]


def test_all_missing_files_are_named_with_what_is_there_instead(tmp_path, write, picture, reading):
    write(tmp_path / "cat_01.png", picture())
    with pytest.raises(DataError) as caught:
        open_source([str(tmp_path / "cat_1.png"), str(tmp_path / "cat_01.png"), tmp_path / "no" / "a.png"], **reading)
    first, second = caught.value.faults
    assert first == f"{tmp_path / 'cat_1.png'}: no such file; the folder {tmp_path} holds cat_01.png"
    assert second.endswith(f"no such file; the folder {tmp_path / 'no'} does not exist either")


def test_names_like_the_missing_one_are_shown_first(tmp_path, write, picture, reading):
    for index in range(20):
        write(tmp_path / f"a{index}.png", picture())
    write(tmp_path / "zebra.png", picture())
    with pytest.raises(DataError, match=r"holds zebra\.png, .* and 16 more"):
        open_source(tmp_path / "zebrra.png", **reading)


def test_a_folder_without_images_says_what_it_holds(tmp_path, reading):
    (tmp_path / "inner").mkdir()
    with pytest.raises(DataError, match=r"no image or video; it holds inner .*folder/\*\*/\*\.jpg"):
        open_source(tmp_path, **reading)


def test_a_glob_that_matches_nothing_is_refused(tmp_path, reading):
    with pytest.raises(DataError, match=r"\*\.png: no image or video; it matches nothing"):
        open_source(str(tmp_path / "*.png"), **reading)


def test_videos_of_a_folder_are_read_among_its_pictures(tmp_path, write, write_video, picture, reading):
    write(tmp_path / "a.png", picture())
    write_video(tmp_path / "b.AVI", [picture(seed) for seed in range(3)])
    write(tmp_path / "c.png", picture())
    source = open_source(tmp_path, **reading)
    assert len(source) == 3
    assert [(Path(image.path).name, image.frame and image.frame.number) for image in source] == [
        *[("a.png", None), ("b.AVI", 1), ("b.AVI", 2), ("b.AVI", 3), ("c.png", None)]
    ]


def test_a_broken_video_in_a_folder_is_left_out_and_named(tmp_path, write, picture, reading):
    image = write(tmp_path / "a.png", picture())
    (tmp_path / "clip.mp4").write_bytes(b"no video")
    source = open_source(tmp_path, **reading)
    assert paths_of(source) == [str(image)]
    (message,) = source.messages
    assert message.startswith(f"{tmp_path / 'clip.mp4'}: the video cannot be opened: it is damaged")
    assert message.endswith("(left out)")


@pytest.mark.parametrize("given", [0, "0", np.int64(0), [0]])
def test_a_number_is_a_camera_unless_a_file_is_called_so(given, tmp_path, monkeypatch, picture, reading, fake_capture):
    monkeypatch.chdir(tmp_path)
    opened = []

    def open_fake(address):
        opened.append(address)
        return fake_capture([picture(), picture()])

    source = open_source(given, **{**reading, "open_capture": open_fake})
    assert source.is_live
    assert [(image.path, image.frame.number, image.is_live) for image in source] == [
        *[("camera0", 1, True), ("camera0", 2, True)]
    ]
    assert opened == [0]
    (tmp_path / "0").mkdir()
    with pytest.raises(DataError, match="0: no image or video; it holds nothing"):
        open_source("0", **reading)


def test_pictures_and_videos_end_by_themselves(tmp_path, write, write_video, picture, reading):
    write(tmp_path / "a.png", picture())
    write_video(tmp_path / "b.avi", [picture()])
    source = open_source(tmp_path, **reading)
    assert not source.is_live
    assert [image.is_live for image in source] == [False, False]


def test_a_text_file_names_a_path_on_each_line(tmp_path, write, write_video, picture, reading):
    near = write(tmp_path / "images" / "ü a.png", picture())
    far = write_video(tmp_path / "clip.avi", [picture()])
    listed = tmp_path / "list.txt"
    listed.write_text(f"# mine\nimages/ü a.png\n\n{far}\n  images/ü a.png  \n", encoding="utf-8")
    assert paths_of(open_source(listed, **reading)) == [str(near), str(far), str(near)]


def test_lines_of_a_text_file_that_name_nothing_are_told_by_their_numbers(tmp_path, write, picture, reading):
    write(tmp_path / "a.png", picture())
    listed = tmp_path / "list.txt"
    listed.write_text("a.png\nb.png\n" + "c.png\n" * 8, encoding="utf-8")
    with pytest.raises(DataError) as caught:
        open_source(listed, **reading)
    faults = caught.value.faults
    assert faults[0] == (
        f"{listed}:2: {tmp_path / 'b.png'} is no image or video that is there; mend the line or take it out"
    )
    assert faults[5:] == (f"{listed}: 4 more lines name no image or video that is there",)


@pytest.mark.parametrize("content", [b"", b"remember the milk\nand bread\n", bytes(range(256)) * 40, b"x.png" * 999])
def test_a_text_file_that_is_no_list_is_told_in_one_line(content, tmp_path, reading):
    (tmp_path / "notes.txt").write_bytes(content)
    with pytest.raises(DataError) as caught:
        open_source(tmp_path / "notes.txt", **reading)
    (fault,) = caught.value.faults
    assert fault.endswith("notes.txt: no line names an image or a video; it should hold a path on each line")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (-1, "no number of a camera, which count from 0"),
        ("-1", "no number of a camera, which count from 0"),
        (True, "a bool"),
        (0.5, "a float"),
        ("https://example.org/a.jpg", "not on this computer's disk, and nothing is fetched; save it to a file"),
        ("rtsp://camera", "not on this computer's disk"),
        ("screen", "not on this computer's disk"),
        ("", "an empty text"),
        (None, "a NoneType"),
        ({"a": 1}, "a dict"),
        (np.zeros((8, 8, 3), np.float32), r"an array \(8, 8, 3\) float32; it should be \(H, W, 3\) uint8 BGR"),
        (np.zeros((8, 8), bool), r"or \(H, W\) uint8 gray"),
        (np.zeros((8, 8, 5), np.uint8), r"an array \(8, 8, 5\) uint8"),
        (np.zeros((8, 8, 4), np.uint8), "with alpha: leave its channel out"),
        (np.zeros((2, 8, 8, 3), np.uint8), "several images: a list"),
        (np.zeros((0, 8, 3), np.uint8), "an array"),
        (torch.zeros(0, 3, 8, 8), r"a tensor \(0, 3, 8, 8\)"),
        (torch.zeros(8, 8, 3), r"a tensor \(8, 8, 3\); it should be \(3, H, W\)"),
        (torch.full((3, 8, 8), 255.0), r"values from 255 to 255; it should lie in \[0, 1\]"),
        (torch.full((3, 8, 8), float("nan")), r"it should lie in \[0, 1\]"),
        (torch.zeros(3, 8, 8, dtype=torch.int64), "a tensor of torch.int64"),
        (Image.new("F", (8, 8)), "mode F; it should have 8 bits"),
        (Image.new("RGB", (0, 8)), "a PIL image of 0 × 8 pixels"),
    ],
)
def test_what_cannot_be_read_is_refused_with_what_can(source, message, reading):
    with pytest.raises(ConfigError, match=message):
        open_source(source, **reading)


@pytest.mark.parametrize(("name", "ending"), [("notes.pdf", ".pdf"), ("notes", r"\(none\)")])
def test_a_named_file_that_is_no_image_is_refused(name, ending, tmp_path, reading):
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(ConfigError, match=f"the ending {ending} is not that of an image or a video"):
        open_source(tmp_path / name, **reading)


@pytest.mark.parametrize("text", ["a" * 5000, "a\0.png"])
def test_a_text_that_cannot_be_a_path_is_refused(text, reading):
    with pytest.raises(DataError, match="is no path that could exist"):
        open_source(text, **reading)


def test_an_empty_list_is_refused(reading):
    with pytest.raises(DataError, match="an empty list"):
        open_source([], **reading)
