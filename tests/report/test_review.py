"""A review is read as far as it is whole; what is damaged is told."""

from __future__ import annotations

import copy
import math
import random

import pytest

from visiontrain.report.review import Box, read_review
from visiontrain.report.run_page import RunPage, run_page


def test_a_whole_document_is_read_without_a_complaint(review_document):
    review, faults = read_review(review_document())
    assert faults == []
    assert review.summary == (("metrics/mAP50(B)", 0.75), ("metrics/mAP50-95(B)", 0.5))
    assert review.intervals == {"metrics/mAP50-95(B)": (0.4, 0.6)}
    assert review.table.columns == ("images", "precision")
    assert math.isnan(review.table.rows[1][1])
    assert review.curves.precision[1] is None
    assert review.confusion.row_names[-1] == "background"
    assert review.confusion.column_names[-1] == "missed"
    assert review.gallery[0].found[0] == Box(10, 10, 30, 30, 0, 0.9)


def test_a_classifiers_document_has_labels_and_probabilities_in_place_of_boxes(review_document):
    shot = {"path": "a.jpg", "width": 9, "height": 9, "labels": ["cat"], "probs": [["dog", 0.75], ["cat", 0.25]]}
    document = review_document(
        names=["cat", "dog"],
        gallery=[shot],
        confusion={"counts": [[1, 2, 0], [0, 3, 1]]},
        calibration={"confidence": [None, 0.7], "accuracy": [None, 0.5], "counts": [0, 4]},
        curves=None,
        errors=None,
    )
    review, faults = read_review(document)
    assert faults == []
    assert not review.gallery[0].has_boxes
    assert review.gallery[0].probs == (("dog", 0.75), ("cat", 0.25))
    assert review.confusion.row_names == ("cat", "dog")
    assert math.isnan(review.confusion.threshold)
    assert review.calibration.counts == (0, 4)


@pytest.mark.parametrize("document", [None, 3, [], {}, "text", {"task": "detect", "split": "val", "images": 3}])
def test_what_is_no_review_at_all_is_none_and_told(document):
    assert read_review(document) == (None, ["names neither task, split, images nor classes"])


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("rows", [{"name": "a"}]),
        ("curves", {"recall": [0, 1]}),
        ("curves", {"recall": [0, 1], "precision": [[1]] * 3, "thresholds": [0, 1], "f1": [[1, 1]] * 3}),
        ("confusion", {"counts": [[1, 2], [3]]}),
        ("confusion", {"counts": [[-1] * 4] * 4}),
        ("errors", [{"kind": "missed"}]),
        ("summary", {"mAP": "high"}),
        ("summary", {"mAP": float("inf")}),
        ("intervals", {"mAP": [1]}),
        ("threshold", [1]),
        ("calibration", {"confidence": [1], "accuracy": [], "counts": []}),
        ("gallery", [{"path": "a.jpg", "width": 0, "height": 3}]),
        ("gallery", [{"path": "a.jpg", "width": 5, "height": 3, "found": [[0, 0, 1, 1, 0.5, 99]]}]),
        ("gallery", [{"path": "a.jpg", "width": 5, "height": 3, "truth": [[0, 0, float("nan"), 1, 0]]}]),
    ],
)
def test_a_damaged_part_is_told_and_the_others_are_kept(review_document, part, value):
    review, faults = read_review(review_document(**{part: value}))
    assert faults == [f"{part}: is damaged"]
    assert review.names == ("class 0", "class 1", "class 2")
    whole, _ = read_review(review_document())
    kept = {"summary", "table", "curves", "confusion", "errors", "gallery"} - {part, "table" if part == "rows" else ""}
    assert all(getattr(review, name) == getattr(whole, name) for name in kept if name not in ("table", "curves"))


WRONG: tuple[object, ...] = (
    None,
    True,
    -1,
    10**400,
    1e308,
    -0.5,
    "x",
    "",
    [],
    {},
    [None],
    {"a": 1},
    [[]],
    float("nan"),
    float("inf"),
)


def places_of(value, path=()):
    yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from places_of(child, (*path, key))


def test_whatever_one_value_is_replaced_by_a_page_is_made(review_document, checked):
    """400 of some 20,000 changes; the same in every run."""
    rng = random.Random(0)
    whole = review_document()
    places = list(places_of(whole))[1:]
    for _ in range(400):
        document = copy.deepcopy(whole)
        *path, last = rng.choice(places)
        owner = document
        for key in path:
            owner = owner[key]
        owner[last] = rng.choice(WRONG)
        review, _ = read_review(document)
        shots = () if review is None else [None] * len(review.gallery)
        checked(run_page(RunPage("run", "done", is_done=True, review=review, shots=shots)))
