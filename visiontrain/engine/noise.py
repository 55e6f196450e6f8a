"""The gradient noise scale: how many images an update can use before the next image adds little.

The gradient of a window is that of the whole data set plus noise, and the noise falls with the number of images. Their
ratio for one image is the noise scale: an update from so many images is half signal, half noise. With far fewer images
per update many updates are wasted, with far more many images. Measuring takes a copy of the gradient and two norms a
window.

Source: McCandlish et al. 2018, An Empirical Model of Large-Batch Training (arXiv:1812.06162), section 2.2 and appendix
A.1. There the gradients of two batch sizes are compared by their lengths; here the smaller batch is part of the larger,
so that the length of their difference can be taken, which has the same expectation and spreads less.

Letters: b images of a window's first micro-batch, B images of the window, g its gradient.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

EPOCH_MEMORY = 0.8
"""What an epoch's sums still count for in the next: an epoch may hold few windows, and each tells little."""
MUCH = 4.0
"""How many times apart noise scale and `nbs` are before the advice is to change it; the measure is rough."""


@dataclass
class _Part:
    """The first micro-batch of the open window."""

    gradients: dict[Tensor, Tensor]
    normalizers: Mapping[str, Tensor]
    num_images: int
    squares: list[Tensor] = field(default_factory=list)
    """(2,) for each branch: ‖its share of the difference‖², ‖its share of g‖²."""


class NoiseScale:
    """Compares the gradient of each window's first micro-batch with that of the whole window."""

    def __init__(self) -> None:
        self._part: _Part | None = None
        self._windows: list[Tensor] = []  # (2,) of each window since the last estimate: tr Σ, |G|²
        self._sums = torch.zeros(2, dtype=torch.float64)  # of the epochs before, older ones counting less

    def note_part(self, params: Sequence[Tensor], normalizers: Mapping[str, Tensor], num_images: int) -> None:
        """Keep the gradient as it is after a window's first micro-batch.

        Args:
            params: Whose gradients hold that micro-batch alone.
            normalizers: () of each loss branch.
            num_images: Images of the micro-batch.

        Raises:
            ValueError: If nobody told how many images it holds.
        """
        if num_images < 1:
            raise ValueError("the noise scale is counted in images: pass num_images= to GradientWindow.add")
        gradients = {param: param.grad.detach().clone() for param in params if param.grad is not None}
        self._part = _Part(gradients, normalizers, num_images)

    @torch.no_grad()
    def compare(self, branch: str, params: Sequence[Tensor], *, factor: Tensor, divisor: Tensor) -> None:
        """Compare what was kept with the window's gradient, for one loss branch.

        Args:
            branch: Its name.
            params: The parameters behind it, which hold the window's gradient.
            factor: () what turns the kept gradient into its part of the window's.
            divisor: () the window's normalizer, by which it was divided.
        """
        if self._part is None:
            return
        share = self._part.normalizers[branch].to(divisor) / divisor
        grads = [param.grad for param in params if param.grad is not None]
        # One that the first micro-batch did not reach has no part in it.
        parts = [
            self._part.gradients[param] if param in self._part.gradients else torch.zeros_like(param)
            for param in params
        ]
        difference = torch._foreach_sub(torch._foreach_mul(parts, factor), torch._foreach_mul(grads, share))
        self._part.squares.append(torch.stack([_square(difference), _square(grads)]).to(divisor))

    def keep(self, num_images: int) -> None:
        """Count the open window, which was applied and held `num_images`."""
        part, whole = self._part, num_images
        if part is not None and part.squares and whole > part.num_images:
            difference, square = torch.stack(part.squares).sum(dim=0)
            # The part holds b of B images, so E‖difference‖² = tr Σ · b (B - b) / B³.
            trace = difference * whole**3 / (part.num_images * (whole - part.num_images))
            self._windows.append(torch.stack([trace, square - trace / whole]))
        self._part = None

    def drop(self) -> None:
        """Forget the open window."""
        self._part = None

    def state(self) -> list[float]:
        """What `restore` needs to go on from here."""
        self.estimate()
        return self._sums.tolist()

    def restore(self, state: Sequence[float]) -> None:
        """Go on from what `state` gave."""
        self._sums = torch.tensor(state, dtype=torch.float64)

    def estimate(self) -> float | None:
        """The noise scale in images, from the windows since the last call and, counting less, those before.

        None where nothing was measured; infinite where no signal could be told from the noise. Waits for the device.
        """
        if self._windows:
            measured = torch.stack(self._windows).sum(dim=0).cpu().double()
            self._sums = self._sums * EPOCH_MEMORY + measured
            self._windows.clear()
        trace, square = self._sums.tolist()
        if trace <= 0:
            return None
        return trace / square if square > 0 else math.inf


def _square(tensors: Sequence[Tensor]) -> Tensor:
    """() the squared length of all of them together."""
    return torch.stack(torch._foreach_norm(list(tensors))).square().sum()


def advice(noise_scale: float | None, nbs: int) -> str:
    """One sentence on what the noise scale says about `nbs`."""
    if noise_scale is None:
        return "gradient noise scale: not measured; it needs windows of two micro-batches or more"
    found = f"gradient noise scale {_images(noise_scale)}"
    if noise_scale > MUCH * nbs:
        return (
            f"{found}, far above nbs {nbs}: updates are mostly noise; a larger nbs would learn as much from each image "
            "in fewer updates"
        )
    if noise_scale * MUCH < nbs:
        return f"{found}, far below nbs {nbs}: a smaller nbs would learn more from the same images"
    return f"{found}: nbs {nbs} fits"


def _images(count: float) -> str:
    """A number of images as exactly as it is known, to two digits."""
    if math.isinf(count):
        return "beyond measure"
    return f"about {float(f'{count:.2g}'):,.0f} images" if count >= 1 else "less than 1 image"
