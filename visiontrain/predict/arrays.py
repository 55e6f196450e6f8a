"""What results hold their numbers in: a tensor, or a numpy array of the same numbers."""

from __future__ import annotations

from typing import Any, TypeAlias

from torch import Tensor

Array: TypeAlias = Any
"""A tensor, or a numpy array after `.numpy()`."""


def on_cpu(data: Array) -> Array:
    """A tensor on the CPU; an array as it is."""
    return data.cpu() if isinstance(data, Tensor) else data


def as_numpy(data: Array) -> Array:
    """The same numbers as a numpy array."""
    return data.cpu().numpy() if isinstance(data, Tensor) else data
