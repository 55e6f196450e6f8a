"""What a forward pass leaves behind in a network, to be taken back where its window is not applied."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


class ForwardState:
    """What a forward pass changes: BatchNorm's buffers and the random state that dropout draws from."""

    def __init__(self, model: nn.Module) -> None:
        self._buffers = list(model.buffers())
        self._values = [buffer.clone() for buffer in self._buffers]
        self._statistics = [
            statistic
            for module in model.modules()
            if isinstance(module, _BatchNorm)
            for statistic in (module.running_mean, module.running_var)
            if statistic is not None
        ]
        tensors = [*model.parameters(), *self._buffers]
        self._devices = sorted({tensor.get_device() for tensor in tensors if tensor.is_cuda})
        self._random = torch.get_rng_state()
        self._cuda_random = [torch.cuda.get_rng_state(device) for device in self._devices]
        self._mps_random = torch.mps.get_rng_state() if any(tensor.is_mps for tensor in tensors) else None

    def is_finite(self) -> Tensor | None:
        """() bool: whether BatchNorm's running statistics are finite now; None where there are none."""
        if not self._statistics:
            return None
        return torch.isfinite(torch.stack(torch._foreach_norm(self._statistics, math.inf))).all()

    @torch.no_grad()
    def restore(self) -> None:
        for buffer, value in zip(self._buffers, self._values, strict=True):
            buffer.copy_(value)
        torch.set_rng_state(self._random)
        for device, state in zip(self._devices, self._cuda_random, strict=True):
            torch.cuda.set_rng_state(state, device)
        if self._mps_random is not None:
            torch.mps.set_rng_state(self._mps_random)
