from __future__ import annotations

import numpy as np
import pytest

from visiontrain.data.formats import read_data_set
from visiontrain.data.formats.files import Remarks
from visiontrain.data.formats.voc import VocReader
from visiontrain.data.formats.voc_file import read_voc
from visiontrain.errors import DataError
from visiontrain.findings import Findings

BOX = (8, 12, 24, 36)


@pytest.fixture
def tree(tmp_path, write_images, write_voc):
    """A function that writes a Pascal VOC tree; returns its folder."""

    def write(objects_of, lists=None, *, images=None):
        """`objects_of`: image → its objects; `lists`: name of a list → images; `images`: what is written instead."""
        root = tmp_path / "set"
        write_images(root / "JPEGImages", *(images or [f"{name}.png" for name in objects_of]))
        for name, objects in objects_of.items():
            write_voc(root / "Annotations" / f"{name}.xml", *objects)
        for name, listed in (lists or {}).items():
            (root / "ImageSets" / "Main").mkdir(parents=True, exist_ok=True)
            (root / "ImageSets" / "Main" / f"{name}.txt").write_text("\n".join(listed))
        return root

    return write


def pixels(record):
    return (record.boxes * ([record.width, record.height] * 2)).tolist()


def names_of(records):
    return [record.path.stem for record in records]


def test_edges_are_pixels_from_which_nothing_is_subtracted(tree):
    data = read_data_set(tree({"1": [("b", BOX), ("a", (1, 1, 64, 48)), ("b", (0, 0.5, 9.25, 2.5))]}))
    (record,) = data.splits["train"]
    expected = [[8, 12, 24, 36], [1, 1, 64, 48], [0, 0.5, 9.25, 2.5]]
    np.testing.assert_allclose(pixels(record), expected, atol=1e-5)
    assert data.names == ("a", "b")
    assert record.classes.tolist() == [1, 0, 1]
    assert data.messages == ()


def test_lists_make_the_splits_and_the_class_list_is_that_of_train(tree):
    root = tree(
        {"1": [("b", BOX)], "2": [("a", BOX)], "3": [("a", BOX)], "v.1": [("b", BOX)]},
        {"train": ["1", "2.png", ""], "val": ["v.1"], "test": ["3.xml"], "trainval": ["1", "2", "v.1"]},
    )
    data = read_data_set(root)
    assert {split: names_of(records) for split, records in data.splits.items()} == {
        "train": ["1", "2"],
        "val": ["v.1"],
        "test": ["3"],
    }
    alone = read_data_set(root, splits=("val",))
    assert set(alone.splits) == {"val"}
    assert alone.names == data.names == ("a", "b")
    assert alone.splits["val"].classes.tolist() == data.splits["val"].classes.tolist() == [1]


@pytest.mark.parametrize(
    ("xml", "images"),
    [("Annotations", "JPEGImages"), ("annotations", "images"), ("Annotations", "."), (".", "."), (".", "images")],
)
def test_a_folder_without_lists_is_all_train(tmp_path, write_images, write_voc, xml, images):
    write_images(tmp_path / images, "1.png", "2.png")
    write_voc(tmp_path / xml / "1.xml", ("a", BOX))
    write_voc(tmp_path / xml / "2.xml")
    data = read_data_set(tmp_path)
    assert [len(record.classes) for record in data.splits["train"]] == [1, 0]
    assert data.messages == ()


def test_folders_of_splits_hold_xml_beside_images(tmp_path, write_images, write_voc):
    for folder in ("train", "valid", "test"):
        write_images(tmp_path / folder, f"{folder}.png")
        write_voc(tmp_path / folder / f"{folder}.xml", ("a", BOX))
    data = read_data_set(tmp_path)
    assert {split: names_of(records) for split, records in data.splits.items()} == {
        "train": ["train"],
        "val": ["valid"],
        "test": ["test"],
    }


def test_the_image_is_the_one_of_the_same_name_or_else_the_one_the_file_names(tmp_path, write_images, write_voc):
    write_images(tmp_path, "1.png", "1.jpg", "cat.png")
    write_voc(tmp_path / "1.xml", ("a", BOX), file_name="1.png")
    write_voc(tmp_path / "2.xml", ("a", BOX), file_name="C:\\pictures\\cat.png")
    data = read_data_set(tmp_path)
    assert {record.path.name: len(record.classes) for record in data.splits["train"]} == {
        "1.png": 1,
        "cat.png": 1,
        "1.jpg": 0,
    }
    write_voc(tmp_path / "1.xml", ("a", BOX), file_name="an_old_name.png")
    assert "1.jpg" in {record.path.name for record in read_data_set(tmp_path).splits["train"] if len(record.classes)}


def test_an_image_without_xml_is_background_and_told(tree):
    listed = tree({"1": [("a", BOX)]}, {"train": ["1", "2"]}, images=["1.png", "2.png"])
    for root in (listed, listed.parent / "flat"):
        if root != listed:
            listed.rename(root)
            (root / "ImageSets" / "Main" / "train.txt").unlink()
        data = read_data_set(root)
        assert [len(record.classes) for record in data.splits["train"]] == [1, 0]
        (line,) = data.messages
        assert line.startswith("train: 1 images without a label file, used as background: ")
        assert "Annotations (1 of 2, such as 2.png)" in line


def test_the_size_is_that_of_the_image_and_a_difference_is_told(tmp_path, write_images, write_voc):
    write_images(tmp_path, "1.png", "2.png", "3.png")
    write_voc(tmp_path / "1.xml", ("a", BOX), size=(640, 480))
    write_voc(tmp_path / "2.xml", ("a", BOX), size=(0, 0))
    write_voc(tmp_path / "3.xml", ("a", BOX), size=None)
    data = read_data_set(tmp_path)
    assert [pixels(record) for record in data.splits["train"]] == [[list(BOX)]] * 3
    (line,) = data.messages
    assert "1.png (width × height 64×48, labels 640×480)" in line


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (("a", (5, 5, 5, 5)), r"1 boxes without area inside the image, dropped: .*1\.xml:1 \(object 2, a 5 5 5 5\)"),
        (("a", (9, 5, 5, 8)), "1 boxes without area inside the image, dropped: "),
        (("a", (100, 5, 120, 8)), "1 boxes without area inside the image, dropped: "),
        (("a", (1, 2, "x", 4)), r"1 labels without a box of four finite numbers, dropped: .*object 2, a 1 2 x 4\)"),
        (("a", (1, 2, "", 4)), "1 labels without a box of four finite numbers, dropped: "),
        (("a", (1, 2, "nan", 4)), "1 labels without a box of four finite numbers, dropped: "),
        ((" ", (1, 2, 3, 4)), r"1 objects without a name, dropped: .*1\.xml:1 \(object 2, 1 2 3 4\)"),
        (("a", BOX), r"1 rows that repeat another one exactly, dropped: .*1\.xml:1 \(object 2, "),
    ],
)
def test_a_faulty_object_alone_is_dropped_and_named(tree, fault, message):
    data = read_data_set(tree({"1": [("a", BOX), fault, ("a", (1, 2, 30, 40))]}))
    assert len(data.splits["train"].classes) == 2
    (line,) = data.messages
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(line)


def test_a_box_beyond_the_image_is_clipped_and_told(tree):
    data = read_data_set(tree({"1": [("a", (-3, 10, 80, 20)), ("b", BOX)]}))
    (record,) = data.splits["train"]
    np.testing.assert_allclose(pixels(record)[0], [0, 10, 64, 20], atol=1e-5)
    (line,) = data.messages
    assert line.startswith("train: 1 boxes reaching beyond the image, clipped: ")


def test_an_object_without_a_box_and_boxes_of_its_parts_are_no_boxes(tmp_path):
    part = "<part><name>head</name><bndbox><xmin>1</xmin></bndbox></part>"
    (tmp_path / "1.xml").write_text(f"<annotation><object><name>a</name>{part}</object></annotation>")
    remarks = Remarks("train", Findings())
    file = read_voc(tmp_path / "1.xml", remarks)
    assert file == ("", None, ())
    assert len(remarks.findings.lines()) == 1


def test_names_that_are_not_ascii_are_read_in_the_encoding_that_the_file_tells(tmp_path):
    text = '<?xml version="1.0" encoding="{}"?><annotation><filename>Blüte.png</filename></annotation>'
    for encoding in ("utf-8", "iso-8859-1", "utf-16"):
        (tmp_path / "1.xml").write_bytes(text.format(encoding).encode(encoding))
        assert read_voc(tmp_path / "1.xml", Remarks("train", Findings())).file_name == "Blüte.png"


def test_a_yaml_may_give_the_class_list_the_lists_and_the_folders_of_images(tree):
    root = tree({"1": [("b", BOX)], "2": [("c", BOX)]}, {"train": ["1"], "val": ["2"]})
    (root / "JPEGImages").rename(root / "pictures")
    path = root.parent / "cells.yaml"
    text = f"path: {root}\ntrain: ImageSets/Main/train.txt\nval: ImageSets/Main/val.txt\n"
    text += "train_images: pictures\nval_images: pictures\n"
    path.write_text(text + "names: [c, unused, b]\n")
    data = read_data_set(path)
    assert data.names == ("c", "unused", "b")
    assert {split: records.classes.tolist() for split, records in data.splits.items()} == {"train": [2], "val": [0]}
    path.write_text(text + "names: [c]\n")
    with pytest.raises(DataError, match="train has 1 classes that `names` lacks: 'b'; `names` has 'c'"):
        read_data_set(path)
    path.write_text(f"path: {root}\ntrain: .\ntrain_images: pictures\nnames: [b, c]\n")
    assert read_data_set(path, data_format="voc").splits["train"].classes.tolist() == [0, 1]


def test_a_class_of_val_that_train_lacks_is_refused(tree):
    root = tree({"1": [("a", BOX)], "2": [("A", BOX)]}, {"train": ["1"], "val": ["2"]})
    for splits in (("train", "val"), ("val",)):
        with pytest.raises(DataError, match="val has 1 classes that train lacks: 'A'; train has 'a'; spell them alike"):
            read_data_set(root, splits=splits)


def test_images_that_do_not_exist_are_refused_with_where_they_were_looked_for(tree):
    root = tree({"1": [("a", BOX)]}, {"train": ["1", "2", "3"]})
    with pytest.raises(DataError, match=r"train\.txt: train: 2 of 3 images do not exist: 2; 3; .*JPEGImages; fetch"):
        read_data_set(root)
    (root / "ImageSets" / "Main" / "train.txt").write_text("\n\n")
    with pytest.raises(DataError, match=r"train\.txt: train has no images"):
        read_data_set(root)


def test_a_train_split_without_any_xml_is_refused(tree):
    root = tree({"1": [("a", BOX)]}, {"train": ["2"], "val": ["1"]}, images=["1.png", "2.png"])
    with pytest.raises(
        DataError, match=r"train: none of its 1 images has an XML file; for 2\.png 2\.xml was looked for"
    ):
        read_data_set(root)


def test_boxes_that_are_all_fractions_are_refused(tree):
    with pytest.raises(DataError, match=r"all 2 boxes hold fractions, such as .*1\.xml:1 \(object 1, .*; multiply x"):
        read_data_set(tree({"1": [("a", (0.1, 0.2, 0.3, 0.4)), ("a", (0, 0, 1, 1))]}))


def test_a_set_without_objects_is_refused(tree):
    with pytest.raises(DataError, match="train has no classes; label at least one object"):
        read_data_set(tree({"1": []}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<annotation>", r"1\.xml: cannot be read as XML \(no element found: line 1"),
        ("<object/>", "holds <object>; a file of boxes starts with <annotation>"),
        ('<?xml version="1.0" encoding="klingon"?><annotation/>', "cannot be read as XML"),
    ],
)
def test_what_is_no_annotation_is_refused_for_all_files_at_once(tree, text, message):
    root = tree({"1": [], "2": [], "3": [("a", BOX)]})
    for name in "12":
        (root / "Annotations" / f"{name}.xml").write_text(text)
    with pytest.raises(DataError, match=message) as caught:
        read_data_set(root)
    assert len(caught.value.faults) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train: ImageSets/Main/gone.txt", r"there is no .*gone\.txt; .*Main holds train\.txt"),
        ("train: JPEGImages\nval: ImageSets/Main/train.txt", r"JPEGImages holds no XML files, neither itself nor in"),
        ("train: ImageSets/Main/train.txt\nval_images: .", "val_images is given, but no val"),
        ("names: [a]", "names no split; `train: ImageSets/Main/train.txt` would name one"),
    ],
)
def test_a_wrong_yaml_is_refused_with_what_to_mend(tree, text, message):
    root = tree({"1": [("a", BOX)]}, {"train": ["1"]})
    (root / "data.yaml").write_text(text)
    with pytest.raises(DataError, match=message):
        read_data_set(root / "data.yaml", data_format="voc")


def test_a_split_that_is_not_there_is_refused_with_those_that_are(tree):
    with pytest.raises(DataError, match="has train, but no val; choose another split, or list its images in ImageSets"):
        read_data_set(tree({"1": [("a", BOX)]}), splits=("val",))


def test_folders_without_xml_are_no_voc(tmp_path, tiny_yolo):
    assert not VocReader().recognizes(tmp_path)
    assert not VocReader().recognizes(tiny_yolo(2).parent)
    with pytest.raises(DataError, match="holds no XML files, neither itself nor in Annotations/"):
        read_data_set(tmp_path, data_format="voc")
    (tmp_path / "LICENSE").write_text("MIT")
    with pytest.raises(DataError, match=r"LICENSE.*is none of these"):
        read_data_set(tmp_path / "LICENSE")


def test_reading_writes_nothing_into_the_data_set(tree):
    root = tree({"1": [("a", BOX)]}, {"train": ["1"]})
    before = {path: path.stat().st_mtime_ns for path in (root, *root.rglob("*"))}
    read_data_set(root)
    assert {path: path.stat().st_mtime_ns for path in (root, *root.rglob("*"))} == before


def test_hidden_files_beside_the_xml_are_passed_over(tree):
    root = tree({"1": [("a", BOX)]})
    (root / "Annotations" / "._1.xml").write_bytes(b"\x00\x05\x16\x07")
    (root / "JPEGImages" / "._1.png").write_bytes(b"\x00\x05\x16\x07")
    data = read_data_set(root)
    assert len(data.splits["train"]) == 1
    assert data.messages == ()


def test_a_difficult_object_is_a_label_that_scoring_need_not_find(tree):
    root = tree({"1": [("a", BOX), ("a", (1, 1, 9, 9))], "2": [("a", BOX)]})
    path = root / "Annotations" / "1.xml"
    path.write_text(path.read_text().replace("<difficult>1</difficult>", "<difficult> 0 </difficult>", 1))
    path = root / "Annotations" / "2.xml"
    path.write_text(path.read_text().replace("<difficult>1</difficult>", "<truncated>1</truncated>"))
    first, second = read_data_set(root).splits["train"]
    assert first.classes.tolist() == [0, 0]
    assert first.scoring.is_difficult.tolist() == [False, True]
    assert np.isnan(first.scoring.areas).all()
    assert second.scoring.is_difficult.tolist() == [False]
