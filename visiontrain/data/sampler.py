"""Which image stands where in the run, and the randomness that belongs to it.

Everything here is a function of the seed and of a place in the run, never of a worker, a process or a batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visiontrain.data.balance import drawn_order, occurrences_of
from visiontrain.data.multi_scale import WindowSizes
from visiontrain.plan import ALL, Part, Plan, Window
from visiontrain.sample import SampleKey

PARTNER_REACH = 128
"""Mosaic and mix-up partners stand at most this many places away in the epoch's permutation: they are likely decoded
already."""
WHOLE_SET = 512
"""In sets up to this many images every image may be a partner."""
KEPT_EPOCHS = 3
"""Orders that are kept: workers make samples of two epochs at once, and with tail=carry a window is of two."""

_ORDER_STREAM, _SAMPLE_STREAM = 0, 1


def epoch_permutation(num_images: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """(num_images,) the order in which an epoch sees the images. Read-only."""
    order = np.random.default_rng([_ORDER_STREAM, seed, epoch]).permutation(num_images)
    order.flags.writeable = False
    return order


def generator_of(seed: int, key: SampleKey) -> np.random.Generator:
    """The generator that all randomness of one sample is drawn from."""
    # As an array: a list of the same numbers gives the same stream, in twice the time.
    return np.random.default_rng(np.array([_SAMPLE_STREAM, seed, key.epoch, key.index, key.occurrence], np.uint32))


class Sampler:
    """Names the sample at every place of a run. Pickles without the orders it has made."""

    def __init__(
        self,
        num_images: int,
        *,
        seed: int,
        weights: NDArray[np.float64] | None = None,
        sizes: WindowSizes | None = None,
    ) -> None:
        """
        Args:
            num_images: Of the split, and of an epoch.
            seed: Of the run.
            weights: (num_images,) how often each image is seen, relative to the others; None: each once an epoch.
            sizes: Of the images of each window, where they change.
        """
        assert weights is None or weights.shape == (num_images,), "one weight for each image"
        self.num_images = num_images
        self.seed = seed
        self.sizes = sizes
        self._weights = weights
        self._orders: dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}

    def order(self, epoch: int) -> NDArray[np.int64]:
        """(num_images,) the images of an epoch, from 0, in the order in which it sees them. Read-only."""
        return self._order(epoch)[0]

    def key(self, x: int, *, size: int | None = None) -> SampleKey:
        """The key of image `x`, counted from the start of the run."""
        epoch, place = divmod(x, self.num_images)
        order, occurrences = self._order(epoch)
        return SampleKey(epoch, place, int(order[place]), int(occurrences[place]), size)

    def keys(self, window: Window) -> list[SampleKey]:
        """The keys of a window's images."""
        size = None if self.sizes is None else self.sizes.of(window)
        return [self.key(x, size=size) for x in range(window.start, window.stop)]

    def micro_batches(self, plan: Plan, *, first_window: int = 0, part: Part = ALL) -> Iterator[list[SampleKey]]:
        """The keys of every micro-batch of a run, in order.

        Args:
            plan: The run.
            first_window: Index of the window to begin with, counted over the whole run.
            part: What the process takes of each; it may be nothing.
        """
        for window in plan.all_windows(first_window):
            keys = self.keys(window)
            for micro_batch in part.of(window):
                start = micro_batch.start - window.start
                yield keys[start : start + micro_batch.size]

    def partners(self, key: SampleKey, rng: np.random.Generator, count: int) -> list[int]:
        """Indices of `count` images near the key's place in its epoch's order, from other places if there are any."""
        num_images = self.num_images
        if num_images == 1:
            return [key.index] * count
        if num_images <= WHOLE_SET:
            offsets = rng.integers(1, num_images, count)
        else:
            offsets = rng.integers(1, 2 * PARTNER_REACH + 1, count)
            offsets[offsets > PARTNER_REACH] -= 2 * PARTNER_REACH + 1  # 1 … 128 and -128 … -1
        places = (key.place + offsets) % num_images
        return [int(index) for index in self.order(key.epoch)[places]]

    def _order(self, epoch: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Which image stands at each place, and how often it came before."""
        if epoch not in self._orders:
            if self._weights is None:
                order = epoch_permutation(self.num_images, self.seed, epoch)
            else:
                order = drawn_order(self._weights, self.seed, epoch)
            self._orders[epoch] = order, occurrences_of(order)
            for old in list(self._orders)[:-KEPT_EPOCHS]:
                del self._orders[old]
        return self._orders[epoch]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_orders": {}}
