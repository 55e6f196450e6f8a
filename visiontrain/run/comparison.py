"""What two models differ in on the same images, and whether chance alone would make them differ so much.

Letters: R resampled splits, I images, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visiontrain.loggers.lines import short_name
from visiontrain.loggers.tables import NOT_AVAILABLE, align, fixed
from visiontrain.metrics.bootstrap import FEWEST_IMAGES, Resampled, difference_interval, over_halves
from visiontrain.metrics.mcnemar import mcnemar_p
from visiontrain.protocols import Judged

_HEADER = ("", "a", "b", "b - a", "95 % interval")

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Difference:
    """One number of both models; nan where it cannot be measured."""

    name: str
    a: float
    b: float
    difference: float
    """b - a."""
    low: float
    high: float

    @property
    def is_shown(self) -> bool:
        """Whether chance alone hardly makes such a difference."""
        return self.low > 0 or self.high < 0

    def row(self) -> tuple[str, ...]:
        """Its cells of a table."""
        ends = NOT_AVAILABLE if math.isnan(self.low) else f"[{_signed(self.low)}, {_signed(self.high)}]"
        return short_name(self.name), fixed(self.a), fixed(self.b), _signed(self.difference), ends


@dataclass(frozen=True)
class WholeImages:
    """How many images a model gets wholly right: no error in them."""

    both: int
    a_alone: int
    b_alone: int
    neither: int
    p: float
    """How often chance alone would make `a_alone` and `b_alone` differ so much, by McNemar's exact test."""


@dataclass(frozen=True)
class Comparison:
    """Two models on one split."""

    a: str
    b: str
    split: str
    images: int
    metrics: tuple[Difference, ...]
    """By their CSV names; the first is the one that ranks models."""
    per_class: tuple[Difference, ...]
    """Of each class: AP, or the share of its images that was recognized."""
    whole_images: WholeImages

    @property
    def better(self) -> str | None:
        """`a` or `b` where it is better in the first metric by more than chance, else None."""
        first = self.metrics[0]
        return ("b" if first.difference > 0 else "a") if first.is_shown else None

    @property
    def verdict(self) -> str:
        """The answer, in a sentence."""
        first = self.metrics[0]
        name, images = short_name(first.name), "1 image" if self.images == 1 else f"{self.images} images"
        if self.better is not None:
            low, high = sorted((abs(first.low), abs(first.high)))
            return f"{self.better} is better by {abs(first.difference):.3f} [{low:.3f}, {high:.3f}] ({name})"
        if self.images < FEWEST_IMAGES:
            return f"no difference that {images} could show; that takes {FEWEST_IMAGES} at least"
        if math.isnan(first.low):
            return f"no difference can be measured: {name} is not available"
        return f"no difference that {images} could show ({name})"

    def document(self) -> dict[str, Any]:
        """The same as plain values."""
        return {**asdict(self), "better": self.better, "verdict": self.verdict}

    def lines(self) -> list[str]:
        """The same for people."""
        whole = self.whole_images
        return [
            f"a: {self.a}",
            f"b: {self.b}",
            align([_HEADER, *(one.row() for one in (*self.metrics, *self.per_class))]),
            f"images without any error: {whole.both} in both, {whole.a_alone} in a alone, {whole.b_alone} in b alone "
            f"(McNemar's exact p = {whole.p:.2g})",
            self.verdict,
        ]


def compare_metrics(
    a: Judged,
    b: Judged,
    *,
    called: tuple[str, str],
    split: str,
    ranking: str,
    classes: Mapping[str, tuple[int, int]],
) -> Comparison:
    """Compare the metrics of two models on the same images.

    Args:
        a: Of the first model.
        b: Of the second, on images in the same order.
        called: What the models are called.
        split: What was scored.
        ranking: The metric that decides.
        classes: The index of each class in a and in b.
    """
    is_right_a, is_right_b = (np.array([one.num_errors == 0 for one in found.per_image], bool) for found in (a, b))
    num_images = len(is_right_a)
    whole = np.ones((1, num_images), np.int64)
    of_a, of_b = a.resampled(whole), b.resampled(whole)

    def differences(weights: Ints) -> Resampled:
        first, second = a.resampled(weights), b.resampled(weights)
        places = np.array(list(classes.values()), np.int64).reshape(-1, 2)
        return Resampled(
            {name: second.overall[name] - first.overall[name] for name in first.overall},
            second.per_class[:, places[:, 1]] - first.per_class[:, places[:, 0]],
        )

    halves = over_halves(differences, num_images) if num_images >= FEWEST_IMAGES else differences(whole[:0])

    def difference(name: str, first: Floats, second: Floats, of_halves: Floats) -> Difference:
        gain = float(second[0] - first[0])
        interval = difference_interval(name, gain, of_halves, num_images=num_images)
        return Difference(name, float(first[0]), float(second[0]), gain, interval.low, interval.high)

    return Comparison(
        *called,
        split=split,
        images=num_images,
        metrics=tuple(
            difference(name, of_a.overall[name], of_b.overall[name], halves.overall[name])
            for name in sorted(of_a.overall, key=lambda name: name != ranking)
        ),
        per_class=tuple(
            difference(name, of_a.per_class[:, in_a], of_b.per_class[:, in_b], halves.per_class[:, place])
            for place, (name, (in_a, in_b)) in enumerate(classes.items())
        ),
        whole_images=_whole_images(is_right_a, is_right_b),
    )


def _whole_images(a: Sequence[bool] | NDArray[np.bool_], b: Sequence[bool] | NDArray[np.bool_]) -> WholeImages:
    a, b = np.asarray(a), np.asarray(b)
    a_alone, b_alone = int((a & ~b).sum()), int((b & ~a).sum())
    return WholeImages(int((a & b).sum()), a_alone, b_alone, int((~a & ~b).sum()), mcnemar_p(a_alone, b_alone))


def _signed(value: float) -> str:
    if math.isnan(value):
        return NOT_AVAILABLE
    return f"{value:+.3f}".replace("-0.000", "0.000").replace("+0.000", "0.000")
