"""Hits are settled first, and each detection and each box is in one pair at most."""

from __future__ import annotations

import numpy as np
import pytest

from visiontrain.metrics.detections import Detections, Truth
from visiontrain.metrics.matching import pairwise_iou
from visiontrain.metrics.pairing import match_image, pair, share_inside


def truth_of(boxes, classes, *, ignored=(), crowds=()):
    boxes = np.array(boxes, float).reshape(-1, 4)
    is_crowd = np.isin(np.arange(len(boxes)), crowds)
    is_ignored = np.isin(np.arange(len(boxes)), ignored) | is_crowd
    return Truth(boxes, np.array(classes, np.int64), is_crowd, is_ignored, np.ones(len(boxes)))


def found_of(boxes, scores, classes):
    return Detections(np.array(boxes, float).reshape(-1, 4), np.array(scores, float), np.array(classes, np.int64))


@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.6])
@pytest.mark.parametrize("seed", range(3))
def test_pairs_are_apart_overlap_and_are_of_the_same_class_or_of_two(random_split, seed, threshold):
    truth, detections = random_split(seed)
    for place, found in detections.items():
        pairing = pair(found, truth[place], threshold=threshold)
        boxes = truth[place].counted
        assert (pairing.found.scores >= threshold).all()
        assert not (pairing.is_hit & (pairing.wrong >= 0)).any()
        taken = np.concatenate([pairing.hits[pairing.hits >= 0], pairing.wrong[pairing.wrong >= 0]])
        assert len(np.unique(taken)) == len(taken)
        overlaps = pairwise_iou(pairing.found.boxes, boxes.boxes)
        for detection, (hit, wrong) in enumerate(zip(pairing.hits, pairing.wrong, strict=True)):
            for box, is_own in ((hit, True), (wrong, False)):
                if box >= 0:
                    assert overlaps[detection, box] >= 0.5
                    assert (boxes.classes[box] == pairing.found.classes[detection]) == is_own


def test_a_detection_of_another_class_does_not_take_the_box_of_a_hit():
    truth = truth_of([[0, 0, 10, 10]], [0])
    pairing = pair(found_of([[0, 0, 10, 10], [0, 0, 10, 9]], [0.9, 0.8], [1, 0]), truth, threshold=0.1)
    assert pairing.hits.tolist() == [-1, 0]
    assert pairing.wrong.tolist() == [-1, -1]


def test_of_two_detections_of_other_classes_the_higher_score_takes_the_box():
    truth = truth_of([[0, 0, 10, 10]], [0])
    pairing = pair(found_of([[0, 0, 10, 8], [0, 0, 10, 10]], [0.9, 0.8], [1, 2]), truth, threshold=0.1)
    assert pairing.wrong.tolist() == [0, -1]
    assert (pairing.is_found.tolist(), pairing.is_taken_for_another.tolist()) == ([False], [True])


def test_what_is_below_the_threshold_is_in_no_pair():
    truth, found = truth_of([[0, 0, 10, 10]], [0]), found_of([[0, 0, 10, 10]], [0.5], [0])
    assert pair(found, truth, threshold=0.5).is_found.tolist() == [True]
    assert len(pair(found, truth, threshold=0.51).hits) == 0


def test_a_box_that_need_not_be_found_is_asked_last_and_takes_one_detection():
    truth = truth_of([[0, 0, 10, 10], [0, 0, 10, 9]], [0, 0], ignored=[1])
    found = found_of([[0, 0, 10, 9]] * 3, [0.9, 0.8, 0.7], [0, 0, 0])
    matched = match_image(found, truth)
    assert matched.truth.tolist() == [0, -1, -1]
    assert matched.is_ignored.tolist() == [False, True, False]


def test_a_crowd_takes_any_number_of_detections_of_its_class_by_their_own_area():
    truth = truth_of([[0, 0, 100, 100]], [0], crowds=[0])
    found = found_of(
        [[0, 0, 9, 9], [50, 50, 60, 60], [95, 0, 105, 9], [96, 0, 106, 9], [0, 0, 9, 9]], [0.5] * 5, [0] * 4 + [1]
    )
    assert match_image(found, truth).is_ignored.tolist() == [True, True, True, False, False]
    assert pair(found, truth, threshold=0).found.classes.tolist() == [0, 1]


def test_the_part_inside_is_of_the_box_itself():
    inside = share_inside(np.array([[0.0, 0, 10, 10], [5, 5, 5, 5]]), np.array([[5.0, 0, 100, 100]]))
    assert inside.tolist() == [[0.5], [0.0]]
