"""A split's detections, matched once and ranked, so that the AP of any resampled split costs a few sums.

COCO's AP asks of a detection only whether it is a hit, and which stand above it. A split in which each image stands so
many times as a weight says has the same hits in the same order; hits and detections are then counted by weight. What
comes out is COCO's AP of the copied images, to rounding.

Letters: D detections of the split, I images, C classes, T IoU thresholds, R resampled splits, K hits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from visiontrain.metrics.coco import MAX_DETECTIONS
from visiontrain.metrics.curves import RECALLS
from visiontrain.metrics.detections import Detections, Truth, best_of_classes
from visiontrain.metrics.matching import pairwise_iou
from visiontrain.metrics.pairing import match_image, share_inside

IOU_THRESHOLDS = np.linspace(0.5, 0.95, 10)
"""COCO's."""
_MOST_NUMBERS = 4_000_000  # resampled splits × detections that are held at once

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class RankedClass:
    """The detections of one class, highest score first; of equal scores those of the earlier image."""

    images: Ints
    """(D,) the image that each is in."""
    is_hit: Bools
    """(T, D)"""
    is_ignored: Bools
    """(T, D) neither a hit nor a false alarm."""
    num_truth: Ints
    """(I,) boxes to be found in each image."""

    def average_precision(self, weights: Ints) -> Floats:
        """(R, T) of splits in which the images stand `weights` (R, I) times; nan where nothing is to be found."""
        ap = np.full((len(weights), len(self.is_hit)), np.nan)
        num_truth = weights @ self.num_truth  # (R,)
        step = max(1, _MOST_NUMBERS // max(1, len(self.images)))
        for start in range(0, len(weights), step):
            part = slice(start, start + step)
            of_detections = weights[part][:, self.images]  # (R, D)
            num_above = of_detections.cumsum(axis=1)
            for place, (is_hit, is_ignored) in enumerate(zip(self.is_hit, self.is_ignored, strict=True)):
                num_counted = num_above[:, is_hit]  # (R, K)
                if is_ignored.any():
                    num_counted = num_counted - (of_detections * is_ignored).cumsum(axis=1)[:, is_hit]
                num_hits = of_detections[:, is_hit].cumsum(axis=1)
                ap[part, place] = interpolated_ap(num_hits, num_counted, num_truth[part])
        return np.where(num_truth[:, None] > 0, ap, np.nan)


@dataclass(frozen=True)
class Ranking:
    """All detections of a split. Made by `rank`."""

    classes: tuple[RankedClass, ...]

    def average_precision(self, weights: Ints) -> Floats:
        """(R, T, C) of splits in which the images stand `weights` (R, I) times; nan where nothing is to be found."""
        return np.stack([ranked.average_precision(weights) for ranked in self.classes], axis=2)


def rank(truth: Sequence[Truth], detections: Mapping[int, Detections], num_classes: int) -> Ranking:
    """Match the detections of every image at COCO's ten thresholds and rank them.

    Args:
        truth: Of every image of the split.
        detections: By the image's place in `truth`.
        num_classes: Of the names.
    """
    num_truth = np.zeros((len(truth), num_classes), np.int64)
    for place, image in enumerate(truth):
        num_truth[place] = np.bincount(image.counted.classes, minlength=num_classes)
    kept = {place: best_of_classes(detections[place], MAX_DETECTIONS[-1]) for place in sorted(detections)}
    matched = [_matched(found, truth[place]) for place, found in kept.items()]
    of_image = np.repeat(np.array(list(kept), np.int64), [len(found.scores) for found in kept.values()])
    scores = np.concatenate([np.zeros(0), *(found.scores for found in kept.values())])
    labels = np.concatenate([np.zeros(0, np.int64), *(found.classes for found in kept.values())])
    is_hit, is_ignored = np.concatenate([np.zeros((2, len(IOU_THRESHOLDS), 0), bool), *matched], axis=2)
    order = np.argsort(-scores, kind="stable")

    def ranked(label: int) -> RankedClass:
        members = order[labels[order] == label]
        return RankedClass(of_image[members], is_hit[:, members], is_ignored[:, members], num_truth[:, label])

    return Ranking(tuple(ranked(label) for label in range(num_classes)))


def interpolated_ap(num_hits: Ints, num_found: Ints, num_truth: Ints) -> Floats:
    """COCO's AP: the mean, over 101 points of recall, of the best precision at that recall or a higher one.

    Args:
        num_hits: (R, K) hits down to the k-th one, itself included.
        num_found: (R, K) detections down to it.
        num_truth: (R,) boxes to be found.

    Returns:
        (R,)
    """
    precision = num_hits / np.maximum(num_found, 1)
    best_from_here = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    recall = num_hits / np.maximum(num_truth, 1)[:, None]
    num_points = np.searchsorted(RECALLS, recall, side="right")  # of those that this recall reaches
    ap: Floats = (best_from_here * np.diff(num_points, prepend=0, axis=1)).sum(axis=1) / len(RECALLS)
    return ap


def means_of_known(values: Floats) -> Floats:
    """(R,) the mean of each row (R, C) over what is not nan; nan where nothing is."""
    is_known = ~np.isnan(values)
    sums, counts = np.where(is_known, values, 0.0).sum(axis=1), is_known.sum(axis=1)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def _matched(found: Detections, truth: Truth) -> Bools:
    """(2, T, D): whether each detection of an image is a hit, and whether it is ignored, at each threshold."""
    is_near = (pairwise_iou(found.boxes, truth.boxes) >= IOU_THRESHOLDS[0]).any(axis=1)
    is_near |= (share_inside(found.boxes, truth.boxes[truth.is_crowd]) >= IOU_THRESHOLDS[0]).any(axis=1)
    near = Detections(found.boxes[is_near], found.scores[is_near], found.classes[is_near])  # no other can hit
    matched = [match_image(near, truth, iou_threshold=float(threshold)) for threshold in IOU_THRESHOLDS]
    marks = np.zeros((2, len(IOU_THRESHOLDS), len(found.scores)), bool)
    marks[:, :, is_near] = [[each.truth >= 0 for each in matched], [each.is_ignored for each in matched]]
    return marks
