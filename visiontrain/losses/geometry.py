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


@torch.no_grad()
def pairwise_ciou(a: Tensor, b: Tensor) -> Tensor:
    """Complete IoU of every box in `a` with every box in `b`: (…, N, 4), (…, M, 4) → (…, N, M), without gradient.

    What `complete_iou` gives, to rounding, in half as many passes over N · M numbers and in place: what is of one box
    alone is reckoned once for each box.
    """
    ax1, ay1, ax2, ay2 = a[..., :, None, :].movedim(-1, 0).contiguous()  # (…, N, 1)
    bx1, by1, bx2, by2 = b[..., None, :, :].movedim(-1, 0).contiguous()  # (…, 1, M)
    a_width, a_height, b_width, b_height = ax2 - ax1, ay2 - ay1, bx2 - bx1, by2 - by1
    width = torch.minimum(ax2, bx2).sub_(torch.maximum(ax1, bx1))  # (…, N, M), below 0 where they lie apart
    height = torch.minimum(ay2, by2).sub_(torch.maximum(ay1, by1))
    diagonal = (a_width + b_width).sub_(width).square_()  # of the hull, whose sides are what the two do not share
    hull_height = (a_height + b_height).sub_(height)
    diagonal.addcmul_(hull_height, hull_height).add_(EPS)

    overlap = width.clamp_(min=0).mul_(height.clamp_(min=0))
    overlap.div_((a_width * a_height + EPS + b_width * b_height).sub_(overlap))
    distance = ((ax1 + ax2) / 2 - (bx1 + bx2) / 2).square_()
    vertical = (ay1 + ay2) / 2 - (by1 + by2) / 2
    distance.addcmul_(vertical, vertical).div_(diagonal)
    scale = 2 / math.pi
    ratio = (_angle(a_width, a_height) * scale - _angle(b_width, b_height) * scale).square_()
    rest = (ratio - overlap).add_(1 + EPS)
    return overlap.sub_(distance).sub_(ratio.square_().div_(rest))


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
    ratio = (4 / math.pi**2) * (_diagonal_angle(a) - _diagonal_angle(b)).square()
    with torch.no_grad():
        alpha = ratio / (1 - overlap + ratio + EPS)
    return overlap - distance / (diagonal + EPS) - alpha * ratio


def _diagonal_angle(boxes: Tensor) -> Tensor:
    return _angle(boxes[..., 2] - boxes[..., 0], boxes[..., 3] - boxes[..., 1])


def _angle(width: Tensor, height: Tensor) -> Tensor:
    """Of a box's diagonal, radians."""
    return torch.atan(width / (height + EPS))
