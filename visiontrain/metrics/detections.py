"""Detections and ground truth of images, as plain arrays in pixels of the source image.

Letters: N detections or boxes, of one image or of many.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from visiontrain.sample import Record, Records

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Detections:
    """What was found in one image, highest score first."""

    boxes: Floats
    """(N, 4) xyxy, pixels of the source image."""
    scores: Floats
    """(N,)"""
    classes: Ints
    """(N,)"""


@dataclass(frozen=True)
class Truth:
    """What one image shows."""

    boxes: Floats
    """(N, 4) xyxy, pixels of the source image."""
    classes: Ints
    """(N,)"""
    is_crowd: Bools
    """(N,) a region of COCO's that holds any number of objects: it need not be found, and all detections in it are
    passed over."""
    is_ignored: Bools
    """(N,) a crowd region, or an object marked difficult: it need not be found, and what hits it is passed over."""
    areas: Floats
    """(N,) square pixels of the object: of its mask where the data set tells, else of its box."""

    @property
    def counted(self) -> Truth:
        """The same without what is ignored: what is to be found."""
        kept = ~self.is_ignored
        if kept.all():
            return self
        return Truth(self.boxes[kept], self.classes[kept], self.is_crowd[kept], self.is_ignored[kept], self.areas[kept])


def truth_of(records: Records) -> tuple[Truth, ...]:
    """The ground truth of every image, in float64: its labels in their order, then its crowd regions."""
    return tuple(_truth_of(record) for record in records)


def _truth_of(record: Record) -> Truth:
    labels, scoring = record.boxes, record.scoring
    num_labels, num_crowds = len(labels), 0 if scoring is None else len(scoring.crowd_classes)
    is_crowd = np.arange(num_labels + num_crowds) >= num_labels
    if scoring is None:
        fractions, classes, is_ignored, told = labels, record.classes, is_crowd, np.full(num_labels, np.nan)
    else:
        fractions = np.concatenate([labels, scoring.crowd_boxes])
        classes = np.concatenate([record.classes, scoring.crowd_classes])
        is_ignored = np.concatenate([scoring.is_difficult, np.ones(num_crowds, bool)])
        told = np.concatenate([scoring.areas, np.full(num_crowds, np.nan)])
    boxes = fractions.astype(np.float64) * np.array([record.width, record.height] * 2, np.float64)
    areas = np.where(np.isnan(told), (boxes[:, 2:] - boxes[:, :2]).prod(axis=1), told)
    return Truth(boxes, classes, is_crowd, is_ignored, areas)


def best_of_classes(found: Detections, most: int) -> Detections:
    """The detections of one image without those that stand behind `most` better ones of their own class."""
    if len(found.classes) <= most:
        return found
    order = np.argsort(found.classes, kind="stable")  # by class, the highest score first
    classes = found.classes[order]
    rank = np.arange(len(classes)) - np.searchsorted(classes, classes)  # within the class
    kept = np.sort(order[rank < most])
    return Detections(found.boxes[kept], found.scores[kept], found.classes[kept])
