"""AP of resampled splits is COCO's AP of the images, copied as often as they were drawn."""

from __future__ import annotations

import numpy as np
import pytest

from visiontrain.metrics.detections import Detections
from visiontrain.metrics.ranking import means_of_known, rank


def copied(truth, detections, weights):
    """The split in which each image stands so many times."""
    places = np.repeat(np.arange(len(truth)), weights).tolist()
    found = {new: detections[old] for new, old in enumerate(places) if old in detections}
    return [truth[old] for old in places], found


@pytest.mark.parametrize("seed", range(4))
def test_a_resampled_split_scores_as_its_copied_images_do(random_split, measure, seed):
    truth, detections = random_split(seed)
    rng = np.random.default_rng(seed)
    # Copies of one image stand side by side; equal scores inside it would come in another order among them.
    detections = {
        place: Detections(found.boxes, found.scores - np.arange(len(found.scores)) / 1e6, found.classes)
        for place, found in detections.items()
    }
    weights = rng.multinomial(len(truth), np.full(len(truth), 1 / len(truth)), size=5)
    metrics = measure(truth, detections)
    resampled = metrics.resampled(weights)
    for place, row in enumerate(weights):
        expected = measure(*copied(truth, detections, row))
        assert resampled.overall["metrics/mAP50-95(B)"][place] == pytest.approx(expected.box.map, abs=1e-12)
        assert resampled.overall["metrics/mAP50(B)"][place] == pytest.approx(expected.box.map50, abs=1e-12)
        np.testing.assert_allclose(resampled.per_class[place], expected.box.maps, rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_each_image_once_gives_the_metrics_of_the_split(random_split, measure, seed):
    metrics = measure(*random_split(seed))
    once = metrics.resampled(np.ones((1, metrics.images), np.int64))
    assert once.overall["metrics/mAP50-95(B)"][0] == pytest.approx(metrics.box.map, abs=1e-12)
    assert once.overall["metrics/mAP50(B)"][0] == pytest.approx(metrics.box.map50, abs=1e-12)
    np.testing.assert_allclose(once.per_class[0], metrics.box.maps, rtol=0, atol=1e-12)


def test_a_class_that_no_drawn_image_holds_is_left_out_of_the_mean(random_split):
    truth, detections = random_split(0)
    holds_class_0 = np.array([bool((image.counted.classes == 0).any()) for image in truth])
    ap = rank(truth, detections, 4).average_precision((~holds_class_0).astype(np.int64)[None])[0]  # (10, C)
    assert np.isnan(ap[:, [0, 3]]).all()
    assert not np.isnan(ap[:, 1]).any()


def test_only_the_100_best_detections_of_an_image_and_class_are_ranked(random_split):
    truth, detections = random_split(1)
    crowded = detections[0]
    boxes, scores = np.repeat(crowded.boxes[:1], 150, axis=0), np.linspace(0.9, 0.8, 150)
    detections[0] = Detections(boxes, scores, np.zeros(150, np.int64))
    ranked = rank(truth, detections, 4).classes[0]
    assert (ranked.images == 0).sum() == 100


def test_a_split_that_is_cut_into_parts_gives_the_same(random_split, monkeypatch):
    ranking = rank(*random_split(2), 4)
    weights = np.random.default_rng(0).integers(0, 3, (7, 12))
    whole = ranking.average_precision(weights)
    monkeypatch.setattr("visiontrain.metrics.ranking._MOST_NUMBERS", 1)
    np.testing.assert_array_equal(ranking.average_precision(weights), whole)


def test_means_are_of_what_is_known():
    rows = np.array([[1.0, np.nan, 2.0], [np.nan] * 3])
    np.testing.assert_array_equal(means_of_known(rows), [1.5, np.nan])
