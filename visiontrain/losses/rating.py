"""How well anchor points fit boxes, by two ways to the same numbers.

`rate_all` looks at every pair of a box and an anchor point, so that what it does never depends on what the pairs hold:
a GPU need not be waited for. `rate_inside` looks at the pairs whose anchor point lies in the box, mostly a few in a
hundred, and has to ask how many these are; a processor tells at once.

Letters: B images, N boxes (padded), A anchor points, P pairs, U places of anchor points along an axis.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from visiontrain.losses.geometry import pairwise_ciou

OUTSIDE = -1.0
"""The metric where the anchor point is not in the box: behind even a metric of 0."""


class Boxes(NamedTuple):
    """The boxes of some images, and what their pairs with anchor points are rated by."""

    xyxy: Tensor
    """(B, N, 4) pixels."""
    is_real: Tensor
    """(B, N) bool: whether it is a box and no padding."""
    score_rows: Tensor
    """(B, N) int64: its row in the scores."""


class Points(NamedTuple):
    """Anchor points, and the places where they are: grids have far fewer columns and rows than points."""

    xy: Tensor
    """(A, 2) pixels."""
    least_size: Tensor
    """() pixels: a side of a box that is shorter counts as that long."""
    places: tuple[Tensor, Tensor] | None = None
    """(U) along x, (U) along y, pixels; `rate_inside` needs them."""
    which: tuple[Tensor, Tensor] | None = None
    """(A) int64 twice: the place of a point among them."""


class Rating(NamedTuple):
    """Of every box with every anchor point, (B, N, A) each."""

    metric: Tensor
    """OUTSIDE where the anchor point is not in the box."""
    overlaps: Tensor
    """CIoU of the prediction with the box, not below 0; of use where the anchor point is in the box."""


def with_places(points: Points) -> Points:
    """The same points; the device is asked for how many places they have."""
    x, y = (points.xy[:, axis].unique(return_inverse=True) for axis in (0, 1))
    return points._replace(places=(x[0], y[0]), which=(x[1], y[1]))


def rate_all(boxes: Boxes, points: Points, pred_boxes: Tensor, scores: Tensor, *, alpha: float, beta: float) -> Rating:
    """Rate every pair.

    Args:
        boxes: Of the images.
        points: Of every image.
        pred_boxes: (B, A, 4) xyxy, pixels: predictions of the anchor points.
        scores: (rows, A) in [0, 1]: of the class that a row is for, in the image that it is for.
        alpha: Weight of the class score.
        beta: Weight of the overlap.
    """
    allowed = is_inside(points.xy, boxes.xyxy, points.least_size) & boxes.is_real[..., None]
    fit = scores.index_select(0, boxes.score_rows.flatten()).view(allowed.shape)  # (B, N, A)
    overlaps = pairwise_ciou(boxes.xyxy, pred_boxes).clamp_(min=0)
    return Rating(metric_(fit, overlaps, alpha=alpha, beta=beta).masked_fill_(~allowed, OUTSIDE), overlaps)


def rate_inside(
    boxes: Boxes, points: Points, pred_boxes: Tensor, scores: Tensor, *, alpha: float, beta: float
) -> Rating:
    """As `rate_all`, by way of the pairs whose anchor point is in the box; the others' overlaps are left at 0."""
    num_boxes, num_points = boxes.xyxy.shape[1], len(points.xy)
    box, point = pairs_inside(boxes, points)  # (P), (P); boxes are counted over all images
    fit = scores.flatten().index_select(0, boxes.score_rows.flatten().index_select(0, box) * num_points + point)
    predicted = box.div(num_boxes, rounding_mode="floor").mul_(num_points).add_(point)  # counted over all images, too
    overlaps = pairwise_ciou(_one_each(boxes.xyxy, box), _one_each(pred_boxes, predicted)).flatten().clamp_(min=0)
    metric = metric_(fit, overlaps, alpha=alpha, beta=beta)
    at, shape = box.mul_(num_points).add_(point), (*boxes.xyxy.shape[:2], num_points)
    return Rating(_spread(metric, at, shape, rest=OUTSIDE), _spread(overlaps, at, shape, rest=0.0))


def metric_(fit: Tensor, overlaps: Tensor, *, alpha: float, beta: float) -> Tensor:
    """`score^alpha · CIoU^beta`; the scores `fit` become it."""
    return fit.pow_(alpha).mul_(
        overlaps.pow(beta / 2).square_()
    )  # halves are whole powers, which torch has a fast way for


def pairs_inside(boxes: Boxes, points: Points) -> tuple[Tensor, Tensor]:
    """Pairs of a real box and an anchor point in it, as `is_inside` has it.

    Columns and rows of anchor points are compared with the boxes, and what is known of them handed out to the points.

    Args:
        boxes: Of the images.
        points: With places.

    Returns:
        (P) int64 boxes, counted over all images, and (P) int64 anchor points.
    """
    assert points.places is not None
    assert points.which is not None
    center, half = _center_and_half(boxes.xyxy.flatten(0, 1), points.least_size)  # (B · N, 2) each
    columns, rows = (
        ((places[:, None] - center[:, axis]).abs_() <= half[:, axis]).index_select(0, which)  # (A, B · N)
        for axis, (places, which) in enumerate(zip(points.places, points.which, strict=True))
    )
    are_pairs = columns.logical_and_(rows) & boxes.is_real.flatten()
    pairs = torch.from_numpy(np.flatnonzero(are_pairs.numpy()))  # in a third of the time that torch's own takes
    point = pairs.div(len(center), rounding_mode="floor")
    return pairs.sub_(point * len(center)), point


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
    center, half = _center_and_half(boxes, least_size)  # (B, N, 2) each
    x, y = points.T.contiguous()
    beyond_x = (x - center[..., :1]).abs_().sub_(half[..., :1])  # (B, N, A), above 0 outside
    beyond_y = (y - center[..., 1:]).abs_().sub_(half[..., 1:])
    return torch.maximum(beyond_x, beyond_y) <= 0  # one comparison, as they are slow


def _center_and_half(boxes: Tensor, least_size: Tensor) -> tuple[Tensor, Tensor]:
    """(…, 4) xyxy → (…, 2) centers and (…, 2) halves of sides that are `least_size` or longer."""
    center = (boxes[..., :2] + boxes[..., 2:]) / 2
    return center, torch.maximum(boxes[..., 2:] - boxes[..., :2], least_size) / 2


def _one_each(boxes: Tensor, index: Tensor) -> Tensor:
    """(B, N, 4) and (P) → (P, 1, 4), coordinate by coordinate in memory as `pairwise_ciou` takes them."""
    return boxes.flatten(0, 1).T.contiguous().index_select(1, index).T[:, None]


def _spread(values: Tensor, at: Tensor, shape: tuple[int, int, int], *, rest: float) -> Tensor:
    """A tensor of `shape` with `values` in the places `at`, (P) each, and `rest` elsewhere."""
    return values.new_full((math.prod(shape),), rest).scatter_(0, at, values).view(shape)
