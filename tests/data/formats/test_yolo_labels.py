from __future__ import annotations

import numpy as np
import pytest

from visiontrain.data.formats import read_data_set
from visiontrain.errors import DataError

GOOD = "0 .5 .5 .2 .2\n"


def boxes_of(root):
    data = read_data_set(root)
    (record,) = data.splits["train"]
    return record.boxes, record.classes, data.messages


@pytest.mark.parametrize(
    ("row", "box"),
    [
        ("1 .5 .5 .2 .4", (0.4, 0.3, 0.6, 0.7)),
        ("1 .5 .5 .2 .4 .93", (0.4, 0.3, 0.6, 0.7)),  # a confidence
        ("1.0 .5 .5 2e-1 .4", (0.4, 0.3, 0.6, 0.7)),
        ("1e0\t.5  .5 .2 .4\r", (0.4, 0.3, 0.6, 0.7)),
        ("1 .1 .2 .5 .3 .3 .9", (0.1, 0.2, 0.5, 0.9)),  # a triangle
        ("1 .1 .2 .5 .2 .5 .6 .1 .6", (0.1, 0.2, 0.5, 0.6)),
        ("1 .5 .5 1.0004 .4", (0.0, 0.3, 1.0, 0.7)),  # rounding, not worth a remark
    ],
)
def test_a_row_is_a_box_or_the_hull_of_a_polygon(yolo_set, row, box):
    boxes, classes, messages = boxes_of(yolo_set({"1": row}))
    np.testing.assert_allclose(boxes, [box], atol=1e-6)
    assert classes.tolist() == [1]
    assert messages == ()


@pytest.mark.parametrize("row", ["0 1.02 .5 .1 .1", "0 -.01 .5 .1 .1", "0 .5 .5 1.2 .1", "0 .9 .2 1.1 .2 1 .5"])
def test_a_box_reaching_beyond_the_image_is_clipped_and_told(yolo_set, row):
    boxes, _, messages = boxes_of(yolo_set({"1": GOOD + row}))
    assert len(boxes) == 2
    assert boxes.min() >= 0
    assert boxes.max() <= 1
    assert messages[0].startswith("train: 1 boxes reaching beyond the image, clipped: ")
    assert messages[0].endswith(f"1.txt:2 ({row}) [box-clipped]")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("0 .5 .5 0 .1", "boxes without area inside the image"),
        ("0 1.5 .5 .1 .1", "boxes without area inside the image"),
        ("0 .5 .5 -.1 .1", "boxes without area inside the image"),
        ("0 nan .5 .1 .1", "rows with NaN or infinity"),
        ("0 .5 .5 inf .1", "rows with NaN or infinity"),
        ("0 .5 .5 .1", "rows of neither a box"),
        ("0 .1 .1 .2 .2 .3 .3 .4", "rows of neither a box"),
        ("cell .5 .5 .1 .1", "rows that are not numbers"),
        ("0,.5,.5,.1,.1", "rows that are not numbers"),
    ],
)
def test_a_bad_row_is_dropped_alone_and_named(yolo_set, row, message):
    boxes, _, messages = boxes_of(yolo_set({"1": f"{GOOD}{row}\n1 .2 .2 .1 .1"}))
    assert len(boxes) == 2
    assert messages[0].startswith(f"train: 1 {message}")
    assert "1.txt:2" in messages[0]


def test_only_exact_repetitions_are_dropped(yolo_set):
    rows = ["0 .5 .5 .2 .2", "0 .50 .5 .2 .2", "1 .5 .5 .2 .2", "0 .1 .1 .3 .1 .1 .3", "0 .1 .1 .3 .3 .3 .1"]
    boxes, classes, messages = boxes_of(yolo_set({"1": "\n".join(rows)}))
    assert classes.tolist() == [0, 1, 0, 0]
    assert len(boxes) == 4
    assert messages[0].startswith("train: 1 rows that repeat another one exactly, dropped: ")


def test_one_row_in_pixels_is_dropped_but_a_split_in_pixels_is_refused(yolo_set):
    many = "".join(f"0 .5 .{place} .1 .1\n" for place in range(10, 40))
    boxes, _, messages = boxes_of(yolo_set({"1": many + "0 320 240 50 50"}))
    assert len(boxes) == 30
    assert "1 rows far outside the image (in pixels?), dropped" in messages[0]
    with pytest.raises(DataError, match=r"2 of 2 rows hold pixels: .*1\.txt:1 \(0 320 240 50 50\).*divide x and width"):
        read_data_set(yolo_set({"1": "0 320 240 50 50\n1 100 20 30 40"}))


@pytest.mark.parametrize("number", ["2", "-1", "80", ".5"])
def test_a_class_that_does_not_exist_stops_with_file_and_line(yolo_set, number):
    root = yolo_set({"1": GOOD, "2": f"{GOOD}{number} .5 .5 .3 .3"})
    with pytest.raises(DataError, match=r"1 rows have a class that is not one of 0 to 1: .*2\.txt:2 \(class .*names"):
        read_data_set(root)


def test_many_bad_classes_are_counted_and_five_shown(yolo_set):
    rows = "".join(f"7 .5 .5 .{place} .1\n" for place in range(10, 30))
    with pytest.raises(DataError, match="train: 20 rows have a class") as caught:
        read_data_set(yolo_set({"1": rows}))
    assert str(caught.value).count("(class 7)") == 5


def test_classes_counted_from_one_get_a_hint(yolo_set):
    with pytest.raises(DataError, match="all classes are 1 to 2: count from 0, subtract 1 from each"):
        read_data_set(yolo_set({"1": "1 .5 .5 .2 .2\n2 .5 .5 .1 .1"}))


def test_a_label_file_that_is_no_text_is_refused(yolo_set):
    root = yolo_set({"1": GOOD, "2": GOOD})
    (root / "labels" / "train" / "2.txt").write_bytes(b"\xff\xfe0\x00")
    with pytest.raises(DataError, match=r"1 label files cannot be read: .*2\.txt .*save them as UTF-8"):
        read_data_set(root)


def test_a_byte_order_mark_is_not_part_of_the_class(yolo_set):
    root = yolo_set({"1": GOOD})
    (root / "labels" / "train" / "1.txt").write_text(GOOD, encoding="utf-8-sig")
    assert boxes_of(root)[1].tolist() == [0]


def test_remarks_stay_short_however_many_rows_are_bad(yolo_set):
    rows = "".join(f"0 .5 .5 0 .{place}\n" for place in range(100, 400))
    _, _, messages = boxes_of(yolo_set({"1": rows + GOOD}))
    (message,) = messages
    assert message.startswith("train: 300 boxes without area")
    assert message.count("1.txt:") == 5
