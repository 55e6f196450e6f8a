"""The ground truth of scoring is that of the records, with crowd regions and areas where they are known."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from visiontrain.metrics.detections import Detections, best_of_classes, truth_of
from visiontrain.sample import Record, Records, ScoringLabels

BOXES = np.array([[0, 0, 0.5, 0.25], [0.5, 0.5, 1, 1]], np.float32)


def record(scoring: ScoringLabels | None) -> Record:
    return Record(Path("a.png"), 80, 200, BOXES, np.array([1, 0]), scoring)


def test_boxes_are_pixels_of_the_source_and_areas_are_theirs():
    (truth,) = truth_of(Records([record(None)]))
    np.testing.assert_array_equal(truth.boxes, [[0, 0, 100, 20], [100, 40, 200, 80]])
    assert truth.areas.tolist() == [2000, 4000]
    assert truth.classes.tolist() == [1, 0]
    assert not truth.is_crowd.any()
    assert not truth.is_ignored.any()


def test_crowd_regions_stand_behind_the_labels_and_are_ignored_as_difficult_ones_are():
    scoring = ScoringLabels(
        np.array([300, math.nan]),
        np.array([False, True]),
        np.array([[0, 0, 1, 1]], np.float32),
        np.array([1]),
    )
    plain, truth = truth_of(Records([record(None), record(scoring)]))
    np.testing.assert_array_equal(truth.boxes, [*plain.boxes, [0, 0, 200, 80]])
    assert truth.classes.tolist() == [1, 0, 1]
    assert truth.is_crowd.tolist() == [False, False, True]
    assert truth.is_ignored.tolist() == [False, True, True]
    assert truth.areas.tolist() == [300, 4000, 16000]
    assert truth.counted.classes.tolist() == [1]
    assert not plain.is_ignored.any()
    assert len(plain.classes) == 2


@pytest.mark.parametrize("seed", range(5))
def test_of_each_class_the_best_are_kept_in_their_order(seed):
    rng = np.random.default_rng(seed)
    scores, classes = np.sort(rng.integers(0, 20, 60) / 20)[::-1], rng.integers(0, 3, 60)
    found = Detections(np.arange(240.0).reshape(60, 4), scores, classes)
    kept = best_of_classes(found, 7)
    seen: dict[int, int] = {}
    expected = []
    for place, label in enumerate(classes.tolist()):
        seen[label] = seen.get(label, 0) + 1
        if seen[label] <= 7:
            expected.append(place)
    assert kept.boxes[:, 0].tolist() == [4.0 * place for place in expected]
    assert kept.scores.tolist() == scores[expected].tolist()
    assert kept.classes.tolist() == classes[expected].tolist()
    assert best_of_classes(found, 60) is found
