"""An exponential moving average of the weights, in fp32, one step for each applied update."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn


def decay_after(updates: int) -> float:
    """The decay of the average's step number `updates`: short at first, so that the random start is soon forgotten."""
    return min(0.9999, (1 + updates) / (10 + updates))


def horizon_after(updates: int) -> float:
    """How many of the last updates the average holds, after `updates` of them."""
    return 1 / (1 - decay_after(updates))


class Ema:
    """The average of a network's parameters and floating-point buffers (so also of BatchNorm's running statistics).

    `model` is a network of its own, in evaluation mode, never trained. Integer buffers are copied.
    """

    def __init__(self, network: nn.Module) -> None:
        self.model = deepcopy(network).eval().requires_grad_(False)
        self.updates = 0
        for tensor in _state(self.model):
            if tensor.dtype in (torch.float16, torch.bfloat16):
                tensor.data = tensor.data.float()

    @torch.no_grad()
    def update(self, network: nn.Module) -> None:
        """Take the step that follows one applied update of `network`."""
        self.updates += 1
        weight = 1 - decay_after(self.updates)
        averages, targets = [], []
        for average, live in zip(_state(self.model), _state(network), strict=True):
            if average.is_floating_point():
                averages.append(average)
                targets.append(live.detach().to(average.dtype))
            else:
                average.copy_(live)
        torch._foreach_lerp_(averages, targets, weight)


class LiveWeights:
    """The twin that does nothing: `model` is the live network itself."""

    def __init__(self, network: nn.Module) -> None:
        self.model = network
        self.updates = 0

    def update(self, network: nn.Module) -> None:
        self.updates += 1


def _state(network: nn.Module) -> list[Tensor]:
    return [*network.parameters(), *network.buffers()]
