"""Task-aligned assignment: which anchor points answer for which box, and how sure each should be.

Letters: B images, N boxes (padded), A anchor points, C classes, K candidates of a box.

Source: Feng et al. 2021, TOOD (arXiv:2108.07755), section 3.2.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from visiontrain.losses.geometry import pairwise_ciou

PADDING = -1


class Assignment(NamedTuple):
    """What every anchor point is to predict."""

    target_boxes: Tensor
    """(B, A, 4) xyxy, pixels; the box of `gt_index`, whatever it is where `foreground` is False."""
    target_scores: Tensor
    """(B, A, C) in [0, 1], at most one class of an anchor point above 0."""
    foreground: Tensor
    """(B, A) bool: whether the anchor point answers for a box."""
    gt_index: Tensor
    """(B, A) int64: the box it answers for; 0 where `foreground` is False."""


@torch.no_grad()
def assign(
    scores: Tensor,
    pred_boxes: Tensor,
    anchor_points: Tensor,
    strides: Tensor,
    gt_boxes: Tensor,
    gt_classes: Tensor,
    *,
    topk: int = 10,
    alpha: float = 0.5,
    beta: float = 6.0,
) -> Assignment:
    """Assign anchor points to boxes by how well their prediction fits in class and in place.

    A box's candidates are the anchor points inside it; it takes the `topk` of them that fit best, by `score^alpha ·
    CIoU^beta`. An anchor point that several boxes take stays with the one it overlaps most. All in one pass over
    padded tensors: no loop over images or boxes, nothing that waits for a GPU.

    Args:
        scores: (B, A, C) in [0, 1], float32 or float64.
        pred_boxes: (B, A, 4) xyxy, pixels, same type.
        anchor_points: (A, 2) x, y, pixels.
        strides: (A, 1) pixels.
        gt_boxes: (B, N, 4) xyxy, pixels.
        gt_classes: (B, N) int64, -1 where padded.
        topk: Most anchor points of a box.
        alpha: Weight of the class score.
        beta: Weight of the overlap.
    """
    if gt_boxes.shape[1] == 0:  # reductions over boxes need one: padding
        gt_boxes = gt_boxes.new_zeros(gt_boxes.shape[0], 1, 4)
        gt_classes = gt_classes.new_full((*gt_classes.shape[:1], 1), PADDING)
    gt_boxes = gt_boxes.to(pred_boxes.dtype)
    is_box = gt_classes != PADDING  # (B, N)
    classes = gt_classes.clamp(min=0)

    overlaps = pairwise_ciou(gt_boxes, pred_boxes).clamp(min=0)  # (B, N, A)
    class_scores = scores.transpose(1, 2).gather(1, classes[..., None].expand_as(overlaps))  # (B, N, A)
    metric = class_scores.pow(alpha) * overlaps.pow(beta)
    inside = is_inside(anchor_points, gt_boxes, strides.amin()) & is_box[..., None]

    taken = _best(metric, inside, topk)  # (B, N, A)
    # Of several boxes the one it overlaps most; the first of equals.
    gt_index = torch.where(taken, overlaps, -1.0).argmax(dim=1)  # (B, A)
    foreground = taken.any(dim=1)
    taken = taken & (torch.arange(taken.shape[1], device=taken.device)[:, None] == gt_index[:, None])

    target = _target_scores(metric, overlaps, taken).sum(dim=1)  # (B, A): at most one box is not 0
    target_classes = classes.gather(1, gt_index)
    target_scores = torch.zeros_like(scores).scatter_(2, target_classes[..., None], target[..., None])
    target_boxes = gt_boxes.gather(1, gt_index[..., None].expand(-1, -1, 4))
    return Assignment(target_boxes, target_scores, foreground, gt_index)


def is_inside(points: Tensor, boxes: Tensor, least_size: Tensor) -> Tensor:
    """Whether points lie in boxes.

    A side shorter than `least_size` counts as that long: with the finest stride every box in the image has a point.

    Args:
        points: (A, 2) x, y.
        boxes: (B, N, 4) xyxy.
        least_size: () float.

    Returns:
        (B, N, A) bool.
    """
    center = (boxes[..., :2] + boxes[..., 2:]) / 2
    half = torch.maximum(boxes[..., 2:] - boxes[..., :2], least_size) / 2  # (B, N, 2)
    x, y = points.unbind(dim=-1)
    inside_x = (x - center[..., :1]).abs() <= half[..., :1]
    inside_y = (y - center[..., 1:]).abs() <= half[..., 1:]
    return inside_x & inside_y


def _best(metric: Tensor, allowed: Tensor, topk: int) -> Tensor:
    """(B, N, A) bool: the up to `topk` anchor points of each box with the highest metric among those allowed."""
    ranked = torch.where(allowed, metric, -1.0)  # behind even a metric of 0
    best = ranked.topk(min(topk, ranked.shape[-1]), dim=-1).indices  # (B, N, K)
    return torch.zeros_like(allowed).scatter_(-1, best, True) & allowed


def _target_scores(metric: Tensor, overlaps: Tensor, taken: Tensor) -> Tensor:
    """(B, N, A): the metric, scaled for each box so that its best anchor point gets the box's best overlap."""
    metric = metric * taken
    best = metric.amax(dim=-1, keepdim=True)
    overlap = (overlaps * taken).amax(dim=-1, keepdim=True)
    # Not an epsilon: the sixth power of a small overlap is far below any that would be safe, and no less telling.
    return metric / torch.where(best > 0, best, 1.0) * overlap
