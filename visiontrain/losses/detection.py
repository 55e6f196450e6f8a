"""The detection loss: classes against assigned scores, boxes by CIoU, their sides by distribution focal loss.

Letters: B images, N boxes (padded), A anchor points, C classes, R bins of a distance, M anchor points that may carry a
box.

Source: Feng et al. 2021, TOOD (arXiv:2108.07755), section 3.3, for class targets and weights; Zheng et al. 2021
(arXiv:2005.03572) for CIoU; Li et al. 2020, Generalized Focal Loss (arXiv:2006.04388), equation 6, for the distribution
focal loss.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from visiontrain.losses.assign import Assignment, answers_at_once, assign
from visiontrain.losses.geometry import complete_iou
from visiontrain.losses.sums import LossSum
from visiontrain.models.heads import (
    DetectionOutputs,
    boxes_around,
    decode_boxes,
    distance_logits,
    expected_distances,
)
from visiontrain.sample import Batch

TOPK = 10
# An image of everyday pictures holds some 7 boxes, each with anchor points whose scores add up to one or two at first.
TARGET_SCORE_PER_IMAGE = 8.0
# The highest distance, in strides, stays just inside the last bin, so that both of its neighbors exist.
BIN_MARGIN = 0.01


class DetectionCriterion:
    """Loss of a detector as a sum over the micro-batch; the normalizer is the sum of assigned target scores."""

    def __init__(self, *, box: float = 7.5, cls: float = 0.5, dfl: float = 1.5, topk: int = TOPK) -> None:
        """Set the gains.

        Args:
            box: Of the CIoU loss.
            cls: Of the classification loss.
            dfl: Of the distribution focal loss.
            topk: Most anchor points that answer for a box.
        """
        self.box = box
        self.cls = cls
        self.dfl = dfl
        self.topk = topk

    def __call__(self, outputs: DetectionOutputs, batch: Batch) -> LossSum:
        gt_boxes, gt_classes = batch.targets["boxes"], batch.targets["classes"]
        logits = outputs.class_logits if outputs.class_logits.dtype == torch.float64 else outputs.class_logits.float()
        assignment = assign(
            logits.detach().sigmoid(),
            decode_boxes(detached(outputs)),
            outputs.anchor_points,
            outputs.strides,
            gt_boxes,
            gt_classes,
            topk=self.topk,
        )
        scores = assignment.target_scores
        box_sum, dfl_sum = box_losses(outputs, assignment, most=self.topk * gt_boxes.shape[1])
        box_loss = self.box * box_sum
        cls_loss = self.cls * binary_cross_entropy_with_logits(logits, scores, reduction="sum")
        dfl_loss = self.dfl * dfl_sum
        return LossSum(
            total=box_loss + cls_loss + dfl_loss,
            normalizer=scores.sum(),
            parts={"box_loss": box_loss.detach(), "cls_loss": cls_loss.detach(), "dfl_loss": dfl_loss.detach()},
            floor=1.0,  # a window of background alone is divided by one object's worth
            scale_hint=TARGET_SCORE_PER_IMAGE,
            name="detection",
        )


def detached(outputs: DetectionOutputs) -> DetectionOutputs:
    """The same outputs, cut from the graph."""
    return DetectionOutputs(*(tensor.detach() for tensor in outputs))


def box_losses(outputs: DetectionOutputs, assignment: Assignment, *, most: int) -> tuple[Tensor, Tensor]:
    """Sums of the CIoU loss and of the distribution focal loss, anchor points weighted by their target score.

    Args:
        outputs: Of the network.
        assignment: Of its anchor points.
        most: Anchor points of an image that can be foreground. Only so many are looked at, or those that are where
            asking for them costs nothing: either are far fewer than A.

    Returns:
        () and () float.
    """
    weights = assignment.target_scores.sum(dim=-1)  # (B, A)
    at = weighted_points(weights, most)  # (M)
    weights, targets = weights.flatten()[at], rows_at(assignment.target_boxes, at)  # (M), (M, 4)
    log_probabilities = distance_logits(rows_at(outputs.box_logits, at)).log_softmax(dim=-1)  # (M, 4, R)
    point = at % len(outputs.anchor_points)
    points, strides = outputs.anchor_points[point], outputs.strides[point]  # (M, 2), (M, 1)

    boxes = boxes_around(points, expected_distances(log_probabilities.exp()) * strides)
    box_loss = ((1 - complete_iou(boxes, targets)) * weights).sum()

    distances = torch.cat([points - targets[..., :2], targets[..., 2:] - points], dim=-1) / strides  # (M, 4)
    dfl_loss = (distribution_focal_loss(log_probabilities, distances).mean(dim=-1) * weights).sum()
    return box_loss, dfl_loss


def weighted_points(weights: Tensor, most: int) -> Tensor:
    """(B, A) weights → (M) int64, counted over all images: the anchor points that carry weight, and perhaps others."""
    if answers_at_once(weights.device):
        return weights.flatten().nonzero().squeeze(1)
    images, points = weights.shape
    index = weights.topk(min(most, points), dim=1).indices
    return (index + torch.arange(images, device=index.device)[:, None] * points).flatten()


def rows_at(values: Tensor, at: Tensor) -> Tensor:
    """(B, A, K) values at (M) anchor points, counted over all images → (M, K)."""
    return values.flatten(0, 1).index_select(0, at)


def distribution_focal_loss(log_probabilities: Tensor, distances: Tensor) -> Tensor:
    """Cross entropy with the two bins around a distance, each weighted by its nearness.

    Args:
        log_probabilities: (…, R) of the distances 0 … R - 1, strides.
        distances: (…) strides; clamped to what the bins can express.

    Returns:
        (…) float.

    Source: arXiv:2006.04388, equation 6.
    """
    distances = distances.clamp(0, log_probabilities.shape[-1] - 1 - BIN_MARGIN)
    below = distances.floor()
    nearness = distances - below  # of the bin above
    lower = below.long()[..., None]
    at_lower = log_probabilities.gather(-1, lower).squeeze(-1)
    at_upper = log_probabilities.gather(-1, lower + 1).squeeze(-1)
    return -(at_lower * (1 - nearness) + at_upper * nearness)
