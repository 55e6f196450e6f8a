"""Curves count at each threshold what a slow loop counts, and the best thresholds are the best of all."""

from __future__ import annotations

import math

import numpy as np
import pytest

from visiontrain.metrics.curves import NUM_THRESHOLDS, curves_of, find_hits
from visiontrain.metrics.detections import Detections, Truth
from visiontrain.metrics.matching import match_detections

NUM_CLASSES = 4
MISSING = 3
"""A class that is found, though there is none."""


def random_boxes(rng, count):
    corner = rng.integers(0, 40, (count, 2)).astype(np.float64)
    return np.concatenate([corner, corner + rng.integers(10, 30, (count, 2))], axis=1)


def random_set(seed: int) -> tuple[list[Truth], dict[int, Detections]]:
    rng = np.random.default_rng(seed)
    truth, detections = [], {}
    for index in range(8):
        count = 0 if index == 3 else int(rng.integers(1, 6))
        boxes, classes = random_boxes(rng, count), rng.integers(0, MISSING, count)
        plain = np.zeros(count, bool)
        truth.append(Truth(boxes, classes, plain, plain, (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)))
        found = np.concatenate([boxes + rng.integers(-2, 3, boxes.shape), random_boxes(rng, 10)])
        scores = np.sort(rng.integers(1, 40, len(found)) / 40)[::-1]
        found_classes = np.concatenate([classes, rng.integers(0, NUM_CLASSES, 10)])
        order = rng.permutation(len(found))
        detections[index] = Detections(found[order], scores, found_classes[order])
    return truth, detections


def slow_counts(truth, detections, threshold):
    """Hits, detections and boxes of each class."""
    hits, found, instances = np.zeros((3, NUM_CLASSES))
    for index, image in detections.items():
        kept = image.scores >= threshold
        boxes, classes = image.boxes[kept], image.classes[kept]
        matches = match_detections(boxes, classes, truth[index].boxes, truth[index].classes)
        hits += np.bincount(classes[matches >= 0], minlength=NUM_CLASSES)
        found += np.bincount(classes, minlength=NUM_CLASSES)
    for image in truth:
        instances += np.bincount(image.classes, minlength=NUM_CLASSES)
    return hits, found, instances


@pytest.mark.parametrize("seed", range(3))
def test_rates_at_each_threshold_are_those_of_a_slow_loop(seed):
    truth, detections = random_set(seed)
    curves = curves_of(find_hits(truth, detections, NUM_CLASSES), np.zeros((NUM_CLASSES, 101)))
    assert curves.thresholds.tolist() == pytest.approx([place / 200 for place in range(NUM_THRESHOLDS)])
    for place in (0, 5, 50, 101, 160, 200):
        hits, found, instances = slow_counts(truth, detections, curves.thresholds[place])
        shown = slice(0, MISSING)
        np.testing.assert_allclose(
            curves.precision_at[shown, place], hits[shown] / np.maximum(found[shown], 1), rtol=1e-12
        )
        np.testing.assert_allclose(curves.recall_at[shown, place], hits[shown] / instances[shown], rtol=1e-12)
        np.testing.assert_allclose(
            curves.f1_at[shown, place], 2 * hits[shown] / (found[shown] + instances[shown]), rtol=1e-12
        )


def test_a_class_without_ground_truth_has_no_curve():
    curves = curves_of(find_hits(*random_set(0), NUM_CLASSES), np.zeros((NUM_CLASSES, 101)))
    for rates in (curves.precision_at, curves.recall_at, curves.f1_at):
        assert np.isnan(rates[MISSING]).all()
        assert np.isfinite(rates[:MISSING]).all()


@pytest.mark.parametrize("seed", range(3))
def test_the_best_threshold_of_each_class_is_the_highest_of_those_with_its_best_f1(seed):
    truth, detections = random_set(seed)
    best = find_hits(truth, detections, NUM_CLASSES).best_thresholds()
    scores = np.unique(np.concatenate([image.scores for image in detections.values()]))[::-1]
    f1 = []
    for score in scores:
        hits, found, instances = slow_counts(truth, detections, score)
        f1.append(2 * hits / np.maximum(found + instances, 1))
    for label in range(MISSING):
        assert best[label] == scores[np.argmax([row[label] for row in f1])]
    assert math.isnan(best[MISSING])


def test_where_nothing_hits_the_best_threshold_is_0_and_where_nothing_is_to_be_found_too():
    truth, detections = random_set(1)
    nothing = find_hits(truth, {}, NUM_CLASSES)
    assert nothing.best_threshold() == 0
    assert nothing.best_thresholds().tolist()[:MISSING] == [0] * MISSING
    no_boxes = [Truth(*(part[:0] for part in vars(image).values())) for image in truth]
    assert find_hits(no_boxes, detections, NUM_CLASSES).best_threshold() == 0


def test_what_lies_on_a_crowd_or_a_difficult_object_is_neither_a_hit_nor_a_false_alarm():
    boxes = np.array([[0.0, 0, 10, 10], [20, 0, 30, 10], [40, 0, 90, 50]])
    truth = Truth(boxes, np.zeros(3, int), np.array([0, 0, 1], bool), np.array([0, 1, 1], bool), np.full(3, 100.0))
    inside = [[42.0, 2, 52, 12], [60, 20, 70, 30]]
    found = Detections(np.array([*boxes[:2].tolist(), *inside, [95, 95, 99, 99]]), np.full(5, 0.5), np.zeros(5, int))
    hits = find_hits([truth], {0: found}, 1)
    assert hits.instances.tolist() == [1]
    assert (len(hits.hits[0]), len(hits.found[0])) == (1, 2)
    of_another_class = Detections(found.boxes, found.scores, np.ones(5, int))
    assert len(find_hits([truth], {0: of_another_class}, 2).found[1]) == 5
