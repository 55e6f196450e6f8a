"""The words of the data: records in flat arrays, and batches that are cut."""

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from visiontrain.sample import Batch, DroppedBoxes, Record, Records, ScoringLabels


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


def scoring_labels(num_labels: int, num_crowds: int) -> ScoringLabels:
    rng = np.random.default_rng(num_labels)
    return ScoringLabels(
        areas=rng.random(num_labels),
        is_difficult=rng.random(num_labels) < 0.5,
        crowd_boxes=rng.random((num_crowds, 4), np.float32),
        crowd_classes=rng.integers(0, 5, num_crowds),
    )


def test_what_scoring_knows_beside_the_labels_comes_out_as_it_went_in():
    plain = [record(index) for index in range(7)]
    known = [replace(one, scoring=scoring_labels(len(one.classes), one.width % 3)) for one in plain]
    known[2] = record(2)  # of which nothing is known
    records = Records(known)
    both = [*records[1:6:2], *pickle.loads(pickle.dumps(records))]
    for got, expected in zip(both, [*known[1:6:2], *known], strict=True):
        assert_same(replace(got, scoring=None), replace(expected, scoring=None))
        assert got.scoring is not None
        wanted = expected.scoring or ScoringLabels(
            np.full(len(expected.classes), np.nan),
            np.zeros(len(expected.classes), bool),
            np.zeros((0, 4), np.float32),
            np.zeros(0, np.int64),
        )
        for array, other in zip(vars(got.scoring).values(), vars(wanted).values(), strict=True):
            np.testing.assert_array_equal(array, other)
    assert all(got.scoring is None for got in Records([record(1), record(2)]))


def test_other_class_numbers_go_to_crowd_regions_too():
    first = replace(record(2), scoring=scoring_labels(len(record(2).classes), 3))
    changed = first.with_classes(lambda classes: classes + 10)
    assert changed.classes.tolist() == (first.classes + 10).tolist()
    assert changed.scoring is not None
    assert first.scoring is not None
    assert changed.scoring.crowd_classes.tolist() == (first.scoring.crowd_classes + 10).tolist()
    assert record(2).with_classes(np.zeros_like).scoring is None


def test_the_digest_tells_of_what_scoring_passes_over_and_is_the_old_one_where_that_is_nothing():
    plain = record(2)
    num_labels = len(plain.classes)
    no_crowds = (np.zeros((0, 4), np.float32), np.zeros(0, np.int64))
    nothing = ScoringLabels(np.ones(num_labels), np.zeros(num_labels, bool), *no_crowds)
    assert Records([replace(plain, scoring=nothing)]).digest() == Records([plain]).digest()
    difficult = replace(nothing, is_difficult=np.ones(num_labels, bool))
    crowded = replace(nothing, crowd_boxes=np.ones((1, 4), np.float32), crowd_classes=np.zeros(1, np.int64))
    digests = {Records([replace(plain, scoring=one)]).digest() for one in (nothing, difficult, crowded)}
    assert len(digests) == 3
