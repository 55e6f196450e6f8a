"""Who stands for what in one image: hits first, and what is left over is paired across classes.

Confusion, kinds of error and the outcomes of images are all counted from this one pairing, so that they agree with
precision, recall and F1. Letters: N detections, M boxes to be found, both of one image.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from visiontrain.metrics.detections import Detections, Truth
from visiontrain.metrics.matching import match_detections

MATCH_IOU = 0.5

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Matched:
    """What each detection of an image hits."""

    truth: Ints
    """(N,) place in `Truth.counted`; -1: nothing."""
    is_ignored: Bools
    """(N,) hits nothing that is to be found, but something that need not be: neither a hit nor a false alarm."""


@dataclass(frozen=True)
class Pairing:
    """An image's detections from a score on, and its boxes to be found, each of them in at most one pair."""

    found: Detections
    """Without those that are ignored."""
    truth: Truth
    hits: Ints
    """(N,) the box of its own class that each detection hits; -1: none."""
    wrong: Ints
    """(N,) the box of another class that is left to it; -1: none."""

    @property
    def is_hit(self) -> Bools:
        """(N,)"""
        return self.hits >= 0

    @property
    def is_found(self) -> Bools:
        """(M,) whether a detection of its class hits the box."""
        return _is_taken(self.hits, len(self.truth.classes))

    @property
    def is_taken_for_another(self) -> Bools:
        """(M,) whether a detection of another class is on the box, and none of its own."""
        return _is_taken(self.wrong, len(self.truth.classes))


def match_image(found: Detections, truth: Truth, *, iou_threshold: float = MATCH_IOU) -> Matched:
    """Match by COCO's rule: what is to be found is asked first, then what is ignored.

    A box that is ignored is hit once, by its overlap; a crowd region takes any number of detections, each by the part
    of it that lies inside.
    """
    counted = truth.counted
    matches = match_detections(found.boxes, found.classes, counted.boxes, counted.classes, iou_threshold=iou_threshold)
    is_ignored = np.zeros(len(matches), bool)
    if truth.is_ignored.any():
        once, crowd = truth.is_ignored & ~truth.is_crowd, truth.is_crowd
        left = np.flatnonzero(matches < 0)
        passed_over = match_detections(
            found.boxes[left],
            found.classes[left],
            truth.boxes[once],
            truth.classes[once],
            iou_threshold=iou_threshold,
        )
        is_inside = share_inside(found.boxes[left], truth.boxes[crowd]) >= iou_threshold
        is_inside &= found.classes[left][:, None] == truth.classes[crowd][None, :]
        is_ignored[left] = (passed_over >= 0) | is_inside.any(axis=1)
    return Matched(matches, is_ignored)


def pair(found: Detections, truth: Truth, *, threshold: float, iou_threshold: float = MATCH_IOU) -> Pairing:
    """Pair the detections that score `threshold` or more with the boxes to be found.

    Hits within each class are settled first. Of what is left over, each detection, highest score first, takes the box
    that it overlaps most; that is one of another class, as the box would else have been hit.
    """
    found = _kept(found, found.scores >= threshold)
    matched = match_image(found, truth, iou_threshold=iou_threshold)
    found, hits = _kept(found, ~matched.is_ignored), matched.truth[~matched.is_ignored]
    counted = truth.counted
    loose, missed = np.flatnonzero(hits < 0), np.flatnonzero(~_is_taken(hits, len(counted.classes)))
    crossed = match_detections(
        found.boxes[loose],
        np.zeros(len(loose), np.int64),
        counted.boxes[missed],
        np.zeros(len(missed), np.int64),
        iou_threshold=iou_threshold,
    )
    wrong = np.full(len(hits), -1, np.int64)
    wrong[loose[crossed >= 0]] = missed[crossed[crossed >= 0]]
    return Pairing(found, counted, hits, wrong)


def share_inside(boxes: Floats, regions: Floats) -> Floats:
    """(N, M) the part of each box that lies in each region; 0 for an empty box."""
    low = np.maximum(boxes[:, None, :2], regions[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], regions[None, :, 2:])
    inside = (high - low).clip(min=0).prod(axis=2)
    areas = np.broadcast_to((boxes[:, 2:] - boxes[:, :2]).prod(axis=1)[:, None], inside.shape)
    return np.divide(inside, areas, out=np.zeros_like(inside), where=areas > 0)


def _kept(found: Detections, is_kept: Bools) -> Detections:
    return Detections(found.boxes[is_kept], found.scores[is_kept], found.classes[is_kept])


def _is_taken(places: Ints, count: int) -> Bools:
    is_taken = np.zeros(count, bool)
    is_taken[places[places >= 0]] = True
    return is_taken
