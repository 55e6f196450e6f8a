"""Heads: what turns feature maps into raw predictions, and what these mean.

Letters: B images, A anchor points (the cells of all levels, finest level first), C classes, R bins of a distance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from visiontrain.models.layers import ConvNorm, DepthwiseSeparable

DEFAULT_BINS = 16
MOST_CLASS_CHANNELS = 128
# Source: Howard et al. 2019, Searching for MobileNetV3 (arXiv:1905.02244), table 1: the features before the classifier.
HIDDEN_CHANNELS = 1280

# A priori an image of this size holds about this many objects, each of which may be found on any level.
PRIOR_OBJECTS = 5.0
PRIOR_IMAGE_SIZE = 640.0
# Strides from center to side of an anchor box of a level (Lin et al. 2017, section 4: anchors of 4 strides).
PRIOR_DISTANCE = 2.0
# Weights of the last convolutions, so that the priors in their biases stand (Lin et al. 2017, section 4.1).
OUTPUT_WEIGHT_STD = 0.01


class DetectionOutputs(NamedTuple):
    """Raw predictions of a detector, in training and evaluation alike."""

    box_logits: Tensor
    """(B, A, 4 R): for left, top, right and bottom in turn, the logits of a distance of 0 … R - 1 strides."""
    class_logits: Tensor
    """(B, A, C)."""
    anchor_points: Tensor
    """(A, 2) x, y of cell centers, pixels of the input."""
    strides: Tensor
    """(A, 1) pixels of the input."""


def decode_boxes(outputs: DetectionOutputs) -> Tensor:
    """The boxes that a detector means: (B, A, 4) xyxy, pixels of the input; float64 if `box_logits` are, else float32.

    Source: Li et al. 2020, Generalized Focal Loss (arXiv:2006.04388), equation 5.
    """
    distances = expected_distances(distance_logits(outputs.box_logits).softmax(dim=-1))
    return boxes_around(outputs.anchor_points, distances * outputs.strides)


def distance_logits(box_logits: Tensor) -> Tensor:
    """(…, 4 R) → (…, 4, R) logits of distances; at least float32, whatever the network ran in."""
    logits = box_logits if box_logits.dtype == torch.float64 else box_logits.float()
    return logits.unflatten(-1, (4, -1))


def expected_distances(probabilities: Tensor) -> Tensor:
    """(…, 4, R) probabilities of distances → (…, 4) expected distances, strides."""
    bins = torch.arange(probabilities.shape[-1], dtype=probabilities.dtype, device=probabilities.device)
    return (probabilities * bins).sum(dim=-1)  # not a matrix product: autocast would take that in half precision


def boxes_around(points: Tensor, distances: Tensor) -> Tensor:
    """Boxes that reach given distances from points.

    Args:
        points: (…, 2) x, y, pixels.
        distances: (…, 4) left, top, right, bottom, pixels.

    Returns:
        (…, 4) xyxy, pixels.
    """
    return torch.cat([points - distances[..., :2], points + distances[..., 2:]], dim=-1)


class Detect(nn.Module):
    """Decoupled, anchor-free detection head: one box branch and one class branch on every level.

    Where a box lies is read from edges, which take dense 3×3 convolutions; what it holds needs little more than the
    neck has gathered, so the class branch is depthwise separable.

    Source: Ge et al. 2021, YOLOX (arXiv:2107.08430), section 2.1, for the two branches; Li et al. 2020 (see
    `decode_boxes`) for distances as distributions.
    """

    task = "detect"

    def __init__(
        self, in_channels: Sequence[int], strides: Sequence[int], num_classes: int, num_bins: int = DEFAULT_BINS
    ) -> None:
        super().__init__()
        self.strides = tuple(strides)
        self.num_bins = num_bins
        box_channels = max(3 * num_bins, 3 * in_channels[0] // 4)
        class_channels = max(in_channels[0], min(num_classes, MOST_CLASS_CHANNELS))
        self.box_branches = nn.ModuleList(
            nn.Sequential(
                ConvNorm(channels, box_channels),
                ConvNorm(box_channels, box_channels),
                output_conv(box_channels, bias=distance_prior(num_bins).repeat(4)),
            )
            for channels in in_channels
        )
        self.class_branches = nn.ModuleList(
            nn.Sequential(
                DepthwiseSeparable(channels, class_channels),
                DepthwiseSeparable(class_channels, class_channels),
                output_conv(class_channels, bias=class_prior(num_classes, stride)),
            )
            for channels, stride in zip(in_channels, strides, strict=True)
        )

    def forward(self, *features: Tensor) -> DetectionOutputs:
        box_logits = [rows(branch(level)) for branch, level in zip(self.box_branches, features, strict=True)]
        class_logits = [rows(branch(level)) for branch, level in zip(self.class_branches, features, strict=True)]
        points, strides = anchor_grid(features, self.strides)
        return DetectionOutputs(torch.cat(box_logits, dim=1), torch.cat(class_logits, dim=1), points, strides)


class Classify(nn.Module):
    """Classification head: a 1×1 convolution to many features, their mean over the map, dropout, a linear layer.

    Source: Lin et al. 2013, Network in Network (arXiv:1312.4400), section 3.2, for the mean over the map.
    """

    task = "classify"

    def __init__(
        self, in_channels: int, num_classes: int, hidden_channels: int = HIDDEN_CHANNELS, *, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.hidden = ConvNorm(in_channels, hidden_channels, kernel=1)
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(hidden_channels, num_classes)

    def forward(self, features: Tensor) -> Tensor:
        """(B, channels, h, w) → (B, C) logits."""
        pooled = self.hidden(features).mean(dim=(2, 3))  # (B, hidden)
        return self.linear(self.dropout(pooled))


def output_conv(in_channels: int, *, bias: Tensor) -> nn.Conv2d:
    """A last convolution that at first says about `bias`, (K) float, everywhere."""
    conv = nn.Conv2d(in_channels, len(bias), kernel_size=1, bias=False)
    nn.init.normal_(conv.weight, std=OUTPUT_WEIGHT_STD)
    conv.bias = nn.Parameter(bias)
    return conv


def class_prior(num_classes: int, stride: int) -> Tensor:
    """(C) logits of the classes at a cell before anything is known; else the many cells of background drown the loss.

    Source: Lin et al. 2017, Focal Loss (arXiv:1708.02002), section 3.3.
    """
    probability = PRIOR_OBJECTS / num_classes / (PRIOR_IMAGE_SIZE / stride) ** 2
    return torch.full((num_classes,), math.log(probability))


def distance_prior(num_bins: int) -> Tensor:
    """(R) logits of a geometric distribution of distances.

    The first boxes then have about the size that a level is for. The assignment goes by overlap, so boxes that start at
    half of the bins (15 strides wide) would fit nothing and make it wait for many steps.
    """
    return torch.arange(num_bins) * math.log(PRIOR_DISTANCE / (1 + PRIOR_DISTANCE))


def rows(level: Tensor) -> Tensor:
    """(B, K, h, w) → (B, h·w, K); free of copies where channels come last in memory."""
    return level.permute(0, 2, 3, 1).flatten(1, 2)


def anchor_grid(features: Sequence[Tensor], strides: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Centers of all cells, row by row and level by level, and their strides.

    Args:
        features: (B, channels, h, w) of each level; only size, device and type are read.
        strides: Pixels of the input to a cell of each level.

    Returns:
        (A, 2) x, y and (A, 1) strides, pixels; at least float32, since half precision does not hold a pixel exactly.
    """
    points, steps = [], []
    for level, stride in zip(features, strides, strict=True):
        dtype = torch.float64 if level.dtype == torch.float64 else torch.float32
        height, width = level.shape[-2:]
        y = (torch.arange(height, dtype=dtype, device=level.device) + 0.5) * stride
        x = (torch.arange(width, dtype=dtype, device=level.device) + 0.5) * stride
        points.append(torch.stack([x.expand(height, width), y[:, None].expand(height, width)], dim=-1).flatten(0, 1))
        steps.append(torch.full((height * width, 1), stride, dtype=dtype, device=level.device))
    return torch.cat(points), torch.cat(steps)
