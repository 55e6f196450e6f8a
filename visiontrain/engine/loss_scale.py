"""The loss scale of half precision: one life cycle a window, and a twin for precisions that need none."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.optim import Optimizer


class LossScale(Protocol):
    """What a window does with its loss and gradients on account of their range."""

    def scale(self, total: Tensor) -> Tensor:
        """The loss that backward runs on."""

    def unscale_(self, optimizer: Optimizer) -> None:
        """Take the scale out of the gradients; once a window."""

    def step(self, optimizer: Optimizer) -> None: ...

    def close(self, *, may_change: bool) -> None:
        """End the window; the scale follows its gradients only if they say something about it."""

    @property
    def value(self) -> float | None:
        """The scale; None where there is none. Waits for the device."""


class Scaled:
    """By a GradScaler."""

    def __init__(self, scaler: torch.amp.GradScaler) -> None:
        self._scaler = scaler
        self._is_unscaled = False

    def scale(self, total: Tensor) -> Tensor:
        return self._scaler.scale(total)

    def unscale_(self, optimizer: Optimizer) -> None:
        self._scaler.unscale_(optimizer)
        self._is_unscaled = True

    def step(self, optimizer: Optimizer) -> None:
        self._scaler.step(optimizer)

    def close(self, *, may_change: bool) -> None:
        if self._is_unscaled:  # else there is nothing that the scaler would wait for
            # Setting the scale that it has ends a window without a verdict on it.
            self._scaler.update(None if may_change else self._scaler.get_scale())
        self._is_unscaled = False

    @property
    def value(self) -> float | None:
        return self._scaler.get_scale()


class Unscaled:
    """The twin that does nothing but step."""

    value = None

    def scale(self, total: Tensor) -> Tensor:
        return total

    def unscale_(self, optimizer: Optimizer) -> None:
        pass

    def step(self, optimizer: Optimizer) -> None:
        optimizer.step()

    def close(self, *, may_change: bool) -> None:
        pass


def loss_scale_of(scaler: torch.amp.GradScaler | None) -> Scaled | Unscaled:
    """The loss scale of a scaler; a disabled one is as good as none."""
    return Scaled(scaler) if scaler is not None and scaler.is_enabled() else Unscaled()
