"""Matching follows COCO's greedy rule."""

import numpy as np
import pytest

from visiontrain.metrics.matching import match_detections, pairwise_iou


def random_boxes(rng: np.random.Generator, count: int) -> np.ndarray:
    corner = rng.integers(0, 20, (count, 2)).astype(np.float64)
    return np.concatenate([corner, corner + rng.integers(0, 12, (count, 2))], axis=1)


def slow_iou(a: np.ndarray, b: np.ndarray) -> float:
    width = max(min(a[2], b[2]) - max(a[0], b[0]), 0)
    height = max(min(a[3], b[3]) - max(a[1], b[1]), 0)
    area = [(box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)]
    union = sum(area) - width * height
    return width * height / union if union else 0.0


def slow_match(boxes, classes, truth_boxes, truth_classes, threshold):
    """The rule as COCO's reference implementation walks it."""
    taken, matches = set(), []
    for box, label in zip(boxes, classes, strict=True):
        best, match = threshold, -1
        for j, (truth, truth_label) in enumerate(zip(truth_boxes, truth_classes, strict=True)):
            if j in taken or truth_label != label or slow_iou(box, truth) < best:
                continue
            best, match = slow_iou(box, truth), j
        if match >= 0:
            taken.add(match)
        matches.append(match)
    return matches


@pytest.mark.parametrize("seed", range(20))
def test_matches_are_those_of_the_slow_loop_even_with_equal_overlaps(seed):
    rng = np.random.default_rng(seed)
    boxes, truth = random_boxes(rng, 40), random_boxes(rng, 15)
    truth[3:6] = truth[0]  # boxes drawn twice
    boxes[:15] = truth
    classes, truth_classes = rng.integers(0, 2, 40), rng.integers(0, 2, 15)
    matches = match_detections(boxes, classes, truth, truth_classes, iou_threshold=0.5)
    assert matches.tolist() == slow_match(boxes, classes, truth, truth_classes, 0.5)


@pytest.mark.parametrize(("num_boxes", "num_truth"), [(0, 0), (0, 3), (3, 0)])
def test_nothing_matches_nothing(num_boxes, num_truth):
    rng = np.random.default_rng(0)
    matches = match_detections(
        random_boxes(rng, num_boxes), np.zeros(num_boxes, int), random_boxes(rng, num_truth), np.zeros(num_truth, int)
    )
    assert matches.tolist() == [-1] * num_boxes


def test_overlap_equals_the_slow_loop_and_empty_boxes_overlap_nothing():
    rng = np.random.default_rng(1)
    a, b = random_boxes(rng, 30), random_boxes(rng, 30)
    a[0] = b[0] = [5, 5, 5, 5]
    expected = [[slow_iou(x, y) for y in b] for x in a]
    np.testing.assert_allclose(pairwise_iou(a, b), expected, rtol=1e-12, atol=0)
    assert pairwise_iou(a, b)[0, 0] == 0
