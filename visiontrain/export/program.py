"""`Program`: a network with what its task makes of its outputs, as other programs are given it.

Letters: B images, H × W pixels of the network's input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from visiontrain.models.network import Network

IMAGES = "images"
"""The name of the input."""
# A batch of 1 would be taken for a constant, and so would equal height and width for one number.
EXAMPLE_BATCH = 2
LEAST_SIDE, MOST_SIDE = 64, 8192
"""Pixels, of a side that stays open."""


class FinishedNetwork(nn.Module):
    """(B, 3, H, W) float32 RGB in [0, 1] → the outputs of `finish`, in their order."""

    def __init__(self, network: nn.Module, finish: Callable[[Any], Mapping[str, Tensor]]) -> None:
        super().__init__()
        self.network = network
        self.finish = finish

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.finish(self.network(images)).values())


@dataclass(frozen=True)
class Program:
    """What is exported, and how."""

    network: Network
    """On the CPU, in evaluation mode."""
    finish: Callable[[Any], Mapping[str, Tensor]]
    """Raw outputs → what leaves the program, by name. See `Task.finish`."""
    imgsz: int
    is_dynamic: bool
    """Whether height and width stay open (multiples of the largest stride); the number of images always does."""
    opset: int
    simplify: bool

    @cached_property
    def module(self) -> nn.Module:
        return FinishedNetwork(self.network, self.finish).eval()

    @cached_property
    def output_names(self) -> tuple[str, ...]:
        with torch.inference_mode():
            return tuple(self.finish(self.network(torch.zeros(1, 3, self.imgsz, self.imgsz))))

    def example(self) -> Tensor:
        """Images to trace with."""
        width = self.imgsz + max(self.network.strides) if self.is_dynamic else self.imgsz
        return torch.rand(EXAMPLE_BATCH, 3, self.imgsz, width, generator=torch.Generator().manual_seed(0))

    def dynamic_shape(self) -> dict[int, Any]:
        """The dimensions of the input that stay open."""
        shape: dict[int, Any] = {0: torch.export.Dim("batch", min=1)}
        if self.is_dynamic:
            shape |= {2: self._side("height"), 3: self._side("width")}
        return shape

    def _side(self, name: str) -> Any:
        stride = max(self.network.strides)
        if stride == 1:
            return torch.export.Dim(name, min=LEAST_SIDE, max=MOST_SIDE)
        return stride * torch.export.Dim(name, min=1, max=MOST_SIDE // stride)
