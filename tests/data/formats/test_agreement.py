"""One data set that exists in three formats is the same data set, whichever of them is read."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from visiontrain.data.formats import read_data_set


@pytest.fixture
def bccd(test_data):
    return test_data / "bccd"


def assert_same(found, expected, *, of):
    """That two data sets have the same records in the split `of`, classes by name."""
    wanted = {record.path: record for record in expected.splits[of]}
    for record in found.splits[of]:
        other = wanted[record.path]
        assert (record.height, record.width) == (other.height, other.width)
        assert [found.names[number] for number in record.classes] == [
            expected.names[number] for number in other.classes
        ]
        sides = [record.width, record.height] * 2
        np.testing.assert_allclose(record.boxes * sides, other.boxes * sides, rtol=0, atol=0.01)


def test_coco_gives_the_records_of_yolo(bccd):
    yolo, coco = read_data_set(bccd), read_data_set(bccd, data_format="coco")
    assert coco.names == yolo.names
    assert coco.messages == yolo.messages == ()
    for split in ("train", "val", "test"):
        assert [record.path for record in coco.splits[split]] == [record.path for record in yolo.splits[split]]
        assert_same(coco, yolo, of=split)


def test_voc_gives_the_records_of_yolo_after_two_faulty_rows_are_dropped_with_a_message(bccd, tmp_path):
    splits = "".join(
        f"{name}: ImageSets/Main/{name}.txt\n{name}_images: ../images/{name}\n" for name in ("train", "val")
    )
    (tmp_path / "bccd.yaml").write_text(f"path: {bccd / 'voc'}\n{splits}")
    yolo, voc = read_data_set(bccd), read_data_set(tmp_path / "bccd.yaml")
    assert set(voc.names) == set(yolo.names)
    assert {split: len(records) for split, records in voc.splits.items()} == {"train": 20, "val": 10}
    for split in ("train", "val"):
        assert_same(voc, yolo, of=split)
    train, val = voc.messages
    assert train.startswith("train: 1 boxes without area inside the image, dropped: ")
    assert "BloodImage_00343.xml:50 (object 4, " in train
    assert "RBC 181 329 181 329)" in train
    assert val.startswith("val: 1 boxes without area inside the image, dropped: ")
    assert "BloodImage_00338.xml:" in val
    assert "RBC 504 337 504 337)" in val


def test_a_voc_tree_is_recognized_and_read_like_the_yaml(bccd, tmp_path):
    shutil.copytree(bccd / "voc", tmp_path / "voc")
    (tmp_path / "voc" / "JPEGImages").mkdir()
    for split in ("train", "val"):
        for name in (bccd / "voc" / "ImageSets" / "Main" / f"{split}.txt").read_text().split():
            shutil.copy(bccd / "images" / split / f"{name}.jpg", tmp_path / "voc" / "JPEGImages")
    voc = read_data_set(tmp_path / "voc")
    yolo = read_data_set(bccd)
    for split in ("train", "val"):
        boxes_of = {record.path.name: record.boxes for record in yolo.splits[split]}
        for record in voc.splits[split]:
            np.testing.assert_allclose(record.boxes * 640, boxes_of[record.path.name] * 640, rtol=0, atol=0.01)
    assert len(voc.messages) == 2


def test_boxes_anywhere_are_the_same_in_all_formats(tmp_path, write_images, write_coco, write_voc):
    rng = np.random.default_rng(0)
    yolo, coco, voc = (tmp_path / name for name in ("yolo", "coco", "voc"))
    annotations, images = [], [f"{number}.png" for number in range(1, 21)]
    for number, image in enumerate(images, 1):
        size = tuple(map(int, rng.integers(20, 200, 2)))
        corners = np.sort(rng.uniform(0, 1, (rng.integers(1, 6), 2, 2)), axis=1).reshape(-1, 4) * [*size, *size]
        classes = rng.integers(0, 2, len(corners)).tolist()
        for folder in (yolo, coco, voc):
            write_images(folder, image, size=size)
        write_voc(voc / f"{number}.xml", *zip(map("ab".__getitem__, classes), corners.tolist(), strict=True), size=size)
        x1, y1, x2, y2 = corners.T
        sizes = np.stack([x1, y1, x2 - x1, y2 - y1], axis=1)
        annotations += [(number, category + 1, row) for category, row in zip(classes, sizes.tolist(), strict=True)]
        rows = np.stack([classes, (x1 + x2) / 2 / size[0], (y1 + y2) / 2 / size[1], *(sizes.T[2:].T / size).T], axis=1)
        np.savetxt(yolo / f"{number}.txt", rows, fmt="%.8f")
    write_coco(coco / "labels.json", annotations, images=[{"id": n, "file_name": i} for n, i in enumerate(images, 1)])
    (yolo / "data.yaml").write_text("train: .\nnames: [a, b]\n")
    expected = {record.path.name: record for record in read_data_set(yolo).splits["train"]}
    for folder in (coco, voc):
        data = read_data_set(folder)
        assert data.names == ("a", "b")
        assert data.messages == ()
        for record in data.splits["train"]:
            other = expected[record.path.name]
            assert record.classes.tolist() == other.classes.tolist()
            sides = [record.width, record.height] * 2
            np.testing.assert_allclose(record.boxes * sides, other.boxes * sides, rtol=0, atol=0.001)


def test_small_sets_of_all_formats_are_told_apart(tmp_path, tiny_yolo, write_images, write_coco, write_voc):
    for name in ("coco", "voc"):
        write_images(tmp_path / name, "1.png")
    write_coco(tmp_path / "coco" / "labels.json", [(1, 1, (8, 12, 16, 24))])
    write_voc(tmp_path / "voc" / "1.xml", ("a", (8, 12, 24, 36)))
    coco, voc = read_data_set(tmp_path / "coco"), read_data_set(tmp_path / "voc")
    np.testing.assert_array_equal(coco.splits["train"].boxes, voc.splits["train"].boxes)
    assert len(read_data_set(tiny_yolo(2)).splits["train"]) == 2
