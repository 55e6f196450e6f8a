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
    distance_log_probabilities,
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
        most: Anchor points of an image that can be foreground. Only so many are looked at, or as many as there are
            where asking for their number costs nothing: either is far below A.

    Returns:
        () and () float.
    """
    weights = assignment.target_scores.sum(dim=-1)  # (B, A)
    if answers_at_once(weights.device):
        most = max((weights > 0).sum(dim=1).tolist(), default=0)
    weights, index = weights.topk(min(most, weights.shape[1]), dim=1)  # (B, M), those of no weight last
    targets = pick(assignment.target_boxes, index)  # (B, M, 4)
    log_probabilities = distance_log_probabilities(pick(outputs.box_logits, index))  # (B, M, 4, R)
    points, strides = outputs.anchor_points[index], outputs.strides[index]  # (B, M, 2), (B, M, 1)

    boxes = boxes_around(points, expected_distances(log_probabilities) * strides)
    box_loss = ((1 - complete_iou(boxes, targets)) * weights).sum()

    distances = torch.cat([points - targets[..., :2], targets[..., 2:] - points], dim=-1) / strides  # (B, M, 4)
    dfl_loss = (distribution_focal_loss(log_probabilities, distances).mean(dim=-1) * weights).sum()
    return box_loss, dfl_loss


def pick(values: Tensor, index: Tensor) -> Tensor:
    """(B, A, K) values at (B, M) anchor points → (B, M, K)."""
    return values.gather(1, index[..., None].expand(-1, -1, values.shape[-1]))


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
