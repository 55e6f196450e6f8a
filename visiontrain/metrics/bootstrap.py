"""How far a metric would move with other images of the same kind: intervals by resampling the images of the split.

A detector's mAP is higher on few images than on many, and a bootstrap with replacement, whose samples hold the same
image twice, sees little of that. Halves drawn without replacement spread around the metric as it spreads around that of
all images there are, its excess included: their percentiles, corrected for the excess, are the interval. The share of
images that are right needs no resampling: its interval is Wilson's, which holds at 0 and 1 too.

Sources: Politis and Romano 1994, "Large sample confidence regions based on subsamples under minimal assumptions";
Efron 1987, "Better bootstrap confidence intervals" (the correction of bias); Wilson 1927, "Probable inference, the law
of succession, and statistical inference".

Letters: I images of the split, R resampled splits, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

NUM_RESAMPLES = 1000
FEWEST_IMAGES = 10
"""Fewer have no interval: there are hardly any different halves."""
MANY_IMAGES = 500
"""From here on the digits that tables print hardly depend on which images they are, and halves take their time."""
LEVEL = 0.95
_MOST_NUMBERS = 4_000_000  # resampled splits × images that are held at once

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Interval:
    """Where a metric lies, by the images that there are."""

    name: str
    """Of the metric, as in the CSV."""
    low: float
    high: float
    level: float = LEVEL
    """How often such an interval holds the metric of all images of the kind."""

    def __str__(self) -> str:
        return f"[{self.low:.3f}, {self.high:.3f}]"


@dataclass(frozen=True)
class Resampled:
    """Metrics of resampled splits; nan where one cannot be measured."""

    overall: Mapping[str, Floats]
    """(R,) each, by the names of the CSV: those that depend on no threshold."""
    per_class: Floats
    """(R, C) the one number that a class is judged by."""


def tells_intervals(num_images: int) -> bool:
    """Whether metrics of so many images come with intervals."""
    return FEWEST_IMAGES <= num_images < MANY_IMAGES


def over_halves(
    resampled: Callable[[Ints], Resampled], num_images: int, *, seed: int = 0, count: int = NUM_RESAMPLES
) -> Resampled:
    """The metrics of halves of a split, drawn without replacement; the same images for every model.

    Args:
        resampled: Takes (R, I), how often each image stands in each resampled split.
        num_images: Of the split.
        seed: Of the draw.
        count: How many halves.
    """
    rng = np.random.default_rng(seed)
    step = max(1, _MOST_NUMBERS // max(1, num_images))
    parts = [resampled(_halves(rng, min(step, count - start), num_images)) for start in range(0, count, step)]
    return Resampled(
        {name: np.concatenate([part.overall[name] for part in parts]) for name in parts[0].overall},
        np.concatenate([part.per_class for part in parts]),
    )


def _halves(rng: np.random.Generator, count: int, num_images: int) -> Ints:
    """(R, I) 1 for the images that are drawn, 0 for the others."""
    weights: Ints = (rng.random((count, num_images)).argsort(axis=1) < num_images // 2).astype(np.int64)
    return weights


def metric_interval(name: str, value: float, halves: Floats, *, num_images: int, level: float = LEVEL) -> Interval:
    """The interval of a metric in [0, 1].

    Args:
        name: The metric's.
        value: On the whole split.
        halves: (R,) by `over_halves`.
        num_images: Of the split.
        level: How often it is to hold.
    """
    spread = _as_if_whole(value, halves, num_images)
    if not len(spread):
        return Interval(name, math.nan, math.nan, level)
    # Where the value stands among the halves tells by how much both are off, and in which direction.
    below = (np.sum(spread < value) + np.sum(spread == value) / 2) / len(spread)
    normal, least = NormalDist(), 1 / (2 * len(spread))
    shift = 2 * normal.inv_cdf(float(np.clip(below, least, 1 - least)))
    reach = _students_quantile(level, num_images - 1)
    tails = [normal.cdf(shift - reach), normal.cdf(shift + reach)]
    low, high = np.clip(np.quantile(spread, tails), 0, 1).tolist()
    return Interval(name, low, high, level)


def difference_interval(name: str, value: float, halves: Floats, *, num_images: int, level: float = LEVEL) -> Interval:
    """The interval of the difference of two models on the same images, in which their excesses cancel.

    The arguments are those of `metric_interval`; `halves` are differences on the same halves.
    """
    spread = _as_if_whole(value, halves, num_images)
    if not len(spread):
        return Interval(name, math.nan, math.nan, level)
    reach = _students_quantile(level, num_images - 1)
    low, high = np.quantile(spread, [NormalDist().cdf(-reach), NormalDist().cdf(reach)]).tolist()
    return Interval(name, low, high, level)


def share_interval(name: str, num_right: int, num_images: int, *, level: float = LEVEL) -> Interval:
    """Wilson's interval of a share of images, each of which is right or not; nan without images."""
    if not num_images:
        return Interval(name, math.nan, math.nan, level)
    z, share = NormalDist().inv_cdf((1 + level) / 2), num_right / num_images
    weight = z * z / num_images
    center = (share + weight / 2) / (1 + weight)
    half = math.sqrt(weight * share * (1 - share) + weight * weight / 4) / (1 + weight)
    return Interval(name, max(0.0, center - half), min(1.0, center + half), level)


def _as_if_whole(value: float, halves: Floats, num_images: int) -> Floats:
    """The known values of the halves, spread as those of whole splits would be (the same where I is even)."""
    num_drawn = num_images // 2
    known = halves[~np.isnan(halves)] if not math.isnan(value) else np.zeros(0)
    spread: Floats = value + (known - value) * math.sqrt(num_drawn / max(1, num_images - num_drawn))
    return spread


def _students_quantile(level: float, freedom: int) -> float:
    """How many standard errors to either side hold a mean so often, where its variance is estimated.

    Source: Abramowitz and Stegun 1964, "Handbook of Mathematical Functions", 26.7.5; for percentiles of
    resampled splits Hesterberg 2015, "What Teachers Should Know About the Bootstrap" (arXiv:1411.5279), where intervals
    are expanded so.
    """
    z = NormalDist().inv_cdf((1 + level) / 2)
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
