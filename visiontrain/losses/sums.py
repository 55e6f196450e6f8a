"""`LossSum`: a loss as a sum and what to divide it by, so that micro-batches add up to the full batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True)
class LossSum:
    """A loss before its division.

    The mean of a batch is `total / normalizer`. Means cannot be added over micro-batches that hold different numbers
    of targets; sums can, and one division at the window's close gives the full batch's mean.
    """

    total: Tensor
    """() float, differentiable: the sum over the micro-batch."""
    normalizer: Tensor
    """() float, or a number: what the mean divides by, summed over the micro-batch. Detached and added in float64."""
    parts: Mapping[str, Tensor] = field(default_factory=dict)
    """Named shares of `total`, () float each, for the log; not differentiated."""
    floor: float = 0.0
    """The least that a window's normalizer counts as. With 0, a window whose normalizer is 0 is not applied."""
    scale_hint: float = 1.0
    """The normalizer that an image is expected to bring; it only keeps half-precision gradients in range."""
    name: str = "loss"

    def __post_init__(self) -> None:
        if not isinstance(self.total, Tensor) or self.total.ndim or not self.total.is_floating_point():
            found = f"of shape {tuple(self.total.shape)}" if isinstance(self.total, Tensor) else f"{self.total!r}"
            raise TypeError(f"total is {found}; it should be the loss's sum, one number: use reduction='sum' or .sum()")
        if isinstance(self.normalizer, str) or not isinstance(self.normalizer, Tensor | int | float):
            raise TypeError(f"normalizer is {self.normalizer!r}; it should be a number or a tensor of one")
        if not isinstance(self.normalizer, Tensor) and self.normalizer < 0:
            raise ValueError(f"normalizer = {self.normalizer} is negative; it is what the sum would be divided by")
        if not isinstance(self.parts, Mapping):
            raise TypeError(
                f"parts is a {type(self.parts).__name__}; it should be a mapping of names to shares of total"
            )
        if not isinstance(self.normalizer, Tensor):
            # Not in the loss's own type: half precision does not count beyond 2048, or 256.
            wide = torch.float32 if self.total.device.type == "mps" else torch.float64
            number = torch.as_tensor(self.normalizer, dtype=wide, device=self.total.device)
            object.__setattr__(self, "normalizer", number)

    @classmethod
    def from_mean(cls, mean: Tensor, count: Tensor | float, **parts: Tensor) -> LossSum:
        """Make a sum of a mean and the number it was divided by.

        Args:
            mean: () float, differentiable.
            count: What `mean` was divided by, such as the number of images.
            **parts: Named shares of `mean`.
        """
        mean = mean if mean.dtype == torch.float64 else mean.float()
        count = torch.as_tensor(count, dtype=mean.dtype, device=mean.device).detach()
        return cls(mean * count, count, {name: part.detach() * count for name, part in parts.items()})
