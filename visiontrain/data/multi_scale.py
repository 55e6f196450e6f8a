"""`multi_scale`: the size of the training images changes from window to window."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from visiontrain.data.images import reduce_image
from visiontrain.plan import Window
from visiontrain.protocols import ImageSource, Resizable
from visiontrain.sample import Record, Sample, SampleKey

SPREAD = 0.5
"""Sizes lie within 1 ± this of `imgsz`. Source: the idea is of Redmon and Farhadi 2017, YOLO9000 (arXiv:1612.08242),
section 2, "Multi-Scale Training", there 320 to 608 in steps of the stride; the width is the customary one."""
_SIZE_STREAM = 0x517E
"""Keeps these draws apart from those of order and samples, which have streams of their own."""


@dataclass(frozen=True)
class WindowSizes:
    """The side of the images of each window: a multiple of the stride, all equally likely.

    A function of the seed and of the image at which the window opens, so every micro-batch, worker and process of a
    window agrees, and a replayed window has the size it had.
    """

    imgsz: int
    """The middle of the sizes, pixels."""
    stride: int
    """The network's largest, pixels."""
    seed: int
    """Of the run."""

    def __post_init__(self) -> None:
        if self.imgsz < 1 or self.stride < 1:
            raise ValueError(f"imgsz = {self.imgsz}, stride = {self.stride}: both are pixels, from 1 up")

    @property
    def all(self) -> range:
        """All multiples of `stride` within `imgsz` · (1 ± SPREAD), rising; `imgsz` to a multiple is always one."""
        middle = max(1, round(self.imgsz / self.stride))
        fewest = max(1, math.ceil((1 - SPREAD) * self.imgsz / self.stride))  # at most `middle`
        most = max(middle, int((1 + SPREAD) * self.imgsz // self.stride))
        return range(fewest * self.stride, (most + 1) * self.stride, self.stride)

    def of(self, window: Window) -> int:
        """Pixels."""
        rng = np.random.default_rng([_SIZE_STREAM, self.seed, window.start])
        return self.all[int(rng.integers(len(self.all)))]


@dataclass(frozen=True)
class AtWindowSize:
    """Makes each sample at the size that its key tells. A `Transform`."""

    transform: Resizable
    stored_size: Callable[[int], int]
    """From the size of samples to the long side of the images that they are made of, pixels."""

    def __call__(self, key: SampleKey, images: ImageSource) -> Sample:
        assert key.size is not None, "the sampler knows of no sizes"
        return self.transform.at_size(key.size)(key, _ReducedImages(images, self.stored_size(key.size)))


class _ReducedImages:
    """An `ImageSource` whose images are reduced further, so that small samples show no aliasing."""

    def __init__(self, images: ImageSource, long_side: int) -> None:
        self._images = images
        self._long_side = long_side

    def record(self, index: int) -> Record:
        return self._images.record(index)

    def load(self, index: int) -> NDArray[np.uint8]:
        return reduce_image(self._images.load(index), self._long_side)

    def partners(self, key: SampleKey, rng: np.random.Generator, count: int) -> list[int]:
        return self._images.partners(key, rng, count)
