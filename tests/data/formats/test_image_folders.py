from __future__ import annotations

import os
import sys

import pytest

from visiontrain.data.formats import CLASSIFY_FORMATS, DETECT_FORMATS, read_data_set
from visiontrain.data.formats.image_folders import ImageFolderReader
from visiontrain.errors import DataError


def read(source, splits=("train", "val", "test"), **more):
    return read_data_set(source, splits=splits, formats=CLASSIFY_FORMATS, **more)


def labels_of(data, split):
    """Names of the classes by the names of the images."""
    return {record.path.name: [data.names[label] for label in record.classes] for record in data.splits[split]}


def told(data, code, split=None):
    return [str(finding) for finding in data.findings.examples(code, split)]


@pytest.fixture
def folders(tmp_path, write_images):
    """A function that writes images of some paths below a folder, and returns the folder."""

    def write(*paths, size=(8, 6)):
        write_images(tmp_path / "set", *paths, size=size)
        return tmp_path / "set"

    return write


@pytest.mark.parametrize("val", ["val", "valid", "validation", "Val"])
def test_each_split_is_a_folder_of_class_folders(val, folders):
    root = folders("train/cat/1.png", "train/dog/2.png", "train/dog/3.PNG", f"{val}/dog/4.png", f"{val}/cat/5.png")
    data = read(root)
    assert data.names == ("cat", "dog")
    assert labels_of(data, "train") == {"1.png": ["cat"], "2.png": ["dog"], "3.PNG": ["dog"]}
    assert labels_of(data, "val") == {"4.png": ["dog"], "5.png": ["cat"]}
    record = data.splits["train"][0]
    assert (record.height, record.width, record.boxes.shape) == (6, 8, (0, 4))
    assert data.messages == ()
    assert data.faults == ()


def test_classes_are_sorted_as_texts(folders):
    assert read(folders("train/10/a.png", "train/2/a.png", "train/B/a.png", "train/a/a.png")).names == (
        "10",
        "2",
        "B",
        "a",
    )


def test_a_class_that_val_lacks_shifts_no_index(folders):
    data = read(folders("train/a/1.png", "train/b/2.png", "train/c/3.png", "val/b/4.png", "val/c/5.png"))
    assert labels_of(data, "val") == {"4.png": ["b"], "5.png": ["c"]}
    assert [record.classes.tolist() for record in data.splits["val"]] == [[1], [2]]
    assert [text.split(" ")[-1] for text in told(data, "class-missing", "val")] == ["(a)"]


def test_a_class_that_train_lacks_is_left_out_of_val(folders):
    root = folders("train/a/1.png", "train/b/2.png", "val/a/3.png", "val/aa/4.png", "val/aa/5.png", "val/b/6.png")
    data = read(root)
    assert data.names == ("a", "b")
    assert labels_of(data, "val") == {"3.png": ["a"], "6.png": ["b"]}
    assert told(data, "class-extra") == [f"{root / 'val' / 'aa'} (aa: 2 images)"]
    assert data.findings.has_errors
    assert not data.faults


def test_an_empty_class_folder_of_val_counts_as_missing(folders):
    root = folders("train/a/1.png", "train/b/2.png", "val/a/3.png")
    (root / "val" / "b").mkdir()
    data = read(root)
    assert told(data, "split-empty") == [str(root / "val" / "b")]
    assert told(data, "class-missing") == [f"{root / 'val'} (b)"]


def test_an_empty_class_folder_of_train_keeps_its_index(folders):
    root = folders("train/a/1.png", "train/c/2.png", "val/b/3.png")
    (root / "train" / "b").mkdir()
    data = read(root)
    assert data.names == ("a", "b", "c")
    assert labels_of(data, "val") == {"3.png": ["b"]}


def test_without_train_in_sight_val_has_train_s_indices(folders):
    root = folders("train/a/1.png", "train/b/2.png", "val/b/3.png")
    data = read(root, ("val",))
    assert list(data.splits) == ["val"]
    assert data.splits["val"][0].classes.tolist() == [1]


def test_one_folder_of_classes_is_all_train(folders):
    root = folders("a/1.png", "b/2.png")
    data = read(root)
    assert list(data.splits) == ["train"]
    assert labels_of(data, "train") == {"1.png": ["a"], "2.png": ["b"]}
    assert "all images are train" in data.notes[0]


def test_a_set_without_train_has_the_classes_of_what_it_has(folders):
    data = read(folders("test/a/1.png", "test/b/2.png"))
    assert data.names == ("a", "b")
    assert "the classes are those of test" in data.notes[0]


def test_a_yaml_names_folders_and_the_order_of_classes(folders):
    root = folders("photos/a/1.png", "photos/b/2.png", "more/b/3.png", "check/a/4.png")
    (root / "data.yaml").write_text("train: [photos, more]\nval: check\nnames: [b, a]\n", encoding="utf-8")
    for source in (root, root / "data.yaml"):
        data = read(source)
        assert data.names == ("b", "a")
        assert labels_of(data, "train") == {"1.png": ["a"], "2.png": ["b"], "3.png": ["b"]}
        assert labels_of(data, "val") == {"4.png": ["a"]}


def test_a_class_that_is_not_among_given_names_stops_training(folders):
    root = folders("train/a/1.png", "train/b/2.png", "val/c/3.png", "val/a/4.png")
    (root / "data.yaml").write_text("train: train\nval: val\nnames: [a]\n", encoding="utf-8")
    with pytest.raises(DataError, match="train: 'b': not among the names") as caught:
        read(root)
    assert len(caught.value.faults) == 2
    assert data_codes(read(root, is_lenient=True)) >= {("class-unknown", "train"), ("class-unknown", "val")}


def test_where_no_class_is_among_given_names_that_alone_is_told(folders):
    root = folders("train/a/1.png")
    (root / "data.yaml").write_text("train: train\nnames: [A]\n", encoding="utf-8")
    with pytest.raises(DataError, match="train: 'a': not among the names") as caught:
        read(root)
    assert len(caught.value.faults) == 1


def data_codes(data):
    return {(code, split) for code, split, _ in data.findings}


def test_images_lie_at_any_depth_below_their_class_and_behind_links(folders, tmp_path, write_images):
    write_images(tmp_path / "elsewhere", "3.png")
    root = folders("train/a/x/y/1.png", "train/b/2.png")
    try:
        (root / "train" / "b" / "more").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    except OSError:
        pytest.skip("this system makes no links")
    assert labels_of(read(root), "train") == {"1.png": ["a"], "2.png": ["b"], "3.png": ["b"]}


def test_what_is_left_out_is_told(folders):
    root = folders("train/a/1.png", "train/b/2.png", "train/loose.png", "other/3.png")
    (root / "train" / "a" / "4.heic").write_bytes(b"x")
    (root / "train" / "film.mp4").write_bytes(b"x")
    (root / "train" / "b" / "5.png").write_bytes(b"no image")
    (root / "train" / "b" / "notes.txt").write_text("x", encoding="utf-8")
    (root / "train" / "b" / ".hidden.png").write_bytes(b"x")
    data = read(root)
    assert len(data.splits["train"]) == 2
    assert told(data, "image-unlisted") == [f"{root / 'train' / 'loose.png'} (in no class folder)"]
    assert told(data, "image-suffix") == [str(root / "train" / "a" / "4.heic"), str(root / "train" / "film.mp4")]
    assert data.findings.count("image-unreadable", "train") == data.num_unreadable("train") == 1
    assert data.notes == (f"{root}: other beside train: not used",)


def test_a_second_reading_gives_the_same(folders):
    root = folders("train/a/1.png", "train/b/2.png")
    for path in root.rglob("*.png"):
        os.utime(path, (1, 1))  # settled: what was written just now is not kept
    first, second = read(root), read(root)
    for one, other in zip(first.splits["train"], second.splits["train"], strict=True):
        assert (one.path, one.height, one.width, one.classes.tolist()) == (
            other.path,
            other.height,
            other.width,
            other.classes.tolist(),
        )


def test_a_class_that_is_renamed_is_no_longer_the_cached_one(folders):
    root = folders("train/a/1.png", "train/b/2.png")
    for path in root.rglob("*.png"):
        os.utime(path, (1, 1))
    assert labels_of(read(root), "train") == {"1.png": ["a"], "2.png": ["b"]}
    (root / "train" / "a").rename(root / "train" / "c")
    assert labels_of(read(root), "train") == {"1.png": ["c"], "2.png": ["b"]}


def test_the_same_images_of_other_classes_are_read_anew(folders):
    root = folders("e/a/1.png", "q/y/b/2.png")
    for path in root.rglob("*.png"):
        os.utime(path, (1, 1))
    for second, label in (("q", "y"), ("q/y", "b")):
        (root / "data.yaml").write_text(f"train: [e, {second}]\nnames: [a, b, y]\n", encoding="utf-8")
        assert labels_of(read(root), "train") == {"1.png": ["a"], "2.png": [label]}


def test_an_empty_val_is_told_and_left_out(folders):
    root = folders("train/a/1.png")
    (root / "val").mkdir()
    data = read(root)
    assert list(data.splits) == ["train"]
    assert told(data, "split-empty") == [str(root / "val")]
    assert data.findings.count("class-missing") == 0


@pytest.mark.parametrize(
    ("paths", "yaml", "message"),
    [
        (("train/a/1.png", "val/2.png"), None, "val: holds images, but no folders; make one for each class"),
        (("train/a/1.png", "val/a/2.png", "valid/a/3.png"), None, "val and valid mean the same split"),
        (("train/a/1.png",), "train: trian\n", "trian: does not exist; it should hold a folder of images"),
        (("train/a/1.png",), "train: train\nval: train/a/1.png\n", r"1\.png: is no folder"),
        (("train/a/1.png",), "train: train\nnc: 3\n", "nc = 3 has no effect without names"),
    ],
)
def test_what_cannot_be_used_is_said(paths, yaml, message, folders):
    root = folders(*paths)
    if yaml is not None:
        (root / "data.yaml").write_text(yaml, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read(root)


def test_a_split_that_there_is_not_is_said(folders):
    with pytest.raises(DataError, match="has no images for val; it has train"):
        read(folders("train/a/1.png"), ("val",))


def test_a_train_folder_without_an_image_is_said(folders):
    root = folders("val/a/1.png")
    (root / "train" / "a").mkdir(parents=True)
    with pytest.raises(DataError, match="holds no images for train"):
        read(root)


@pytest.mark.parametrize(
    "paths",
    [
        ("images/train/1.png", "labels/train/1.txt"),
        ("train/images/1.png", "train/labels/1.txt"),
        ("train/1.png", "train/_annotations.coco.json"),
        ("train2017/1.png", "annotations/instances_train2017.json"),
        ("JPEGImages/1.png", "Annotations/1.xml"),
        ("1.png", "2.png"),
        (),
    ],
)
def test_data_sets_of_detection_are_not_taken_for_classes(paths, tmp_path, write_images):
    for path in paths:
        if path.endswith(".png"):
            write_images(tmp_path, path)
        else:
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text("", encoding="utf-8")
    assert not ImageFolderReader().recognizes(tmp_path)


def test_the_description_of_a_detection_set_is_not_taken_for_one_of_classes(tiny_yolo):
    description = tiny_yolo(1)
    assert not any(reader.recognizes(description) for reader in CLASSIFY_FORMATS.values())
    with pytest.raises(DataError, match="it looks like yolo, a format of task=detect"):
        read(description)


def test_class_folders_are_not_taken_for_a_data_set_of_detection(folders):
    root = folders("train/a/1.png")
    assert not any(reader.recognizes(root) for reader in DETECT_FORMATS.values())
    with pytest.raises(DataError, match="it looks like folders, a format of task=classify"):
        read_data_set(root)


def test_signs_are_read_as_their_readme_tells(test_data):
    data = read(test_data / "signs")
    assert data.names == tuple("0123456789")
    assert {split: len(records) for split, records in data.splits.items()} == {"train": 1000, "val": 300}
    for records, each in ((data.splits["train"], 100), (data.splits["val"], 30)):
        assert [int((records.classes == label).sum()) for label in range(10)] == [each] * 10
        assert all(record.path.parent.name == data.names[record.classes[0]] for record in records)
    large = [record.path.name for records in data.splits.values() for record in records if record.height == 3024]
    assert sorted(large) == ["IMG_5874.JPG", "IMG_5935.JPG", "IMG_5978.JPG"]
    assert data.messages == ()


@pytest.mark.parametrize("name", ["x" * 300, "y/" * 3000, '"a\\0b"', '"a\\ud800b"', '~"'], ids=lambda name: name[:6])
def test_a_place_that_no_system_has_is_told_like_any_that_does_not_exist(name, folders):
    root = folders("train/a/1.png", "train/b/2.png")
    described = root / "data.yaml"
    described.write_text(f"train: train\nval: {name}\n", encoding="utf-8")
    assert read(described, splits=("train",)).names == ("a", "b")
    with pytest.raises(DataError, match=r"does not exist; it should hold a folder of images for each class"):
        read(described)
    described.write_text(f"path: {name}\ntrain: train\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"path = .*: there is no folder"):
        read(described)


@pytest.mark.parametrize("source", ["x" * 300, "y/" * 3000, "a\0b", "a\udcffb", "~no body of this name/a"], ids=ascii)
def test_a_data_set_at_such_a_place_is_told_to_be_missing(source):
    with pytest.raises(DataError, match="no such file or folder"):
        read(source)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere names are Unicode")
def test_a_folder_whose_name_is_no_unicode_is_no_class_and_a_file_may_have_such_a_name(folders):
    root = folders("train/a/1.png", "train/b/2.png")
    image = root / "train" / "a" / "1.png"
    image.rename(image.with_name(os.fsdecode(b"caf\xe9.png")))
    data = read(root)
    assert len(data.splits["train"].digest()) == 64
    (root / "train" / "b").rename(root / "train" / os.fsdecode(b"\xe9t\xe9"))
    with pytest.raises(
        DataError, match=r"'\\udce9t\\udce9' names a class and is no valid Unicode, .* rename the class"
    ):
        read(root)
