"""Learning rate and momentum as a pure function of the images seen up to a window's end.

Because the end counts and not the start, the first update is never zero and the last one is exactly `lr0 * lrf`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch.optim import Optimizer

from visiontrain.plan import Plan, Window


@dataclass(frozen=True)
class Rates:
    """What an update uses."""

    lr: float
    bias_lr: float
    momentum: float


@dataclass(frozen=True)
class Schedule:
    """Warmup in images, then a line or half a cosine down to `lr0 * lrf`."""

    lr0: float
    lrf: float
    """The last learning rate, as a fraction of `lr0`."""
    momentum: float
    warmup_momentum: float
    warmup_bias_lr: float
    """Where the biases' learning rate starts; 0 lets it rise like the others."""
    is_cosine: bool
    warmup_images: int
    total_images: int

    def at(self, images: int) -> Rates:
        """The rates of the window that ends after `images` images of the run."""
        done = images / self.total_images
        falling = (1 + math.cos(math.pi * done)) / 2 if self.is_cosine else 1 - done
        lr = self.lr0 * (self.lrf + (1 - self.lrf) * falling)
        warm = min(1.0, images / self.warmup_images) if self.warmup_images else 1.0
        return Rates(
            lr=lr * warm,
            # In this form the values after warmup are exactly those asked for, not those to rounding.
            bias_lr=lr * warm + self.warmup_bias_lr * (1 - warm),
            momentum=self.momentum * warm + self.warmup_momentum * (1 - warm),
        )

    def apply(self, optimizer: Optimizer, window: Window) -> Rates:
        """Set the rates of `window` in the optimizer's groups and return them; a group may have a fraction of them."""
        rates = self.at(window.stop)
        for group in optimizer.param_groups:
            is_bias = group["name"].rpartition("/")[2] == "biases"
            group["lr"] = (rates.bias_lr if is_bias else rates.lr) * group.get("lr_scale", 1.0)
            if "betas" in group:
                group["betas"] = (rates.momentum, group["betas"][1])
            if "momentum" in group:
                group["momentum"] = rates.momentum
        return rates


def lr_factor(plan: Plan, scaling: str) -> float:
    """What `lr_scaling` multiplies the learning rate by (and divides the weight decay by, which acts through it).

    Source: Goyal et al. 2017, "Accurate, Large Minibatch SGD", for the linear rule; the square root for adaptive
    optimizers is Krizhevsky 2014, "One weird trick for parallelizing convolutional neural networks".
    """
    ratio = plan.full_window / plan.nbs
    return {"none": 1.0, "linear": ratio, "sqrt": math.sqrt(ratio)}[scaling]
