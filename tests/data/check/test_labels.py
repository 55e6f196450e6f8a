from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from visiontrain.data.check.labels import RARE, box_sides, label_findings, tiny_boxes
from visiontrain.findings import Findings
from visiontrain.sample import DataSet, Record, Records

NAMES = ("cat", "dog", "owl")


def record(*boxes, height=100, width=200, name="1.png", classes=None):
    """Boxes in pixels of the image, xyxy."""
    fractions = np.array(boxes, np.float32).reshape(-1, 4) / np.array([width, height] * 2, np.float32)
    labels = np.zeros(len(boxes), np.int64) if classes is None else np.array(classes, np.int64)
    return Record(Path(name), height, width, fractions.astype(np.float32), labels)


def labelled(*classes):
    """An image for classification, or one whose boxes do not matter."""
    return Record(Path("1.png"), 10, 10, np.zeros((0, 4), np.float32), np.array(classes, np.int64))


def data_of(findings=None, **splits):
    records = {split: Records(images) for split, images in splits.items()}
    return DataSet(Path("data.yaml"), NAMES, records, findings=findings or Findings())


def found(data, imgsz=200, stride=8):
    return {
        (code, split): [one.text for one in tally.examples]
        for code, split, tally in label_findings(data, imgsz=imgsz, stride=stride)
    }


def test_the_sides_of_boxes_are_those_of_the_image_at_its_size_in_the_network():
    records = Records([record((0, 0, 20, 10)), record(), record((10, 20, 30, 40), height=50, width=50)])
    np.testing.assert_allclose(box_sides(records, 100), [(10, 5), (40, 40)], rtol=1e-6)


def test_a_box_is_tiny_if_one_of_its_sides_is_below_a_stride():
    image = record((0, 0, 7, 50), (0, 0, 50, 7), (0, 0, 8, 8), (0, 0, 50, 50))
    assert tiny_boxes(image, imgsz=200, stride=8).tolist() == [True, True, False, False]
    assert tiny_boxes(image, imgsz=400, stride=8).tolist() == [False] * 4


def test_a_tiny_box_is_told_with_its_image_class_and_size():
    images = [record(name="none.png"), record((0, 0, 50, 50), (0, 0, 5, 30), name="tiny.png", classes=[0, 1])]
    (tally,) = [
        tally for code, _, tally in label_findings(data_of(train=images), imgsz=200, stride=8) if code == "box-tiny"
    ]
    assert tally.count == 1
    assert tally.examples[0].file == "tiny.png"
    assert tally.examples[0].text == "dog: 5.0 × 30.0 pixels at imgsz 200, stride 8"


def test_classes_without_a_label_and_rare_ones_are_told_of_train():
    few = round(RARE * 200)
    images = [labelled(0)] * 200 + [labelled(1)] * few
    assert found(data_of(train=images)) == {
        ("class-unused", "train"): ["owl"],
        ("class-rare", "train"): [f"dog: {few}, cat: 200"],
    }


def test_a_class_that_is_merely_less_frequent_is_not_told():
    images = [labelled(0)] * 200 + [labelled(1)] * 3 + [labelled(2)] * 100
    assert found(data_of(train=images)) == {}


def test_a_class_that_another_split_lacks_is_told_once():
    train, val = [labelled(0, 1, 2)], [labelled(0)]
    assert found(data_of(train=train, val=val)) == {("class-missing", "val"): ["dog", "owl"]}
    told = Findings()
    told.add("class-missing", "val", "val/")
    assert found(data_of(told, train=train, val=val)) == {}


@pytest.mark.parametrize("splits", [{"train": []}, {"train": [labelled()]}, {"val": [labelled(0)]}])
def test_where_train_has_no_label_nothing_is_told_of_classes(splits):
    assert found(data_of(**splits)) == {}
