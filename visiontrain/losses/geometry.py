"""Overlap of boxes, differentiable.

Boxes are (…, 4) float, xyxy, any one unit; leading dimensions broadcast.

Source: Zheng et al. 2020, Distance-IoU Loss (arXiv:1911.08287), and Zheng et al. 2021, Enhancing Geometric Factors
(arXiv:2005.03572), for CIoU.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

# Keeps quotients of empty boxes finite; far below any real area in pixels.
EPS = 1e-7


def pairwise_ciou(a: Tensor, b: Tensor) -> Tensor:
    """Complete IoU of every box in `a` with every box in `b`: (…, N, 4), (…, M, 4) → (…, N, M)."""
    return complete_iou(a[..., :, None, :], b[..., None, :, :])


def iou(a: Tensor, b: Tensor) -> Tensor:
    """Intersection over union of boxes that correspond: (…, 4), (…, 4) → (…) in [0, 1]; 0 where both are empty."""
    ax1, ay1, ax2, ay2 = a.unbind(dim=-1)
    bx1, by1, bx2, by2 = b.unbind(dim=-1)
    width = (torch.minimum(ax2, bx2) - torch.maximum(ax1, bx1)).clamp(min=0)
    height = (torch.minimum(ay2, by2) - torch.maximum(ay1, by1)).clamp(min=0)
    intersection = width * height
    union = (ax2 - ax1) * (ay2 - ay1) + (bx2 - bx1) * (by2 - by1) - intersection
    return intersection / (union + EPS)


def complete_iou(a: Tensor, b: Tensor) -> Tensor:
    """IoU less the penalties for distance and for unequal aspect ratio: (…, 4), (…, 4) → (…) in (-2, 1].

    Source: arXiv:2005.03572, equations 9 to 11; the trade-off α is constant for the gradient, as there.
    """
    overlap = iou(a, b)
    ax1, ay1, ax2, ay2 = a.unbind(dim=-1)
    bx1, by1, bx2, by2 = b.unbind(dim=-1)
    hull_width = torch.maximum(ax2, bx2) - torch.minimum(ax1, bx1)
    hull_height = torch.maximum(ay2, by2) - torch.minimum(ay1, by1)
    diagonal = hull_width.square() + hull_height.square()
    distance = ((ax1 + ax2 - bx1 - bx2).square() + (ay1 + ay2 - by1 - by2).square()) / 4
    # The angle is taken of each box, not of each pair: in the pairwise form that is N + M arc tangents, not N · M.
    ratio = (4 / math.pi**2) * (_diagonal_angle(a) - _diagonal_angle(b)).square()
    with torch.no_grad():
        alpha = ratio / (1 - overlap + ratio + EPS)
    return overlap - distance / (diagonal + EPS) - alpha * ratio


def _diagonal_angle(boxes: Tensor) -> Tensor:
    width, height = boxes[..., 2] - boxes[..., 0], boxes[..., 3] - boxes[..., 1]
    return torch.atan(width / (height + EPS))
