"""Precision, recall and F1 over the score threshold, and the thresholds at which F1 is best. All at IoU 0.5.

A detection on something that need not be found (a crowd region, a difficult object) is passed over: it is neither a hit
nor a false alarm.

Letters: C classes, T thresholds, K detections of one class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from visiontrain.metrics.detections import Detections, Truth
from visiontrain.metrics.pairing import match_image

NUM_THRESHOLDS = 201
RECALLS = np.linspace(0, 1, 101)
"""COCO's recall points."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Rates(NamedTuple):
    """At each of some thresholds; nan for a class without ground truth."""

    precision: Floats
    """(C, T); 0 where nothing reaches the threshold."""
    recall: Floats
    f1: Floats


@dataclass(frozen=True)
class Hits:
    """The scores of a split's detections, and of those that hit a box."""

    found: tuple[Floats, ...]
    """(K,) of each class, rising; without what is passed over."""
    hits: tuple[Floats, ...]
    """(K,) of each class, rising: of those detections that hit."""
    instances: Ints
    """(C,) boxes to be found."""

    def rates_at(self, thresholds: Floats) -> Rates:
        """Precision, recall and F1 of the detections that score each of the thresholds or more."""
        num_hits = np.stack([len(scores) - np.searchsorted(scores, thresholds) for scores in self.hits])  # (C, T)
        num_found = np.stack([len(scores) - np.searchsorted(scores, thresholds) for scores in self.found])
        instances = self.instances[:, None]
        has_truth = np.where(instances > 0, 1.0, np.nan)
        return Rates(
            precision=num_hits / np.maximum(num_found, 1) * has_truth,
            recall=num_hits / np.maximum(instances, 1) * has_truth,
            f1=2 * num_hits / np.maximum(num_found + instances, 1) * has_truth,
        )

    def best_threshold(self) -> float:
        """The score that maximizes the classes' mean F1, of several the highest; 0 where nothing hits.

        As the threshold falls, F1 rises only where a hit comes in, so only the scores of hits are tried.
        """
        tried = np.unique(np.concatenate(self.hits))[::-1]  # falling: of equal means the highest threshold is taken
        if not len(tried) or not self.instances.any():
            return 0.0
        return float(tried[np.nansum(self.rates_at(tried).f1, axis=0).argmax()])

    def best_thresholds(self) -> Floats:
        """(C,) the score that maximizes each class's own F1; 0 where nothing of it hits, nan without ground truth."""
        best = np.where(self.instances > 0, 0.0, np.nan)
        for index, hits in enumerate(self.hits):
            if len(hits):
                tried = np.unique(hits)[::-1]
                of_class = Hits((self.found[index],), (hits,), self.instances[index : index + 1])
                best[index] = tried[of_class.rates_at(tried).f1[0].argmax()]
        return best


@dataclass(frozen=True)
class Curves:
    """What is drawn of a split; nan for a class without ground truth."""

    recall: Floats
    """(101,) COCO's recall points."""
    precision: Floats
    """(C, 101) the best precision at that recall or a higher one, as COCO interpolates it; its mean is AP50."""
    thresholds: Floats
    """(T,) even, from 0 to 1."""
    precision_at: Floats
    """(C, T) of the detections that score the threshold or more; 0 where none does."""
    recall_at: Floats
    """(C, T)"""
    f1_at: Floats
    """(C, T)"""


def curves_of(hits: Hits, precision: Floats) -> Curves:
    """The curves of a split; `precision` (C, 101) is that of COCO's recall points."""
    thresholds = np.linspace(0, 1, NUM_THRESHOLDS)
    rates = hits.rates_at(thresholds)
    return Curves(RECALLS, precision, thresholds, rates.precision, rates.recall, rates.f1)


def find_hits(truth: Sequence[Truth], detections: Mapping[int, Detections], num_classes: int) -> Hits:
    """Match the detections of each image, by its place."""
    scores, classes, is_hit = [np.zeros(0)], [np.zeros(0, np.int64)], [np.zeros(0, bool)]
    for index, found in detections.items():
        matched = match_image(found, truth[index])
        counts = ~matched.is_ignored
        scores.append(found.scores[counts])
        classes.append(found.classes[counts])
        is_hit.append(matched.truth[counts] >= 0)
    all_scores, all_classes, all_hits = np.concatenate(scores), np.concatenate(classes), np.concatenate(is_hit)
    order = np.lexsort((all_scores, all_classes))  # by class, then by score
    ends = np.searchsorted(all_classes[order], np.arange(1, num_classes))
    of_class = list(zip(np.split(all_scores[order], ends), np.split(all_hits[order], ends), strict=True))
    counted = [np.zeros(0, np.int64), *(image.counted.classes for image in truth)]
    return Hits(
        found=tuple(class_scores for class_scores, _ in of_class),
        hits=tuple(class_scores[class_hits] for class_scores, class_hits in of_class),
        instances=np.bincount(np.concatenate(counted), minlength=num_classes),
    )
