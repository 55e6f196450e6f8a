"""From raw numbers to predictions: the detections and the class probabilities of an image. Mathematics only.

Nothing here looks at a clock: the same numbers give the same detections on a slow machine and on a fast one.

Letters: B images, A anchor points, C classes, K candidates of an image, N detections of an image.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from visiontrain.nms import nms, nms_by_class


def decode_detections(
    boxes_xyxy: Tensor,
    scores: Tensor,
    *,
    conf: float,
    iou: float,
    max_det: int,
    multi_label: bool,
    agnostic: bool = False,
    classes: Sequence[int] | None = None,
    max_candidates: int = 30_000,
) -> list[dict[str, Tensor]]:
    """Threshold the scores, suppress overlapping boxes and keep the best.

    Detections of equal score come in the order of their anchor points, then of their classes.

    Args:
        boxes_xyxy: (B, A, 4) float of any precision, xyxy, pixels of the network's input.
        scores: (B, A, C) float of any precision, in [0, 1].
        conf: A candidate's score lies above this.
        iou: Of two boxes that overlap by more than this, the one with the lower score goes.
        max_det: The most detections of an image.
        multi_label: Whether every (anchor point, class) is a candidate of its own; else an anchor point has only its
            best class.
        agnostic: Whether boxes of different classes suppress each other.
        classes: The only classes to keep, by index; an anchor point that has only its best class goes if that is
            none of them. None keeps all.
        max_candidates: The most candidates of an image that suppression looks at, the best of them.

    Returns:
        For each image `boxes` (N, 4) float32 xyxy pixels of the network's input, `scores` (N,) float32 falling,
        `classes` (N,) int64, and `num_dropped` () int64, the candidates beyond `max_candidates`.
    """
    assert boxes_xyxy.shape[:2] == scores.shape[:2], f"{tuple(boxes_xyxy.shape)} boxes, {tuple(scores.shape)} scores"
    boxes_xyxy, scores = boxes_xyxy.detach().float(), scores.detach().float()
    wanted = _mask_of(classes, scores.shape[2], scores.device)
    detections = []
    for image_boxes, image_scores in zip(boxes_xyxy, scores, strict=True):
        anchors, labels = _candidates(image_scores, conf, multi_label, wanted)  # (K,), (K,)
        confidence, order = image_scores[anchors, labels].sort(descending=True, stable=True)
        num_dropped = max(0, len(order) - max_candidates)
        confidence, order = confidence[:max_candidates], order[:max_candidates]
        candidate_boxes, labels = image_boxes[anchors[order]], labels[order]
        keep = _suppress(candidate_boxes, confidence, labels, iou, agnostic)[:max_det]  # (N,)
        detections.append(
            {
                "boxes": candidate_boxes[keep],
                "scores": confidence[keep],
                "classes": labels[keep],
                "num_dropped": torch.tensor(num_dropped),
            }
        )
    return detections


def _mask_of(classes: Sequence[int] | None, num_classes: int, device: torch.device) -> Tensor | None:
    if classes is None:
        return None
    mask = torch.zeros(num_classes, dtype=torch.bool, device=device)
    mask[torch.as_tensor(list(classes), dtype=torch.long, device=device)] = True
    return mask


def _candidates(scores: Tensor, conf: float, multi_label: bool, wanted: Tensor | None) -> tuple[Tensor, Tensor]:
    """Anchor points and classes, (K,) int64 each, of the (A, C) scores that count; anchor points rise."""
    if multi_label:
        above = scores > conf
        if wanted is not None:
            above &= wanted
        anchors, labels = above.nonzero(as_tuple=True)
        return anchors, labels
    best, label = scores.max(dim=1)
    above = best > conf
    if wanted is not None:
        above &= wanted[label]
    anchors = above.nonzero().squeeze(1)
    return anchors, label[anchors]


def _suppress(boxes: Tensor, scores: Tensor, labels: Tensor, iou: float, agnostic: bool) -> Tensor:
    """Places of the boxes that stay, rising; the candidates come in falling order of score."""
    if not len(boxes):
        return labels
    keep = nms(boxes, scores, iou) if agnostic else nms_by_class(boxes, scores, labels, iou)
    # Its order among equal scores is not defined; ours is that of the candidates.
    return keep.sort().values


def class_probabilities(logits: Tensor, *, multi_label: bool) -> Tensor:
    """The probabilities of the classes of each image.

    Args:
        logits: (B, C) float of any precision.
        multi_label: Whether an image may be of several classes, each of which then has a probability of its own; else
            they add up to 1.

    Returns:
        (B, C) float32.
    """
    logits = logits.float()
    return logits.sigmoid() if multi_label else logits.softmax(dim=1)
