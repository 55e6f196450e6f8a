from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from visiontrain.data.formats import read_data_set
from visiontrain.data.formats.yolo_labels import LabelReader
from visiontrain.errors import ConfigError, DataError

ROW = "0 .5 .5 .2 .2\n"


def test_bccd_is_read_whole(test_data):
    data = read_data_set(test_data / "bccd" / "data.yaml")
    assert data.names == ("RBC", "WBC", "Platelets")
    assert {split: len(records) for split, records in data.splits.items()} == {"train": 205, "val": 87, "test": 72}
    assert np.bincount(data.splits["train"].classes).tolist() == [2381, 214, 209]
    assert np.bincount(data.splits["val"].classes).tolist() == [967, 87, 83]
    assert data.messages == ()
    record = data.splits["train"][0]
    assert (record.height, record.width) == (480, 640)


def test_boxes_of_bccd_equal_the_coco_file_of_the_same_set(test_data):
    import json

    coco = json.loads((test_data / "bccd" / "annotations" / "instances_val.json").read_text())
    of_image = {image["id"]: image["file_name"] for image in coco["images"]}
    expected: dict[str, list[list[float]]] = {}
    for annotation in coco["annotations"]:
        x, y, width, height = annotation["bbox"]
        box = [x, y, x + width, y + height, annotation["category_id"] - 1]
        expected.setdefault(of_image[annotation["image_id"]], []).append(box)
    for record in read_data_set(test_data / "bccd", splits=("val",)).splits["val"]:
        pixels = record.boxes * ([record.width, record.height] * 2)
        rows = np.column_stack([pixels, record.classes])
        np.testing.assert_allclose(rows, expected[record.path.name], atol=1e-3)


def test_rows_without_area_of_a_published_set_are_dropped_and_named(test_data):
    data = read_data_set(test_data / "aquarium_yolo")
    assert {split: len(records.classes) for split, records in data.splits.items()} == {
        "train": 154,
        "val": 56,
        "test": 65,
    }
    (message,) = data.messages
    assert message.startswith("test: 2 boxes without area inside the image, dropped: ")
    assert message.count(".txt:") == 2


def test_a_folder_of_another_computer_is_named_with_what_exists(test_data):
    with pytest.raises(DataError, match=r"train = '/Users/.*there is no /Users/.*does not exist either"):
        read_data_set(test_data / "aquarium_yolo" / "data.as_published.yaml")


def test_the_path_key_is_relative_to_the_folder_of_the_yaml(tiny_yolo, tmp_path, monkeypatch):
    root = tiny_yolo(3, splits=("train",)).parent
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("SET_ROOT", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    texts = ["path: .", "path: ./", "", "path: ''", "path: ../tiny", f"path: {root}", "path: ${SET_ROOT}/tiny"]
    for text in [*texts, "path: ~/tiny"]:
        (root / "data.yaml").write_text(f"{text}\ntrain: images/train\nnames: [a, b]\n")
        assert len(read_data_set(root / "data.yaml").splits["train"]) == 3, text


def test_a_split_may_be_a_folder_several_folders_or_a_list(tiny_yolo):
    root = tiny_yolo(4, splits=("train", "more")).parent
    (root / "list.txt").write_text("images/train/000.png\n\n./images/more/002.png\n")
    (root / "images" / "near.txt").write_text("train/001.png\n")
    for value, count in (
        ("images/train", 4),
        ("images", 8),
        ("[images/train, images/more]", 8),
        ("list.txt", 2),
        ("images/near.txt", 1),
        ("[list.txt, images/more]", 6),
    ):
        (root / "data.yaml").write_text(f"train: {value}\nnames: [a, b]\n")
        records = read_data_set(root).splits["train"]
        assert len(records) == len(records.classes) == count, value


@pytest.mark.parametrize("key", ["val", "valid", "validation"])
def test_the_validation_split_goes_by_three_names(tiny_yolo, key):
    root = tiny_yolo(2).parent
    (root / "data.yaml").write_text(f"train: images/train\n{key}: images/val\nnames: [a, b]\n")
    assert set(read_data_set(root).splits) == {"train", "val"}


@pytest.mark.parametrize("value", ["false", "null", "", "''"])
def test_a_validation_split_may_be_left_out(tiny_yolo, value):
    root = tiny_yolo(2).parent
    (root / "data.yaml").write_text(f"train: images/train\nval: {value}\nnames: [a, b]\n")
    assert set(read_data_set(root).splits) == {"train"}


def test_an_empty_validation_folder_is_told_and_left_out(tiny_yolo):
    root = tiny_yolo(2, splits=("train",)).parent
    (root / "images" / "val").mkdir()
    (root / "data.yaml").write_text("train: images/train\nval: images/val\nnames: [a, b]\n")
    data = read_data_set(root)
    assert set(data.splits) == {"train"}
    (finding,) = data.findings.examples("split-empty", "val")
    assert Path(finding.file) == root / "images" / "val"
    assert finding.text.endswith("data.yaml: val = 'images/val'")


def test_a_leading_parent_folder_written_by_exporters_is_forgiven(tiny_yolo):
    root = tiny_yolo(2, splits=("train",)).parent
    (root / "data.yaml").write_text("train: ../images/train\nnames: [a, b]\n")
    assert len(read_data_set(root).splits["train"]) == 2


@pytest.mark.parametrize("names", ["[a, b]", "{0: a, 1: b}", "{1: b, 0: a}", "{'0': a, '1': b}"])
def test_names_are_a_list_or_a_mapping(tiny_yolo, names):
    root = tiny_yolo(2, splits=("train",)).parent
    (root / "data.yaml").write_text(f"train: images/train\nnames: {names}\nnc: 2\n")
    assert read_data_set(root).names == ("a", "b")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("names: {0: a, 2: b}", r"keys \[0, 2\]; they should run from 0 to 1 without gaps"),
        ("names: {1: a, 2: b}", r"keys \[1, 2\]; they should run from 0"),
        ("names: {x: a}", "they should be 0, 1, 2"),
        ("names: [a, b, a]", "names holds 'a' more than once"),
        ("names: [yes, b]", "names holds True, which YAML does not read as a text; put the name in quotes"),
        ("names: a", "names = 'a'; it should be a list"),
        ("names: []", r"names = \[\]; it should be a list"),
        ("", "names = None; it should be a list"),
        ("names: [a, b]\nnc: 3", "nc = 3, but names has 2 entries"),
        ("names: [a, b]\nnc: two", "nc = 'two' is not a positive integer"),
        ("names: [a, b]\nval: true", "val = True; it should be a folder"),
        ("names: [a, b]\nval: [1]", "val = 1; it should be a folder"),
        ("names: [a, b]\nval: images/train\nvalid: images/train", "val and valid mean the same split"),
        ("names: [a, b]\nval: images/train'", r"val = \"images/train'\": there is no .*train'; .*images holds train/"),
        ("names: [a, b]\nval: ${NOT_SET}/x", "names an environment variable that is not set"),
        (
            "names: [a, b]\npath: nowhere",
            r"path = 'nowhere': there is no folder .*nowhere; .*holds data\.yaml, images/",
        ),
        ("names: [a, b]\npath: 3", "path = 3 is not a text"),
        ("names: [a, b]\nval_images: images", "val_images would have no effect, because no split names a JSON file"),
        ("names: [a, b]\nval: data.yaml", "is a file; it should be a folder or a .txt"),
        ("names: [a, b]\nval: listed.txt", r"2 of the images listed do not exist: .*listed\.txt:1: 'x\.png'"),
    ],
)
def test_a_wrong_yaml_is_refused_with_what_to_mend(tiny_yolo, text, message, monkeypatch):
    monkeypatch.delenv("NOT_SET", raising=False)
    root = tiny_yolo(2, splits=("train",)).parent
    (root / "listed.txt").write_text("x.png\nimages/train/000.png\ny.png\n")
    (root / "data.yaml").write_text(f"train: images/train\n{text}\n")
    with pytest.raises(DataError, match=message):
        read_data_set(root)


@pytest.mark.parametrize(("text", "message"), [("- a", "holds list, not keys"), ("a: [", "cannot be read as YAML")])
def test_what_is_no_mapping_is_refused(tmp_path, text, message):
    (tmp_path / "data.yaml").write_text(text)
    with pytest.raises(DataError, match=message):
        read_data_set(tmp_path)


def test_faults_of_all_splits_are_told_at_once(tiny_yolo):
    root = tiny_yolo(2, splits=("train",)).parent
    (root / "data.yaml").write_text("train: nowhere\nval: neither\nnames: [a, b]\n")
    with pytest.raises(DataError) as caught:
        read_data_set(root)
    assert len(caught.value.faults) == 2


def test_where_no_listed_image_exists_that_alone_is_told(tiny_yolo):
    root = tiny_yolo(2).parent
    (root / "listed.txt").write_text("x.png\n")
    (root / "data.yaml").write_text("train: listed.txt\nval: images/val\nnames: [a, b]\n")
    with pytest.raises(DataError) as caught:
        read_data_set(root)
    (fault,) = caught.value.faults
    assert "1 of the images listed do not exist" in fault


def test_a_missing_source_shows_what_is_there(tiny_yolo):
    path = tiny_yolo(2)
    with pytest.raises(DataError, match=r"no such file or folder; .*tiny holds data\.yaml, images/, labels/"):
        read_data_set(path.parent / "bccd.yaml")
    with pytest.raises(DataError, match="not a data set of a known format"):
        read_data_set(path.parent / "images")
    with pytest.raises(DataError, match=r"holds no data\.yaml"):
        read_data_set(path.parent / "images", data_format="yolo")
    with pytest.raises(ConfigError, match="data_format = 'voc2' is unknown; choose one of auto, yolo, coco, voc"):
        read_data_set(path, data_format="voc2")


def test_labels_replace_the_last_images_folder_and_may_lie_beside_the_images(tmp_path):
    root = tmp_path / "images" / "x"  # an `images` above that must not be replaced
    for folder in ("images/train", "labels/train", "beside/images"):
        (root / folder).mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(root / "images/train/1.PNG")
    Image.new("RGB", (8, 8)).save(root / "beside/images/2.Jpeg", format="jpeg")
    (root / "labels/train/1.txt").write_text(ROW)
    (root / "beside/images/2.txt").write_text(ROW)
    (root / "data.yaml").write_text("train: [images/train, beside/images]\nnames: [a]\n")
    data = read_data_set(root)
    assert [len(record.classes) for record in data.splits["train"]] == [1, 1]
    assert data.messages == ()


def test_an_image_without_label_file_is_background_and_told(yolo_set):
    data = read_data_set(yolo_set({"1": ROW, "2": None, "3": ""}))
    assert [len(record.classes) for record in data.splits["train"]] == [1, 0, 0]
    (message,) = data.messages
    assert message.startswith("train: 1 images without a label file, used as background: ")
    assert message.endswith("train (1 of 3, such as 2.png) [label-missing]")


def test_a_folder_without_any_label_file_is_told_by_itself(yolo_set):
    root = yolo_set({"1": ROW, "2": ""})
    (root / "images" / "train" / "bare").mkdir()
    for name in ("a", "b"):
        Image.new("RGB", (8, 8)).save(root / "images" / "train" / "bare" / f"{name}.png")
    (finding,) = read_data_set(root).findings.examples("label-missing-folder", "train")
    assert Path(finding.file).name == "bare"
    assert finding.text == "2 images"


def test_a_label_file_without_an_image_is_told_but_no_other_text(yolo_set):
    root = yolo_set({"1": ROW, "2": ROW})
    labels = root / "labels" / "train"
    (labels / "gone.txt").write_text(ROW)
    (labels / "classes.txt").write_text("a\nb\n")
    (labels / "hints.txt").write_text("labels were made by hand\n")
    (finding,) = read_data_set(root).findings.examples("label-without-image")
    assert finding.file == str(labels / "gone.txt")


def test_every_fault_of_labels_is_a_finding_with_file_line_and_image(yolo_set):
    root = yolo_set({"1": f"{ROW}9 .5 .5 .3 .3\n0 .5 .5 0 .1", "2": ROW})
    data = read_data_set(root, is_lenient=True)
    assert len(data.faults) == 1
    for code, line in (("class-unknown", 2), ("box-without-area", 3)):
        (finding,) = data.findings.examples(code, "train")
        assert (Path(finding.file).name, finding.line, Path(finding.image).name) == ("1.txt", line, "1.png")


def test_an_image_of_more_pixels_than_allowed_is_left_out_as_too_large(yolo_set):
    root = yolo_set({"1": ROW, "2": ROW})
    Image.new("RGB", (100, 100)).save(root / "images" / "train" / "2.png")
    for path in root.rglob("*.*"):
        os.utime(path, (1_000_000_000, 1_000_000_000))  # what is kept for one bound does not serve another
    assert len(read_data_set(root, max_pixels=10_000).splits["train"]) == 2
    data = read_data_set(root, max_pixels=9_999)
    assert [record.path.stem for record in data.splits["train"]] == ["1"]
    (finding,) = data.findings.examples("image-too-large", "train")
    assert "raise max_pixels" in finding.text


def test_a_split_of_background_images_only_is_read(yolo_set):
    assert len(read_data_set(yolo_set({"1": "", "2": ""})).splits["train"].classes) == 0


def test_a_split_without_any_label_file_is_refused_with_where_it_was_looked_for(yolo_set):
    with pytest.raises(
        DataError, match=r"none of its 2 images has a label file; for 1\.png .*labels.train and .*images"
    ):
        read_data_set(yolo_set({"1": None, "2": None}))


def test_an_unreadable_image_is_left_out_and_named(yolo_set):
    root = yolo_set({"1": ROW, "2": ROW})
    (root / "images" / "train" / "2.png").write_bytes(b"no image")
    data = read_data_set(root)
    assert [record.path.name for record in data.splits["train"]] == ["1.png"]
    assert any(
        "1 images that cannot be read, left out: " in message and "2.png" in message for message in data.messages
    )


def test_files_of_an_unknown_kind_are_counted(yolo_set):
    root = yolo_set({"1": ROW})
    (root / "images" / "train" / "2.heic").write_bytes(b"")
    (root / "images" / "train" / ".hidden.png").write_bytes(b"")
    (message,) = read_data_set(root).messages
    assert message.startswith("train: 1 files whose suffix is no known image format, left out: ")
    assert message.endswith("2.heic [image-suffix]")


def test_reading_writes_nothing_into_the_data_set(tiny_yolo):
    root = tiny_yolo(3).parent
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    read_data_set(root)
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before


def test_sizes_are_those_of_the_upright_image(yolo_set):
    root = yolo_set({"1": ROW})
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (64, 48)).save(root / "images/train/1.jpg", exif=exif)
    (root / "images/train/1.png").unlink()
    record = read_data_set(root).splits["train"][0]
    assert (record.height, record.width) == (64, 48)


def test_the_same_yaml_means_the_same_after_the_folder_was_moved(tiny_yolo, tmp_path):
    path = tiny_yolo(3)
    assert yaml.safe_load(path.read_text())["path"] == "."
    shutil.move(path.parent, tmp_path / "moved")
    assert len(read_data_set(tmp_path / "moved").splits["train"]) == 3


def test_label_files_are_not_read_again_while_none_of_them_changes(tiny_yolo, monkeypatch):
    data = tiny_yolo(4)
    for path in data.parent.rglob("*.*"):
        os.utime(path, (1_000_000_000, 1_000_000_000))  # a file that changed just now is not trusted
    first = read_data_set(data)
    monkeypatch.setattr(LabelReader, "read", lambda self, path, image: pytest.fail(f"{path} was read again"))
    again = read_data_set(data)
    for split, records in first.splits.items():
        assert [record.path for record in again.splits[split]] == [record.path for record in records]
        assert np.array_equal(again.splits[split].boxes, records.boxes)
        assert np.array_equal(again.splits[split].classes, records.classes)
    assert again.messages == first.messages


def test_a_label_file_that_changes_is_read_again(tiny_yolo):
    data = tiny_yolo(4)
    for path in data.parent.rglob("*.*"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    assert len(read_data_set(data).splits["train"].boxes) == 4
    label = data.parent / "labels" / "train" / "000.txt"
    label.write_text("", encoding="utf-8")
    assert len(read_data_set(data).splits["train"].boxes) == 3
