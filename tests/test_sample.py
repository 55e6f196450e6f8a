"""The words of the data: records in flat arrays, and batches that are cut."""

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from visiontrain.sample import Batch, DroppedBoxes, Record, Records


def record(index):
    boxes = np.random.default_rng(index).random((index % 3, 4)).astype(np.float32)
    return Record(Path(f"images/ä {index}.jpg"), 10 + index, 20 + index, boxes, np.arange(index % 3, dtype=np.int64))


def assert_same(one, other):
    assert (one.path, one.height, one.width) == (other.path, other.height, other.width)
    np.testing.assert_array_equal(one.boxes, other.boxes)
    np.testing.assert_array_equal(one.classes, other.classes)


def batch_of(size, **changes):
    values = {
        "images": torch.arange(size * 12, dtype=torch.uint8).reshape(size, 3, 2, 2),
        "targets": {"classes": torch.arange(size * 2).reshape(size, 2)},
        "paths": tuple(f"{index}.png" for index in range(size)),
        "indices": tuple(range(size)),
        "original_sizes": tuple((index, index) for index in range(size)),
        "matrices": torch.arange(size * 9.0).reshape(size, 3, 3),
    }
    return Batch(**values | changes)


def test_records_come_out_as_they_went_in():
    records = Records([record(index) for index in range(7)])
    assert len(records) == 7
    for index, got in enumerate(records):
        assert_same(got, record(index))
    assert_same(records[-1], record(6))


def test_a_slice_of_records_and_a_copy_in_another_process_hold_the_same():
    records = Records([record(index) for index in range(7)])
    for got, index in zip(records[1:6:2], (1, 3, 5), strict=True):
        assert_same(got, record(index))
    assert_same(pickle.loads(pickle.dumps(records))[5], record(5))


def test_the_digest_of_records_is_that_of_names_sizes_and_labels_and_not_of_their_folder():
    known = [replace(record(2), path=Path("here/a.jpg")), replace(record(1), path=Path("here/b.jpg"))]
    digest = Records(known).digest()
    assert Records([replace(one, path=Path("there") / one.path.name) for one in known]).digest() == digest
    first, second = known
    changed = [
        [second, first],
        [replace(first, path=Path("here/c.jpg")), second],
        [replace(first, width=1), second],
        [replace(first, boxes=first.boxes / 2), second],
        [replace(first, classes=first.classes + 1), second],
        # the same labels in a row, cut elsewhere
        [
            replace(first, boxes=first.boxes[:1], classes=first.classes[:1]),
            replace(
                second,
                boxes=np.concatenate([first.boxes[1:], second.boxes]),
                classes=np.concatenate([first.classes[1:], second.classes]),
            ),
        ],
    ]
    assert digest not in {Records(records).digest() for records in changed}


def test_records_of_classification_have_labels_and_no_boxes():
    labels = ([3], [], [0, 2, 1], [4])
    records = Records([replace(record(0), classes=np.array(classes, np.int64)) for classes in labels])
    assert [(got.classes.tolist(), got.boxes.shape) for got in records] == [(classes, (0, 4)) for classes in labels]
    assert records[1:3][1].classes.tolist() == [0, 2, 1]


def test_records_in_which_only_some_labels_have_boxes_are_refused():
    with pytest.raises(AssertionError):
        Records([record(2), replace(record(0), classes=np.array([1]))])


@pytest.mark.parametrize("index", [7, -8])
def test_a_record_outside_is_an_index_error(index):
    records = Records([record(index) for index in range(7)])
    with pytest.raises(IndexError, match="of 7"):
        records[index]


def test_no_records_are_records():
    records = Records([])
    assert list(records) == []
    assert records.boxes.shape == (0, 4)


@pytest.mark.parametrize("most", [1, 2, 3, 5, 8])
def test_the_parts_of_a_batch_put_together_are_the_batch(most):
    whole = batch_of(5, unreadable=("lost.png",), dropped=DroppedBoxes(1, 2, 3, 4))
    parts = whole.split(most)
    assert max(map(len, parts)) <= most
    assert torch.equal(torch.cat([part.images for part in parts]), whole.images)
    assert torch.equal(torch.cat([part.targets["classes"] for part in parts]), whole.targets["classes"])
    assert torch.equal(torch.cat([part.matrices for part in parts]), whole.matrices)
    for name in ("paths", "indices", "original_sizes", "unreadable"):
        assert sum((getattr(part, name) for part in parts), ()) == getattr(whole, name)
    assert sum((part.dropped for part in parts), DroppedBoxes()) == whole.dropped


@pytest.mark.parametrize("is_last", [True, False])
def test_only_the_last_part_of_a_last_batch_is_the_last_of_its_window(is_last):
    parts = batch_of(5, is_last=is_last).split(2)
    assert [part.is_last for part in parts] == [False, False, is_last]


def test_moving_a_batch_moves_its_images_and_targets_and_leaves_the_batch_alone():
    batch = batch_of(2)
    moved = batch.to(torch.device("meta"))
    assert moved.images.device.type == moved.targets["classes"].device.type == "meta"
    assert batch.images.device.type == "cpu"
    assert moved.paths == batch.paths
