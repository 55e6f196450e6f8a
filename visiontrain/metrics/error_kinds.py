"""Why a detector loses: its errors by kind, and what AP50 would gain if there were none of one kind.

A false alarm is of the kind that the box it overlaps most tells (of equal ones, one of its own class):

| overlap | own class | another class |
| --- | --- | --- |
| 0.5 or more | duplicate: the box was hit by a better one | class |
| 0.1 to 0.5 | location | both |
| below 0.1 | background | background |

A box is missed if nothing hits it, nor is on it with the wrong class or place. Errors are counted at the threshold of
the table; gains are of the whole ranking, as AP is. To mend class and place makes the best such detection of a box that
is not hit a hit; all other false alarms are mended by taking them away, and missed boxes by not asking for them.

Source: Bolya et al. 2020, "TIDE: A General Toolbox for Identifying Object Detection Errors" (arXiv:2008.08115),
sections 2.2 and 2.3. There the kinds are asked one after the other; here the most overlapped box decides.

Letters: N detections, M boxes to be found, C classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visiontrain.metrics.coco import MAX_DETECTIONS, mean_of_known
from visiontrain.metrics.detections import Detections, Truth, best_of_classes
from visiontrain.metrics.matching import pairwise_iou
from visiontrain.metrics.pairing import MATCH_IOU, match_image
from visiontrain.metrics.ranking import interpolated_ap

BACKGROUND_IOU = 0.1
"""Below it a detection is on nothing."""
_HIT, _CLASS, _LOCATION, _BOTH, _DUPLICATE, _BACKGROUND, _MISSED = range(7)
_SAYS: Mapping[int, tuple[str, str]] = {
    _CLASS: ("class", "on an object, taken for another class"),
    _LOCATION: ("location", "of the right class, beside the object"),
    _BOTH: ("both", "of another class, and beside the object"),
    _DUPLICATE: ("duplicate", "on an object that was found already"),
    _BACKGROUND: ("background", "on nothing that is labelled"),
    _MISSED: ("missed", "objects that nothing was found for"),
}

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class ErrorKind:
    """One kind of error."""

    kind: str
    says: str
    """What it means, in a few words."""
    per_class: tuple[int, ...]
    """Of the detection's class; of the box's for those missed."""
    gain: float
    """What AP50 would gain; nan without ground truth."""

    @property
    def count(self) -> int:
        """Of all classes."""
        return sum(self.per_class)


@dataclass(frozen=True)
class ErrorKinds:
    """All errors of a split."""

    kinds: tuple[ErrorKind, ...]
    """class, location, both, duplicate, background, missed."""
    threshold: float
    """The score from which a detection was counted; gains are of all of them."""

    def document(self) -> list[dict[str, Any]]:
        """The kinds with their counts and gains, as plain values."""
        return [
            {"kind": one.kind, "says": one.says, "count": one.count, "per_class": list(one.per_class), "gain": one.gain}
            for one in self.kinds
        ]


@dataclass(frozen=True)
class _Errors:
    """The detections of many images with their kinds, and the boxes that they were asked to find."""

    scores: Floats
    classes: Ints
    """(N,)"""
    kinds: Ints
    """(N,)"""
    targets: Ints
    """(N,) the box that each overlaps most; -1: none."""
    truth_classes: Ints
    """(M,)"""
    is_hit: Bools
    """(M,)"""

    @property
    def is_missed(self) -> Bools:
        """(M,)"""
        is_near = np.zeros(len(self.is_hit), bool)
        is_near[self.targets[np.isin(self.kinds, (_CLASS, _LOCATION))]] = True
        return ~self.is_hit & ~is_near

    def mended(self, kind: int) -> _Errors:
        """The same without the errors of a kind."""
        if kind == _MISSED:
            is_left = ~self.is_missed
            return replace(self, truth_classes=self.truth_classes[is_left], is_hit=self.is_hit[is_left])
        is_kind, kinds, classes = self.kinds == kind, self.kinds.copy(), self.classes.copy()
        is_kept = ~is_kind
        if kind in (_CLASS, _LOCATION):
            order = np.argsort(-self.scores, kind="stable")
            members = order[is_kind[order]]
            candidates = members[~self.is_hit[self.targets[members]]]
            best = candidates[np.unique(self.targets[candidates], return_index=True)[1]]  # first: the highest score
            kinds[best], classes[best], is_kept[best] = _HIT, self.truth_classes[self.targets[best]], True
        return replace(
            self,
            scores=self.scores[is_kept],
            classes=classes[is_kept],
            kinds=kinds[is_kept],
            targets=self.targets[is_kept],
        )

    def ap50(self, num_classes: int) -> Floats:
        """(C,) nan where nothing is to be found."""
        ap = np.full(num_classes, np.nan)
        order = np.argsort(-self.scores, kind="stable")
        for label, count in enumerate(np.bincount(self.truth_classes, minlength=num_classes)):
            if count:
                is_hit = self.kinds[order[self.classes[order] == label]] == _HIT
                num_hits, num_found = is_hit.cumsum()[is_hit], np.flatnonzero(is_hit) + 1
                ap[label] = interpolated_ap(num_hits[None], num_found[None], np.array([count]))[0]
        return ap


def error_kinds_of(
    truth: Sequence[Truth], detections: Mapping[int, Detections], *, threshold: float, num_classes: int
) -> ErrorKinds:
    """Sort the errors of a split by kind.

    Args:
        truth: Of every image.
        detections: By the image's place in `truth`.
        threshold: The score from which a detection is counted.
        num_classes: Of the names.
    """
    visible = {place: _from_score(found, threshold) for place, found in detections.items()}
    counted = _errors_of(truth, visible)
    ranked = _errors_of(
        truth, {place: best_of_classes(found, MAX_DETECTIONS[-1]) for place, found in detections.items()}
    )
    ap50 = ranked.ap50(num_classes)
    kinds = []
    for kind, (name, says) in _SAYS.items():
        members = (
            counted.truth_classes[counted.is_missed] if kind == _MISSED else counted.classes[counted.kinds == kind]
        )
        mended = ranked.mended(kind).ap50(num_classes)
        mended = np.where(np.isnan(mended) & ~np.isnan(ap50), 1.0, mended)  # all that was asked for was missed
        gain = mean_of_known(mended) - mean_of_known(ap50)
        kinds.append(ErrorKind(name, says, tuple(np.bincount(members, minlength=num_classes).tolist()), gain))
    return ErrorKinds(tuple(kinds), threshold)


def _from_score(found: Detections, threshold: float) -> Detections:
    is_kept = found.scores >= threshold
    return Detections(found.boxes[is_kept], found.scores[is_kept], found.classes[is_kept])


def _errors_of(truth: Sequence[Truth], detections: Mapping[int, Detections]) -> _Errors:
    nothing = Detections(np.zeros((0, 4)), np.zeros(0), np.zeros(0, np.int64))
    images = list(_each_image((image, detections.get(place, nothing)) for place, image in enumerate(truth)))
    empty = _Errors(*(np.zeros(0, dtype) for dtype in (float, np.int64, np.int64, np.int64, np.int64, bool)))
    parts = [empty, *images]
    return _Errors(
        scores=np.concatenate([part.scores for part in parts]),
        classes=np.concatenate([part.classes for part in parts]),
        kinds=np.concatenate([part.kinds for part in parts]),
        targets=np.concatenate([part.targets for part in parts]),
        truth_classes=np.concatenate([part.truth_classes for part in parts]),
        is_hit=np.concatenate([part.is_hit for part in parts]),
    )


def _each_image(images: Iterator[tuple[Truth, Detections]]) -> Iterator[_Errors]:
    """The errors of each image; boxes are numbered through all of them."""
    num_boxes = 0
    for truth, found in images:
        matched, boxes = match_image(found, truth), truth.counted
        is_counted = ~matched.is_ignored
        classes, hits = found.classes[is_counted], matched.truth[is_counted]
        overlap, target = _most_overlapped(found.boxes[is_counted], classes, boxes)
        is_own = classes == np.append(boxes.classes, -1)[target]
        kinds = np.select(
            [hits >= 0, overlap < BACKGROUND_IOU, overlap >= MATCH_IOU],
            [_HIT, _BACKGROUND, np.where(is_own, _DUPLICATE, _CLASS)],
            np.where(is_own, _LOCATION, _BOTH),
        )
        is_hit = np.zeros(len(boxes.classes), bool)
        is_hit[hits[hits >= 0]] = True
        targets = np.where(target >= 0, target + num_boxes, -1)
        yield _Errors(found.scores[is_counted], classes, kinds, targets, boxes.classes, is_hit)
        num_boxes += len(boxes.classes)


def _most_overlapped(boxes: Floats, classes: Ints, truth: Truth) -> tuple[Floats, Ints]:
    """(N,) the largest overlap of each detection with a box, and which that is; 0 and -1 without any."""
    if not len(truth.classes):
        return np.zeros(len(boxes)), np.full(len(boxes), -1, np.int64)
    overlaps = pairwise_iou(boxes, truth.boxes)  # (N, M)
    is_own = classes[:, None] == truth.classes[None, :]
    largest = overlaps.max(axis=1)
    is_largest = overlaps == largest[:, None]
    target = np.where(
        (is_largest & is_own).any(axis=1), (is_largest & is_own).argmax(axis=1), is_largest.argmax(axis=1)
    )
    return largest, target
