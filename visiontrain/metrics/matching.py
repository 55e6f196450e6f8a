"""Match detections to ground truth by COCO's greedy rule.

One matcher for everything that counts hits: precision, recall, F1, confusion. Letters: N detections, M boxes of the
ground truth, both of one image.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def match_detections(
    boxes: Floats, classes: Ints, truth_boxes: Floats, truth_classes: Ints, *, iou_threshold: float = 0.5
) -> Ints:
    """Give each detection the box of the ground truth that it hits.

    Detections are asked in the order given; each takes, of the boxes of its own class that are still free, the one
    it overlaps most, if the overlap reaches the threshold. Of equal overlaps the later box is taken.

    Source: Lin et al. 2014, "Microsoft COCO", with the order of ties of its reference implementation.

    Args:
        boxes: (N, 4) xyxy, pixels; highest score first.
        classes: (N,)
        truth_boxes: (M, 4) xyxy, pixels.
        truth_classes: (M,)
        iou_threshold: The least intersection over union of a hit.

    Returns:
        (N,) index into the ground truth, -1 for a detection that hits nothing.
    """
    matches = np.full(len(boxes), -1, np.int64)
    overlaps = pairwise_iou(boxes, truth_boxes)  # (N, M)
    is_candidate = (overlaps >= iou_threshold) & (classes[:, None] == truth_classes[None, :])
    detections, truths = np.nonzero(is_candidate)
    # By detection, then the largest overlap first, then the later box first.
    order = np.lexsort((-truths, -overlaps[detections, truths], detections))
    is_free = np.ones(len(truth_boxes), bool)
    for detection, truth in zip(detections[order].tolist(), truths[order].tolist(), strict=True):
        if matches[detection] < 0 and is_free[truth]:
            matches[detection] = truth
            is_free[truth] = False
    return matches


def pairwise_iou(a: Floats, b: Floats) -> Floats:
    """Intersection over union of every box in `a` with every box in `b`.

    Args:
        a: (N, 4) xyxy, any one unit.
        b: (M, 4) xyxy, the same unit.

    Returns:
        (N, M) in [0, 1]; 0 where both boxes are empty.
    """
    corner_low = np.maximum(a[:, None, :2], b[None, :, :2])  # (N, M, 2)
    corner_high = np.minimum(a[:, None, 2:], b[None, :, 2:])
    intersection = (corner_high - corner_low).clip(min=0).prod(axis=2)
    area_a = (a[:, 2:] - a[:, :2]).prod(axis=1)
    area_b = (b[:, 2:] - b[:, :2]).prod(axis=1)
    union = area_a[:, None] + area_b[None, :] - intersection
    return np.divide(intersection, union, out=np.zeros_like(intersection), where=union > 0)
