"""The matrix holds the pairs of all images, and says the same as the table."""

from __future__ import annotations

import numpy as np
import pytest

from visiontrain.metrics.confusion import confusion_of
from visiontrain.metrics.detections import Detections, Truth
from visiontrain.metrics.pairing import pair


@pytest.mark.parametrize("seed", range(8))
def test_precision_recall_and_f1_of_the_matrix_are_those_of_the_table(random_split, measure, seed):
    metrics = measure(*random_split(seed))
    confusion = metrics.confusion
    assert confusion.threshold == metrics.best_threshold
    table = np.array([(row.precision, row.recall, row.f1) for row in metrics.per_class]).T
    np.testing.assert_array_equal([confusion.precision, confusion.recall, confusion.f1], table)
    assert np.isnan(confusion.precision[-1])  # found, and nowhere labelled
    assert confusion.counts[:, -2].sum() > 0


@pytest.mark.parametrize("seed", range(3))
def test_every_box_and_every_detection_that_counts_is_in_one_cell(random_split, measure, seed):
    truth, detections = random_split(seed)
    metrics = measure(truth, detections)
    counts = metrics.confusion.counts
    assert counts[:-1].sum(axis=1).tolist() == [row.instances for row in metrics.per_class]
    assert counts[:, :-1].sum() == sum(len(pairing.hits) for pairing in metrics.pairings)
    assert counts[-1, -1] == 0


def test_a_matrix_made_by_hand():
    # Two classes, five detections: a hit, a wrong class, one on a box that is taken, two on nothing.
    boxes = np.array([[0.0, 0, 10, 10], [20, 0, 30, 10], [40, 0, 50, 10], [60, 0, 70, 10]])
    plain = np.zeros(4, bool)
    truth = Truth(boxes, np.array([0, 0, 1, 1]), plain, plain, np.full(4, 100.0))
    found = Detections(
        np.array([[0.0, 0, 10, 10], [20, 0, 30, 9], [0, 0, 10, 9], [80, 0, 90, 10], [40, 0, 43, 10]]),
        np.array([0.9, 0.8, 0.7, 0.6, 0.5]),
        np.array([0, 1, 0, 0, 1]),
    )
    confusion = confusion_of([pair(found, truth, threshold=0.5)], threshold=0.5, names=("a", "b"))
    assert confusion.counts.tolist() == [[1, 1, 0], [0, 0, 2], [2, 1, 0]]
    assert confusion.precision.tolist() == [1 / 3, 0]
    assert confusion.recall.tolist() == [0.5, 0]
    assert confusion.f1.tolist() == pytest.approx([0.4, 0])


def test_without_images_nothing_is_counted():
    confusion = confusion_of([], threshold=0, names=("a", "b"))
    assert confusion.counts.tolist() == [[0] * 3] * 3
    assert np.isnan(confusion.f1).all()
