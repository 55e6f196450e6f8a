"""The small layers that networks are made of.

Feature maps are (B, channels, height, width); a layer's `out_channels` tells the next one what it receives.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from visiontrain.models.norm_silu import norm_silu

# Slower statistics and a larger epsilon than torch's: micro-batches are small, and a channel may be almost constant.
BATCH_NORM_EPS = 1e-3
BATCH_NORM_MOMENTUM = 0.03


class ConvNorm(nn.Module):
    """Convolution, BatchNorm, SiLU."""

    def __init__(self, in_channels: int, out_channels: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        self.out_channels = out_channels
        self.conv = nn.Conv2d(in_channels, out_channels, kernel, stride, kernel // 2, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(out_channels, eps=BATCH_NORM_EPS, momentum=BATCH_NORM_MOMENTUM)
        self.act = nn.SiLU(inplace=True)

    def forward(self, features: Tensor) -> Tensor:
        return norm_silu(self.norm, self.act, self.conv(features))


class DepthwiseSeparable(nn.Sequential):
    """A 3×3 convolution within each channel, then a 1×1 convolution across channels.

    Source: Howard et al. 2017, MobileNets, section 3.1.
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(
            ConvNorm(in_channels, in_channels, kernel=3, groups=in_channels),
            ConvNorm(in_channels, out_channels, kernel=1),
        )
        self.out_channels = out_channels


class Upsample(nn.Module):
    """Doubles height and width by repeating pixels."""

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        self.out_channels = in_channels

    def forward(self, features: Tensor) -> Tensor:
        return nn.functional.interpolate(features, scale_factor=2.0, mode="nearest")


class Concat(nn.Module):
    """Joins feature maps of equal height and width along their channels."""

    def __init__(self, *in_channels: int) -> None:
        super().__init__()
        self.out_channels = sum(in_channels)

    def forward(self, *features: Tensor) -> Tensor:
        return torch.cat(features, dim=1)
