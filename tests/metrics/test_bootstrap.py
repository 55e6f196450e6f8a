"""Intervals hold what they promise: they are tried on many samples of a population whose metric is known."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest

from visiontrain.metrics.bootstrap import (
    FEWEST_IMAGES,
    MANY_IMAGES,
    Resampled,
    difference_interval,
    metric_interval,
    over_halves,
    share_interval,
    tells_intervals,
)
from visiontrain.metrics.ranking import IOU_THRESHOLDS, RankedClass, Ranking, means_of_known


def mean_of(values):
    """Resampling of a plain mean, of which everything is known."""

    def resampled(weights):
        means = weights @ values / np.maximum(weights.sum(axis=1), 1)
        return Resampled({"mean": means}, np.stack([means, 1 - means], axis=1))

    return resampled


def test_halves_are_drawn_by_the_seed_and_hold_half_of_the_images_once():
    seen = []
    over_halves(lambda weights: seen.append(weights) or Resampled({}, np.zeros((len(weights), 1))), 21, count=50)
    weights = np.concatenate(seen)
    assert weights.shape == (50, 21)
    assert set(np.unique(weights)) == {0, 1}
    assert (weights.sum(axis=1) == 10).all()
    assert len(np.unique(weights, axis=0)) > 45
    values = np.random.default_rng(0).random(21)
    first, again, other = (over_halves(mean_of(values), 21, seed=seed).overall["mean"] for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_halves_that_are_drawn_in_parts_are_the_same(monkeypatch):
    values = np.random.default_rng(0).random(30)
    whole = over_halves(mean_of(values), 30, count=40)
    monkeypatch.setattr("visiontrain.metrics.bootstrap._MOST_NUMBERS", 100)
    parts = over_halves(mean_of(values), 30, count=40)
    np.testing.assert_allclose(parts.overall["mean"], whole.overall["mean"], rtol=1e-12)
    assert parts.per_class.shape == whole.per_class.shape == (40, 2)


@pytest.mark.parametrize("num_images", [40, 41, 200])
def test_the_interval_of_a_mean_is_as_wide_as_the_textbooks(num_images):
    values = np.random.default_rng(1).uniform(0.2, 0.8, num_images)
    halves = over_halves(mean_of(values), num_images, count=4000).overall["mean"]
    quantile = {40: 2.022691, 41: 2.021075, 200: 1.971957}[num_images]  # of Student's t
    textbook = 2 * quantile * values.std(ddof=1) / math.sqrt(num_images)
    for interval in (metric_interval, difference_interval):
        found = interval("mean", values.mean(), halves, num_images=num_images)
        assert found.low < values.mean() < found.high
        assert found.high - found.low == pytest.approx(textbook, rel=0.05)


def test_few_images_widen_the_interval_as_students_distribution_does():
    halves = np.random.default_rng(0).normal(0.5, 0.05, 200_000)
    widths = []
    for num_images in (10, 20, 80):
        found = difference_interval("m", 0.5, halves, num_images=num_images)
        widths.append((found.high - found.low) / 0.1)
    assert widths == pytest.approx([2.262157, 2.093024, 1.990450], rel=0.01)


def test_a_metric_that_halves_exceed_is_corrected_downwards():
    halves = np.random.default_rng(2).normal(0.52, 0.02, 4000)
    corrected = metric_interval("m", 0.5, halves, num_images=100)
    plain = difference_interval("m", 0.5, halves, num_images=100)
    assert corrected.low < plain.low
    assert corrected.high < plain.high
    assert (corrected.low + corrected.high) / 2 == pytest.approx(0.48, abs=0.005)


def test_intervals_stay_within_zero_and_one_and_differences_may_be_negative():
    halves = np.random.default_rng(3).normal(0.99, 0.05, 500)
    assert metric_interval("m", 0.99, halves, num_images=100).high == 1
    assert difference_interval("m", -0.5, halves - 1.49, num_images=100).high < 0


def test_what_cannot_be_measured_has_no_interval():
    for value, halves in ((math.nan, np.full(5, 0.5)), (0.5, np.full(5, math.nan))):
        for interval in (metric_interval, difference_interval):
            assert math.isnan(interval("m", value, halves, num_images=20).low)
    partly = metric_interval("m", 0.5, np.array([math.nan, 0.5, 0.5]), num_images=20)
    assert (partly.low, partly.high) == (0.5, 0.5)
    assert math.isnan(share_interval("m", 0, 0).low)


# The score interval solved as an equation: |share - p| = z · sqrt(p (1 - p) / n).
@pytest.mark.parametrize(("num_right", "num_images"), [(0, 20), (8, 10), (20, 20), (95, 100), (333, 499)])
def test_the_interval_of_a_share_is_wilsons(num_right, num_images):
    found = share_interval("top1", num_right, num_images)
    z, share = NormalDist().inv_cdf(0.975), num_right / num_images
    for end in {found.low, found.high} - {0.0, 1.0}:
        assert abs(share - end) == pytest.approx(z * math.sqrt(end * (1 - end) / num_images), rel=1e-9)
    assert 0 <= found.low <= share <= found.high <= 1
    assert found.low < found.high


def test_very_few_and_very_many_images_have_no_interval(random_split, measure):
    assert [tells_intervals(n) for n in (0, FEWEST_IMAGES - 1, FEWEST_IMAGES, MANY_IMAGES - 1, MANY_IMAGES)] == [
        False,
        False,
        True,
        True,
        False,
    ]
    assert measure(*random_split(0, num_images=FEWEST_IMAGES - 1)).intervals == ()
    metrics = measure(*random_split(0))
    assert [one.name for one in metrics.intervals] == ["metrics/mAP50-95(B)", "metrics/mAP50(B)"]
    assert all(one.low < metrics[one.name] < one.high for one in metrics.intervals)
    assert str(metrics.intervals[0]).startswith("[0.")


POPULATION = 6_000
SHARES = (3.0, 1.0)
"""Mean boxes of an image, of each class."""


def population(rng):
    """Two detectors on the same images, as (class, detector): images, scores, overlaps of the detections; boxes."""
    hardness = rng.normal(0, 0.6, POPULATION)
    found = {}
    for label, share in enumerate(SHARES):
        num_boxes = rng.poisson(share * rng.gamma(2, 0.5, POPULATION))
        image = np.repeat(np.arange(POPULATION), num_boxes)
        common = rng.normal(size=len(image))  # of a box: what both detectors see alike
        for detector, skill in enumerate((1.2, 1.4)):
            overlap = sigmoid(skill + 0.8 * common + 0.5 * rng.normal(size=len(image)) - hardness[image])
            is_found = rng.random(len(image)) < sigmoid(2.0 - hardness[image])
            alarms = np.repeat(np.arange(POPULATION), rng.poisson(1.5 * np.exp(hardness / 2)))
            scores = np.concatenate(
                [1.5 * overlap[is_found] + rng.normal(size=is_found.sum()), rng.normal(-1.2, 1, len(alarms))]
            )
            images = np.concatenate([image[is_found], alarms])
            overlaps = np.concatenate([overlap[is_found], np.zeros(len(alarms))])
            order = np.argsort(-scores, kind="stable")
            found[label, detector] = images[order], overlaps[order], num_boxes
    return found


def sigmoid(values):
    return 1 / (1 + np.exp(-values))


def ranking_of(found, detector, chosen):
    """The detections of some images of the population, as they would have been ranked."""
    place = np.full(POPULATION, -1)
    place[chosen] = np.arange(len(chosen))
    classes = []
    for label in range(len(SHARES)):
        images, overlaps, num_boxes = found[label, detector]
        is_in = place[images] >= 0
        is_hit = overlaps[is_in][None, :] >= IOU_THRESHOLDS[:, None]
        classes.append(RankedClass(place[images[is_in]], is_hit, np.zeros_like(is_hit), num_boxes[chosen]))
    return Ranking(tuple(classes))


def map_of(ranking):
    def resampled(weights):
        ap = ranking.average_precision(weights).mean(axis=1)
        return Resampled({"map": means_of_known(ap)}, ap)

    return resampled


@pytest.mark.slow
def test_intervals_of_map_and_of_differences_hold_the_populations_in_92_to_98_of_100_samples():
    rng = np.random.default_rng(20)
    found, num_images, num_samples = population(rng), 80, 250
    once = np.ones((1, POPULATION), np.int64)
    whole = [map_of(ranking_of(found, detector, np.arange(POPULATION)))(once).overall["map"][0] for detector in (0, 1)]
    holds = np.zeros(3)
    for _ in range(num_samples):
        chosen = np.sort(rng.choice(POPULATION, num_images, replace=False))
        of_both = [map_of(ranking_of(found, detector, chosen)) for detector in (0, 1)]
        values = [resampled(np.ones((1, num_images), np.int64)).overall["map"][0] for resampled in of_both]
        halves = [over_halves(resampled, num_images, count=300).overall["map"] for resampled in of_both]
        for detector in (0, 1):
            interval = metric_interval("map", values[detector], halves[detector], num_images=num_images)
            holds[detector] += interval.low <= whole[detector] <= interval.high
        gain = difference_interval("map", values[1] - values[0], halves[1] - halves[0], num_images=num_images)
        holds[2] += gain.low <= whole[1] - whole[0] <= gain.high
    assert (holds / num_samples >= 0.92).all(), holds / num_samples
    assert (holds / num_samples <= 0.98).all(), holds / num_samples


@pytest.mark.parametrize("num_images", [40, 100, 400])
def test_intervals_of_a_share_hold_the_populations_in_92_to_98_of_100_samples(num_images):
    """Of all shares that a population may have; summed over what a sample may show, without chance."""
    right = np.arange(num_images + 1)
    intervals = [share_interval("top1", count, num_images) for count in right.tolist()]
    coverage = []
    for share in np.linspace(0.02, 0.98, 200).tolist():
        ways = [
            math.lgamma(num_images + 1) - math.lgamma(k + 1) - math.lgamma(num_images - k + 1) for k in right.tolist()
        ]
        chance = np.exp(np.array(ways) + right * math.log(share) + (num_images - right) * math.log(1 - share))
        coverage.append(sum(chance[k] for k, one in enumerate(intervals) if one.low <= share <= one.high))
    assert 0.92 <= np.mean(coverage) <= 0.98
    assert np.quantile(coverage, 0.1) >= 0.92
