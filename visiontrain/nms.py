"""Suppression of overlapping boxes by torchvision's kernel, without the rest of torchvision.

The package loads torch's compiler with it: seconds and 150 MB in every process that scores or predicts. The kernel
lies in a library of its own.

Letters: N boxes, K of them that stay.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

# Up to here it is faster to move each class to a place of its own than to suppress one class after the other.
# Source: github.com/pytorch/vision, issue 1311 and pull request 8925.
MOST_MOVED = 1000
MOST_MOVED_ON_GPU = 25_000


def nms(boxes_xyxy: Tensor, scores: Tensor, iou: float) -> Tensor:
    """Keep a box unless it overlaps by more than `iou` with a kept one of a higher score.

    Args:
        boxes_xyxy: (N, 4) float32, xyxy.
        scores: (N,) float32.
        iou: In [0, 1].

    Returns:
        (K,) int64, places of those that stay, by falling score.
    """
    load_kernel()
    return torch.ops.torchvision.nms(boxes_xyxy, scores, iou)


def nms_by_class(boxes_xyxy: Tensor, scores: Tensor, labels: Tensor, iou: float) -> Tensor:
    """As `nms`, but boxes of different classes never suppress each other.

    Args:
        boxes_xyxy: (N, 4) float32, xyxy; N is not 0.
        scores: (N,) float32.
        labels: (N,) int64.
        iou: In [0, 1].

    Returns:
        (K,) int64, places of those that stay, in no particular order.
    """
    if len(boxes_xyxy) <= (MOST_MOVED if boxes_xyxy.device.type == "cpu" else MOST_MOVED_ON_GPU):
        # From 0 on: a negative coordinate would reach into the class before.
        from_zero = boxes_xyxy - boxes_xyxy.amin()
        return nms(from_zero + (labels.to(from_zero) * (from_zero.amax() + 1))[:, None], scores, iou)
    of_classes = [torch.where(labels == label)[0] for label in labels.unique()]
    return torch.cat([places[nms(boxes_xyxy[places], scores[places], iou)] for places in of_classes])


@cache
def load_kernel() -> None:
    """Make `torch.ops.torchvision.nms` known; by importing torchvision where its library is not found as expected."""
    package = find_spec("torchvision")
    folders = [] if package is None else list(package.submodule_search_locations or ())
    libraries = [path for folder in folders for path in sorted(Path(folder).glob("_C*.so"))]
    try:
        for path in libraries:
            torch.ops.load_library(path)
        torch.ops.torchvision.nms  # noqa: B018
    except (OSError, AttributeError):
        import torchvision  # noqa: F401  # it says what is wrong with it
