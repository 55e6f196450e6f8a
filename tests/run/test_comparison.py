"""The difference of two models is that of their metrics on the same images, with the chance that it owes to them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest

from visiontrain.metrics.bootstrap import Resampled
from visiontrain.metrics.outcomes import ImageOutcome
from visiontrain.run.comparison import Comparison, compare_metrics


@dataclass(frozen=True)
class Shares:
    """Metrics of a model that is right on some images: all of class 0, and of class 1 the odd ones."""

    is_right: np.ndarray

    @property
    def images(self):
        return len(self.is_right)

    intervals = ()

    @property
    def per_image(self):
        return tuple(ImageOutcome(0, int(not right), 0) for right in self.is_right)

    def resampled(self, weights):
        is_odd = np.arange(self.images) % 2 == 1
        share = (weights @ self.is_right) / weights.sum(axis=1)
        of_odd = (weights @ (self.is_right & is_odd)) / (weights @ is_odd)
        return Resampled(
            {"metrics/other": share / 2, "metrics/accuracy_top1": share}, np.stack([share, of_odd], axis=1)
        )

    def details(self):
        return {}


def compared(a, b, **settings) -> Comparison:
    keys = {"called": ("a.pt", "b.pt"), "split": "val", "ranking": "metrics/accuracy_top1"}
    return compare_metrics(Shares(a), Shares(b), **{**keys, "classes": {"all": (0, 0), "odd": (1, 1)}, **settings})


def right(num_images, share, seed):
    return np.random.default_rng(seed).random(num_images) < share


def test_differences_are_those_of_the_metrics_and_the_ranking_one_comes_first():
    a, b = right(200, 0.5, 0), right(200, 0.7, 1)
    found = compared(a, b)
    first, second = found.metrics
    assert [one.name for one in found.metrics] == ["metrics/accuracy_top1", "metrics/other"]
    assert (first.a, first.b) == (a.mean(), b.mean())
    assert first.difference == pytest.approx(b.mean() - a.mean())
    assert first.low < first.difference < first.high
    assert second.high - second.low == pytest.approx((first.high - first.low) / 2)
    odd = found.per_class[1]
    assert (odd.name, odd.b) == ("odd", pytest.approx(b[1::2].mean()))


def test_the_interval_is_that_of_pairs_not_of_two_splits():
    a = right(400, 0.6, 0)
    b = a.copy()
    b[:8] = True  # the same but for a few images
    paired = compared(a, b).metrics[0]
    apart = compared(a, right(400, 0.6, 2)).metrics[0]
    assert paired.high - paired.low < (apart.high - apart.low) / 3


def test_exchanging_the_models_turns_everything_around():
    a, b = right(150, 0.5, 3), right(150, 0.75, 4)
    there, back = compared(a, b), compared(b, a)
    for one, other in zip((*there.metrics, *there.per_class), (*back.metrics, *back.per_class), strict=True):
        ends = (one.difference, one.low, one.high)
        assert ends == pytest.approx((-other.difference, -other.high, -other.low), abs=1e-12)
    assert (there.better, back.better) == ("b", "a")
    assert there.verdict.replace("b is", "a is") == back.verdict
    assert there.whole_images.p == back.whole_images.p


def test_the_verdict_says_how_much_better_or_that_nothing_can_be_told():
    better = compared(right(300, 0.5, 5), right(300, 0.9, 6))
    first = better.metrics[0]
    assert better.verdict == f"b is better by {first.difference:.3f} [{first.low:.3f}, {first.high:.3f}] (top1)"
    same = compared(right(74, 0.5, 7), right(74, 0.5, 7))
    assert (same.better, same.verdict) == (None, "no difference that 74 images could show (top1)")
    few = compared(right(9, 0.1, 0), right(9, 0.9, 0))
    assert few.better is None
    assert few.verdict == "no difference that 9 images could show; that takes 10 at least"
    assert math.isnan(few.metrics[0].low)


def test_the_interval_and_the_exact_test_agree_on_a_handful_of_images():
    for count, is_better in ((4, False), (7, True)):
        a, b = np.zeros(100, bool), np.zeros(100, bool)
        b[:count] = True
        found = compared(a, b)
        assert (found.better == "b") == is_better == (found.whole_images.p < 0.05)


def test_images_that_are_wholly_right_are_counted():
    a, b = np.array([True, True, False, False] * 5), np.array([True, False, True, False] * 5)
    b[0] = False
    whole = compared(a, b).whole_images
    assert (whole.both, whole.a_alone, whole.b_alone, whole.neither) == (4, 6, 5, 5)
    assert whole.p == 1


def test_a_class_may_have_another_index_in_the_other_model():
    a = right(60, 0.6, 8)
    found = compared(a, a, classes={"all": (0, 0), "odd": (1, 0)}).per_class[1]
    assert (found.a, found.b) == (pytest.approx(a[1::2].mean()), pytest.approx(a.mean()))
    assert found.low < found.difference < found.high


def test_the_document_and_the_lines_hold_the_same():
    found = compared(right(80, 0.5, 0), right(80, 0.55, 1))
    document, lines = found.document(), found.lines()
    assert document["verdict"] == lines[-1] == found.verdict
    assert [one["name"] for one in document["per_class"]] == ["all", "odd"]
    assert lines[:2] == ["a: a.pt", "b: b.pt"]
    header, top1 = lines[2].splitlines()[:2]
    assert header.split()[:5] == ["a", "b", "b", "-", "a"]
    assert top1.split()[:3] == ["top1", f"{found.metrics[0].a:.3f}", f"{found.metrics[0].b:.3f}"]


def test_what_cannot_be_measured_is_shown_as_such():
    num_images = 12

    class Nothing(Shares):
        def resampled(self, weights):
            nan = np.full(len(weights), math.nan)
            return Resampled({"metrics/accuracy_top1": nan}, np.stack([nan, nan], axis=1))

    nothing = Nothing(np.zeros(num_images, bool))
    found = compare_metrics(nothing, nothing, called=("a", "b"), split="val", ranking="", classes={"x": (0, 0)})
    assert found.verdict == "no difference can be measured: top1 is not available"
    assert found.lines()[2].splitlines()[1].split() == ["top1", "-", "-", "-", "-"]
