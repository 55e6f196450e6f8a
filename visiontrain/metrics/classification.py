"""Score a classifier: accuracy, precision, recall and F1 of each class, average precision, calibration, confusion.

An image of several classes is right at the top if its highest-scored class is one of them. Precision, recall and F1 are
those of the highest-scored class where classes exclude each other, and of every class scored 0.5 or more where an image
may be of several.

An image that was never added (it could not be read) was not recognized: it counts against accuracy, recall and average
precision, and stands in the last column of the confusion matrix; calibration does without it. An image without a label
counts where several classes are asked for, in their precision and average precision; else it is left out. A class
without images has no metrics (nan) and is left out of every mean; without any image all metrics are nan.

Letters: M images, C classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from visiontrain.metrics.bootstrap import Interval, Resampled, share_interval, tells_intervals
from visiontrain.metrics.outcomes import ImageOutcome
from visiontrain.sample import Batch, Records

if TYPE_CHECKING:
    from torch import Tensor

METRIC_COLUMNS = ("metrics/accuracy_top1", "metrics/accuracy_top5")
TOP = 5
THRESHOLD = 0.5
"""Probability from which a class counts as found where an image may be of several."""
CALIBRATION_BINS = 15
"""Source: Guo et al. 2017, On Calibration of Modern Neural Networks (arXiv:1706.04599), table 1."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class ClassMetrics:
    """One class; metrics are nan where no image is of it."""

    name: str
    images: int
    """Images of the class."""
    precision: float
    """0 where nothing was taken for the class."""
    recall: float
    f1: float
    ap: float
    """Average precision: the area under precision over recall as the threshold falls."""


@dataclass(frozen=True)
class ScoredImages:
    """All images of a split, in the order of the records."""

    labels: Bools
    """(M, C) whether the image is of the class."""
    probs: NDArray[np.float32]
    """(M, C)"""
    is_added: Bools
    """(M,) whether the image was recognized at all."""
    is_at_top: Bools
    """(M, up to 5) whether a class of the image is scored highest, second, and so on."""
    found: Bools
    """(M, C) what the image was taken for; nothing where it was left out for want of a label."""

    @property
    def is_counted(self) -> Bools:
        """(M,) whether the image has a label, so that it can be right."""
        return np.asarray(self.labels.any(axis=1))

    def is_in_top(self, most: int) -> Bools:
        """(M,) whether a class of the image is one of the `most` scored highest."""
        return np.asarray(self.is_at_top[:, :most].any(axis=1))


@dataclass(frozen=True, eq=False)
class ClassificationMetrics(Mapping[str, float]):
    """What a split's predictions are worth; means are over the classes that have images.

    As a mapping: the metrics by their CSV names.
    """

    top1: float
    top5: float
    """Of fewer than five classes: of all of them."""
    balanced_accuracy: float
    """Mean recall."""
    precision: float
    f1: float
    map: float
    """Mean average precision."""
    ece: float
    """Expected calibration error: how far the highest probability is from the share of images it is right on."""
    names: tuple[str, ...]
    per_class: tuple[ClassMetrics, ...]
    confusion: Ints | None
    """(C, C + 1) images by class and by what they were taken for, the last column being those that were never added;
    None where an image may be of several classes."""
    images: int
    scored: ScoredImages

    def __getitem__(self, key: str) -> float:
        return dict(zip(METRIC_COLUMNS, (self.top1, self.top5), strict=True))[key]

    def __iter__(self) -> Iterator[str]:
        return iter(METRIC_COLUMNS)

    def __len__(self) -> int:
        return len(METRIC_COLUMNS)

    @cached_property
    def per_image(self) -> tuple[ImageOutcome, ...]:
        """The errors of each image of the split, in the order of the records."""
        scored = self.scored
        num_missed = (scored.labels & ~scored.found).sum(axis=1)
        num_extra = (scored.found & ~scored.labels).sum(axis=1)
        num_wrong = np.minimum(num_missed, num_extra)
        rows = zip((num_missed - num_wrong).tolist(), (num_extra - num_wrong).tolist(), num_wrong.tolist(), strict=True)
        return tuple(ImageOutcome(*row) for row in rows)

    @cached_property
    def intervals(self) -> tuple[Interval, ...]:
        """Of top-1 and top-5; none of very few images, and of very many."""
        is_counted = self.scored.is_counted
        num_images = int(is_counted.sum())
        if not tells_intervals(num_images):
            return ()
        num_right = (int((self.scored.is_in_top(most) & is_counted).sum()) for most in (1, TOP))
        return tuple(
            share_interval(name, right, num_images) for name, right in zip(METRIC_COLUMNS, num_right, strict=True)
        )

    def resampled(self, weights: Ints) -> Resampled:
        """Top-1 and top-5 where each image stands so many times; recall of each class.

        Args:
            weights: (R, M) in the order of the records.
        """
        scored = self.scored
        tops = {name: scored.is_in_top(most) for name, most in zip(METRIC_COLUMNS, (1, TOP), strict=True)}
        overall = {
            name: _shares(_sums(weights, is_right & scored.is_counted), _sums(weights, scored.is_counted))
            for name, is_right in tops.items()
        }
        recognized = _sums(weights, scored.labels & scored.found)
        return Resampled(overall, _shares(recognized, _sums(weights, scored.labels)))

    def details(self) -> dict[str, Any]:
        """What there is to say beyond the mapping, as plain values."""
        means = {name: getattr(self, name) for name in ("balanced_accuracy", "precision", "f1", "map", "ece")}
        return {
            "images": self.images,
            "intervals": {one.name: [one.low, one.high] for one in self.intervals},
            **means,
            "per_class": [asdict(row) for row in self.per_class],
            "confusion": None if self.confusion is None else self.confusion.tolist(),
        }


class ClassificationEvaluator:
    """Collects the probabilities of a split. May be used again: what is added after `compute` begins a new round."""

    def __init__(self, records: Records, names: tuple[str, ...], *, multi_label: bool = False) -> None:
        """
        Args:
            records: The split.
            names: Class names.
            multi_label: Whether an image may be of several classes.
        """
        self._names = names
        self._multi_label = multi_label
        self._labels = np.zeros((len(records), len(names)), bool)
        for index, record in enumerate(records):
            self._labels[index, record.classes] = True
        self._probs = np.zeros((len(records), len(names)), np.float32)
        self._tops = np.zeros((len(records), min(TOP, len(names))), np.int64)
        """The classes of the highest probabilities, the highest first; of equal ones the first class."""
        self._is_added = np.zeros(len(records), bool)
        self._is_computed = False

    def add(self, predictions: list[dict[str, Tensor]], batch: Batch) -> None:
        """Take the decoded predictions of a batch.

        Args:
            predictions: One entry for each image: `probs` (C,) float.
            batch: What was predicted on. The predictions of an unreadable image, and such as are no finite numbers, are
                dropped: the image was not recognized.
        """
        self._begin_round()
        unreadable = set(batch.unreadable)
        for index, path, prediction in zip(batch.indices, batch.paths, predictions, strict=True):
            probs = prediction["probs"].cpu().float().numpy()
            if path not in unreadable and np.isfinite(probs).all():
                self._probs[index] = probs
                self._tops[index] = np.argsort(-probs, kind="stable")[:TOP]
                self._is_added[index] = True

    def state(self) -> dict[str, NDArray[Any]]:
        """What was added in this round, which ends, for the evaluator of another process to `merge`."""
        self._begin_round()
        self._is_computed = True
        (images,) = np.nonzero(self._is_added)
        return {"images": images, "probs": self._probs[images], "tops": self._tops[images]}

    def merge(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take what another evaluator of the same records has; an image that both have is taken from there."""
        self._begin_round()
        images = state["images"]
        self._probs[images], self._tops[images], self._is_added[images] = state["probs"], state["tops"], True

    def compute(self) -> ClassificationMetrics:
        """The metrics of everything added since the last call."""
        self._is_computed = True
        is_kept = np.ones(len(self._labels), bool) if self._multi_label else self._labels.any(axis=1)
        labels, probs = self._labels[is_kept], self._probs[is_kept]
        tops, is_added = self._tops[is_kept], self._is_added[is_kept]
        has_label = labels.any(axis=1)
        hits = np.take_along_axis(labels, tops, axis=1) & is_added[:, None]  # (M, up to 5), highest probability first
        found = probs >= THRESHOLD if self._multi_label else tops[:, :1] == np.arange(len(self._names))
        precision, recall, f1 = _rates(labels, found & is_added[:, None])
        ap = _average_precisions(labels, probs, is_added)
        columns = (labels.sum(axis=0), precision, recall, f1, ap)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return ClassificationMetrics(
            top1=_mean(hits[has_label, 0]),
            top5=_mean(np.asarray(hits[has_label].any(axis=1))),
            balanced_accuracy=_mean(recall),
            precision=_mean(precision),
            f1=_mean(f1),
            map=_mean(ap),
            ece=expected_calibration_error(
                probs.max(axis=1)[is_added & has_label].astype(np.float64), hits[is_added & has_label, 0]
            ),
            names=self._names,
            per_class=tuple(ClassMetrics(name, *row) for name, row in zip(self._names, rows, strict=True)),
            confusion=None if self._multi_label else _confusion(labels, tops[:, 0], is_added),
            images=len(labels),
            scored=self._scored(),
        )

    def _begin_round(self) -> None:
        if self._is_computed:
            self._is_added[:], self._is_computed = False, False

    def _scored(self) -> ScoredImages:
        is_top = self._tops[:, :1] == np.arange(len(self._names))
        found = self._probs >= THRESHOLD if self._multi_label else is_top & self._labels.any(axis=1, keepdims=True)
        return ScoredImages(
            labels=self._labels,
            probs=self._probs.copy(),
            is_added=self._is_added.copy(),
            is_at_top=np.take_along_axis(self._labels, self._tops, axis=1) & self._is_added[:, None],
            found=found & self._is_added[:, None],
        )


def average_precision(is_positive: Bools, scores: NDArray[np.floating]) -> float:
    """Σ precision · rise of recall, over the thresholds at which a score lies; equal scores are passed at once.

    Args:
        is_positive: (M,)
        scores: (M,)

    Returns:
        In [0, 1]; nan where nothing is positive.
    """
    num_positive = int(is_positive.sum())
    if not num_positive:
        return float("nan")
    order = np.argsort(-scores, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(scores[order])), len(scores) - 1)  # the last place of each score
    hits = np.cumsum(is_positive[order])[ends]
    precision = hits / (ends + 1)
    return float((precision * np.diff(hits, prepend=0)).sum() / num_positive)


def expected_calibration_error(confidences: Floats, is_right: Bools, num_bins: int = CALIBRATION_BINS) -> float:
    """The gap between mean confidence and accuracy in bins of equal width, weighted by the images in them.

    Args:
        confidences: (M,) in [0, 1].
        is_right: (M,)
        num_bins: Bins, each open below and closed above.

    Returns:
        In [0, 1]; nan without images.

    Source: Guo et al. 2017 (arXiv:1706.04599), equations 2 and 3.
    """
    if not len(confidences):
        return float("nan")
    bins = reliability(confidences, is_right, num_bins)
    gaps = np.where(bins.counts > 0, bins.counts * (bins.confidence - bins.accuracy), 0.0)  # |B| · (conf - acc) of each
    return float(np.abs(gaps).sum() / len(confidences))


@dataclass(frozen=True)
class Reliability:
    """Predictions by the probability that they claim, in K bins of equal width."""

    confidence: Floats
    """(K,) the mean probability; nan in an empty bin."""
    accuracy: Floats
    """(K,) the share that is right; nan in an empty bin."""
    counts: Ints
    """(K,)"""


def reliability(confidences: Floats, is_right: Bools, num_bins: int = CALIBRATION_BINS) -> Reliability:
    """Count how often predictions are right that claim so much; arguments as for the calibration error."""
    bins = np.clip(np.ceil(confidences * num_bins).astype(np.int64) - 1, 0, num_bins - 1)
    counts = np.bincount(bins, minlength=num_bins)
    sums = (np.bincount(bins, weights=weights, minlength=num_bins) for weights in (confidences, is_right))
    confidence, accuracy = (_shares(one.astype(np.float64), counts.astype(np.float64)) for one in sums)
    return Reliability(confidence, accuracy, counts)


def _rates(labels: Bools, found: Bools) -> tuple[Floats, Floats, Floats]:
    """Precision, recall and F1 of each class, (C,) each; nan where no image is of it."""
    num_hits, num_found, num_true = (labels & found).sum(axis=0), found.sum(axis=0), labels.sum(axis=0)
    has_images = np.where(num_true > 0, 1.0, np.nan)
    precision = num_hits / np.maximum(num_found, 1) * has_images
    recall = num_hits / np.maximum(num_true, 1) * has_images
    f1 = 2 * num_hits / np.maximum(num_found + num_true, 1) * has_images
    return precision, recall, f1


def _average_precisions(labels: Bools, probs: NDArray[np.floating], is_added: Bools) -> Floats:
    """(C,) of each class; images that were never added stand behind all others, where nothing is hit any more."""
    ap = np.array([average_precision(labels[is_added, c], probs[is_added, c]) for c in range(labels.shape[1])])
    num_true, num_added = labels.sum(axis=0), labels[is_added].sum(axis=0)
    ap = np.where(num_added > 0, ap, 0.0) * num_added / np.maximum(num_true, 1)
    return np.where(num_true > 0, ap, np.nan)


def _confusion(labels: Bools, taken_for: Ints, is_added: Bools) -> Ints:
    num_classes = labels.shape[1]
    confusion = np.zeros((num_classes, num_classes + 1), np.int64)
    np.add.at(confusion, (labels.argmax(axis=1), np.where(is_added, taken_for, num_classes)), 1)
    return confusion


def _sums(weights: Ints, marks: Bools) -> Floats:
    """Weights of the marked images; in floating point, in which large products are fast and still exact."""
    return np.asarray(weights.astype(np.float64) @ marks.astype(np.float64))


def _shares(parts: Floats, wholes: Floats) -> Floats:
    """nan where the whole is nothing."""
    return np.where(wholes > 0, parts / np.maximum(wholes, 1), np.nan)


def _mean(values: NDArray[np.floating] | Bools) -> float:
    """Mean of what is not nan; nan where nothing is."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else float("nan")
