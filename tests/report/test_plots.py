"""Pictures of scores and of labels are drawn for few classes and many, whatever their names."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from visiontrain.report.canvas import shown_names
from visiontrain.report.label_plot import plot_labels
from visiontrain.report.plots import MOST_NAMED_CURVES, named_places, plot_review
from visiontrain.report.review import read_review
from visiontrain.sample import Record, Records

NAMES = ("$x$ and $", "图 größe", "<b>", "a\nb", "class_name" * 9)


def test_a_review_gives_three_pictures_with_any_names(review_document, tmp_path, read_picture):
    review, faults = read_review(review_document(names=NAMES))
    assert faults == []
    plot_review(review, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"PR_curve.png", "F1_curve.png", "confusion_matrix.png"}
    assert all(min(read_picture(path).shape[:2]) >= 500 for path in tmp_path.iterdir())


@pytest.mark.parametrize("num_classes", [1, 80])
def test_every_row_of_a_confusion_has_room_for_its_name(review_document, tmp_path, read_picture, num_classes):
    review, _ = read_review(review_document(num_classes, curves=None))
    plot_review(review, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["confusion_matrix.png"]
    assert read_picture(tmp_path / "confusion_matrix.png").shape[0] >= 15 * (num_classes + 1)


def test_without_ground_truth_there_are_no_curves(review_document, tmp_path):
    curves = {"recall": [0, 1], "precision": [None] * 3, "thresholds": [0, 1], "f1": [None] * 3}
    review, faults = read_review(review_document(curves=curves, confusion=None))
    assert faults == []
    plot_review(review, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_all_of_few_curves_are_named_and_of_many_the_best_and_the_worst():
    assert named_places([0.5, math.nan, 0.9]) == [0, 2]
    many = [place / 100 for place in range(MOST_NAMED_CURVES + 1)]
    assert named_places(many) == [10, 9, 8, 2, 1, 0]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("cat", "cat"),
        ("a$b", r"a\$b"),
        ("图 1", "class 1"),
        ("a\nb", "class 1"),
        ("größe Ж", "größe Ж"),
        ("a class with a rather long name number 12", "a class with …name number 12"),
    ],
)
def test_names_keep_both_ends_and_are_never_read_as_formulas(name, shown):
    assert shown_names(["first", name]) == ["first", shown]


def records(num_classes, *, has_boxes):
    rng = np.random.default_rng(0)
    found = []
    for _ in range(20):
        low = rng.random((5, 2)) / 2
        boxes = np.concatenate([low, low + rng.random((5, 2)) / 2], axis=1).astype(np.float32)
        classes = rng.integers(0, num_classes, 5)
        found.append(Record(Path("a.jpg"), 8, 8, boxes if has_boxes else np.zeros((0, 4), np.float32), classes))
    return Records(found)


@pytest.mark.parametrize("has_boxes", [True, False])
@pytest.mark.parametrize("num_classes", [1, 80, 400])
def test_labels_are_drawn_with_and_without_boxes(tmp_path, read_picture, num_classes, has_boxes):
    path = tmp_path / "größe.png"
    plot_labels(records(num_classes, has_boxes=has_boxes), [f"class {i}" for i in range(num_classes)], path)
    height, width = read_picture(path).shape[:2]
    assert 400 <= height <= 3000
    assert (width > 800) == has_boxes
    assert height >= min(num_classes * 12, 3000)


def test_a_split_without_any_label_is_drawn(tmp_path, read_picture):
    nothing = Records([Record(Path("a.jpg"), 8, 8, np.zeros((0, 4), np.float32), np.zeros(0, np.int64))])
    plot_labels(nothing, NAMES, tmp_path / "labels.png")
    assert read_picture(tmp_path / "labels.png").size


def test_matplotlib_is_imported_only_when_drawing():
    code = "import sys, visiontrain.report.plots, visiontrain.report.label_plot; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
