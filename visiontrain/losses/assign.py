"""Task-aligned assignment: which anchor points answer for which box, and how sure each should be.

Letters: B images, N boxes (padded), A anchor points, C classes, K candidates of a box.

Source: Feng et al. 2021, TOOD (arXiv:2108.07755), section 3.2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from visiontrain.losses.rating import Boxes, Points, Rating, rate_all, rate_inside, with_places

PADDING = -1
MOST_PAIRS = 1 << 22
"""Of a box and an anchor point at once: what memory bears."""


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
    CIoU^beta`. An anchor point that several boxes take stays with the one it overlaps most. No loop over what an image
    holds, and nothing that waits for a GPU: only the search for the best looks at boxes with all anchor points, or on a
    processor with those inside, in pieces; all that follows is about the `topk` of each box.

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
    if not len(scores):  # a process of several may have no image of a micro-batch
        nothing = scores.new_zeros(scores.shape[:2], dtype=torch.int64)
        return Assignment(torch.zeros_like(pred_boxes), torch.zeros_like(scores), nothing.bool(), nothing)
    if gt_boxes.shape[1] == 0:  # reductions over boxes need one: padding
        gt_boxes = gt_boxes.new_zeros(gt_boxes.shape[0], 1, 4)
        gt_classes = gt_classes.new_full((*gt_classes.shape[:1], 1), PADDING)
    gt_boxes = gt_boxes.to(pred_boxes.dtype)
    classes = gt_classes.clamp(min=0)
    by_class = scores.transpose(1, 2).flatten(0, 1).contiguous()  # (B · C, A)
    rows = torch.arange(len(scores), device=scores.device)[:, None] * scores.shape[2] + classes  # (B, N)

    points = Points(anchor_points, strides.amin())
    if answers_at_once(anchor_points.device):
        points, rate = with_places(points), rate_inside
    else:
        rate = rate_all

    def best_of(images: slice, boxes: slice) -> Candidates:
        own = Boxes(gt_boxes[images, boxes], gt_classes[images, boxes] != PADDING, rows[images, boxes])
        return _best(rate(own, points, pred_boxes[images], by_class, alpha=alpha, beta=beta), topk)

    candidates = _in_pieces(best_of, len(gt_boxes), gt_boxes.shape[1], len(anchor_points))
    owner, metric, overlaps = _settled(candidates, len(anchor_points))  # (B, A), (B, N, K) twice
    foreground = owner < gt_boxes.shape[1]
    gt_index = torch.where(foreground, owner, 0)

    # At most one box of an anchor point has a score there that is not 0.
    target = scores.new_zeros(owner.shape).scatter_reduce_(
        1, candidates.points.flatten(1), _target_scores(metric, overlaps).flatten(1), "amax"
    )
    target_classes = classes.gather(1, gt_index)
    target_scores = torch.zeros_like(scores).scatter_(2, target_classes[..., None], target[..., None])
    target_boxes = gt_boxes.gather(1, gt_index[..., None].expand(-1, -1, 4))
    return Assignment(target_boxes, target_scores, foreground, gt_index)


class Candidates(NamedTuple):
    """The best anchor points of every box, (B, N, K) each."""

    metric: Tensor
    """Below 0 where the box has not so many."""
    points: Tensor
    """int64."""
    overlaps: Tensor
    """CIoU of the prediction with the box, not below 0."""


def answers_at_once(device: torch.device) -> bool:
    """Whether it costs nothing to ask how many numbers are above another: a GPU would have to be waited for."""
    return device.type == "cpu"


def _best(rating: Rating, topk: int) -> Candidates:
    """The up to `topk` anchor points of each box with the highest metric."""
    values, index = rating.metric.topk(min(topk, rating.metric.shape[-1]), dim=-1)
    return Candidates(values, index, rating.overlaps.gather(-1, index))


def _in_pieces(best_of: Callable[[slice, slice], Candidates], images: int, boxes: int, points: int) -> Candidates:
    """What `best_of` gives for slices of images and boxes, joined; a piece has few enough pairs, or one box."""
    height = max(1, MOST_PAIRS // (boxes * points))
    width = max(1, MOST_PAIRS // points) if height == 1 else boxes
    rows = [
        [best_of(slice(top, top + height), slice(left, left + width)) for left in range(0, boxes, width)]
        for top in range(0, images, height)
    ]
    whole = [Candidates(*(torch.cat(parts, dim=1) for parts in zip(*row, strict=True))) for row in rows]
    return Candidates(*(torch.cat(parts, dim=0) for parts in zip(*whole, strict=True)))


def _settled(candidates: Candidates, num_points: int) -> tuple[Tensor, Tensor, Tensor]:
    """Give every anchor point to one box at most: to the one it overlaps most, the first of equals.

    Returns:
        (B, A) int64 the box of an anchor point, N where it has none; metric and overlaps (B, N, K) of the candidates
        that stay with their box, 0 for the others.
    """
    images, boxes, _ = candidates.points.shape
    index = candidates.points.flatten(1)  # (B, N · K)
    overlaps = torch.where(candidates.metric >= 0, candidates.overlaps, -1.0).flatten(1)
    most = overlaps.new_full((images, num_points), -1.0).scatter_reduce_(1, index, overlaps, "amax")
    is_most = (overlaps >= 0) & (overlaps == most.gather(1, index))
    numbers = torch.arange(boxes, device=index.device)[:, None].expand_as(candidates.points[0]).flatten()  # (N · K)
    claims = torch.where(is_most, numbers, boxes)
    owner = claims.new_full((images, num_points), boxes).scatter_reduce_(1, index, claims, "amin")
    stays = (is_most & (owner.gather(1, index) == numbers)).view_as(candidates.points)
    return owner, candidates.metric * stays, candidates.overlaps * stays


def _target_scores(metric: Tensor, overlaps: Tensor) -> Tensor:
    """(B, N, K): the metric, scaled for each box so that its best anchor point gets the box's best overlap."""
    best = metric.amax(dim=-1, keepdim=True)
    overlap = overlaps.amax(dim=-1, keepdim=True)
    # Not an epsilon: the sixth power of a small overlap is far below any that would be safe, and no less telling.
    return metric / torch.where(best > 0, best, 1.0) * overlap
