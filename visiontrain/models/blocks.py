"""The larger blocks of the trunk and the neck."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from visiontrain.models.layers import ConvNorm


class Bottleneck(nn.Module):
    """Two 3×3 convolutions, added to their input if `shortcut`.

    Source: He et al. 2016, Deep Residual Learning, figure 5 (left).
    """

    def __init__(self, channels: int, *, shortcut: bool) -> None:
        super().__init__()
        self.out_channels = channels
        self.shortcut = shortcut
        self.first = ConvNorm(channels, channels)
        self.second = ConvNorm(channels, channels)

    def forward(self, features: Tensor) -> Tensor:
        refined = self.second(self.first(features))
        return features + refined if self.shortcut else refined


class CSPStage(nn.Module):
    """Half of the channels pass by; the other half goes through a chain whose every map reaches the fusion.

    The split keeps gradients of the two halves apart and halves the cost (CSP); fusing every map of the chain gives
    each depth a short path to the loss (ELAN).

    Source: Wang et al. 2020, CSPNet (arXiv:1911.11929); Wang et al. 2022, Designing Network Design Strategies Through
    Gradient Path Analysis (arXiv:2211.04800), figure 5; generalized to any block in Wang et al. 2024
    (arXiv:2402.13616), section 4.2.
    """

    def __init__(self, in_channels: int, out_channels: int, *, depth: int = 1, shortcut: bool = False) -> None:
        super().__init__()
        self.out_channels = out_channels
        half = out_channels // 2
        self.split = ConvNorm(in_channels, 2 * half, kernel=1)
        self.chain = nn.ModuleList(Bottleneck(half, shortcut=shortcut) for _ in range(depth))
        self.fuse = ConvNorm((2 + depth) * half, out_channels, kernel=1)

    def forward(self, features: Tensor) -> Tensor:
        maps = list(self.split(features).chunk(2, dim=1))
        for block in self.chain:
            maps.append(block(maps[-1]))
        return self.fuse(torch.cat(maps, dim=1))


class PyramidPool(nn.Module):
    """Maxima over growing neighborhoods (5, 9 and 13 pixels), fused with the map itself.

    A maximum over 5 of a maximum over 5 is the maximum over 9, so each step reuses the one before.

    Source: He et al. 2015, Spatial Pyramid Pooling (arXiv:1406.4729), with stride 1 in place of fixed grids.
    """

    def __init__(self, in_channels: int, out_channels: int, kernel: int = 5, steps: int = 3) -> None:
        super().__init__()
        self.out_channels = out_channels
        self.steps = steps
        hidden = in_channels // 2
        self.reduce = ConvNorm(in_channels, hidden, kernel=1)
        self.pool = nn.MaxPool2d(kernel, stride=1, padding=kernel // 2)
        self.fuse = ConvNorm((1 + steps) * hidden, out_channels, kernel=1)

    def forward(self, features: Tensor) -> Tensor:
        maps = [self.reduce(features)]
        for _ in range(self.steps):
            maps.append(self.pool(maps[-1]))
        return self.fuse(torch.cat(maps, dim=1))
