"""The errors of the images add up to those of the split."""

from __future__ import annotations

import pytest

from visiontrain.metrics.outcomes import ImageOutcome, worst_first


@pytest.mark.parametrize("seed", range(3))
def test_the_errors_of_all_images_add_up_to_those_of_the_confusion_matrix(random_split, measure, seed):
    truth, detections = random_split(seed)
    metrics = measure(truth, detections)
    counts, outcomes = metrics.confusion.counts, metrics.per_image
    classes = counts[:-1, :-1]
    assert sum(one.misses for one in outcomes) == counts[:-1, -1].sum()
    assert sum(one.false_alarms for one in outcomes) == counts[-1, :-1].sum()
    assert sum(one.wrong_classes for one in outcomes) == classes.sum() - classes.trace() > 0
    assert len(outcomes) == len(truth)


def test_an_image_that_was_not_read_misses_all_its_boxes(random_split, measure):
    truth, detections = random_split(0)
    assert 4 not in detections
    assert measure(truth, detections).per_image[4] == ImageOutcome(len(truth[4].counted.classes), 0, 0)


def test_the_image_with_the_most_errors_comes_first_and_of_equal_ones_that_with_more_misses():
    outcomes = [
        ImageOutcome(0, 0, 0),
        ImageOutcome(1, 2, 0),
        ImageOutcome(3, 0, 0),
        ImageOutcome(1, 1, 2),
        ImageOutcome(1, 2, 0),
    ]
    assert [one.num_errors for one in outcomes] == [0, 3, 3, 4, 3]
    assert worst_first(outcomes) == [3, 2, 1, 4, 0]
