"""Which image stands where in the run, and the randomness that belongs to it.

Everything here is a function of the seed and of a place in the run, never of a worker, a process or a batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from visiontrain.plan import Plan
from visiontrain.sample import SampleKey

PARTNER_REACH = 128
"""Mosaic and mix-up partners stand at most this many places away in the epoch's permutation: they are likely decoded
already."""
WHOLE_SET = 512
"""In sets up to this many images every image may be a partner."""

_ORDER_STREAM, _SAMPLE_STREAM = 0, 1


@lru_cache(maxsize=8)
def epoch_permutation(num_images: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """(num_images,) the order in which an epoch sees the images. Read-only."""
    order = np.random.default_rng([_ORDER_STREAM, seed, epoch]).permutation(num_images)
    order.flags.writeable = False
    return order


def generator_of(seed: int, key: SampleKey) -> np.random.Generator:
    """The generator that all randomness of one sample is drawn from."""
    return np.random.default_rng([_SAMPLE_STREAM, seed, key.epoch, key.index, key.occurrence])


def partners_of(key: SampleKey, rng: np.random.Generator, count: int, *, num_images: int, seed: int) -> list[int]:
    """Indices of `count` images near the key's place in its epoch's permutation, never the key's own if there are
    others."""
    if num_images == 1:
        return [key.index] * count
    if num_images <= WHOLE_SET:
        offsets = rng.integers(1, num_images, count)
    else:
        offsets = rng.integers(1, 2 * PARTNER_REACH + 1, count)
        offsets[offsets > PARTNER_REACH] -= 2 * PARTNER_REACH + 1  # 1 … 128 and -128 … -1
    places = (key.place + offsets) % num_images
    return [int(index) for index in epoch_permutation(num_images, seed, key.epoch)[places]]


def keys_of(plan: Plan, *, seed: int, first_window: int = 0) -> Iterator[list[SampleKey]]:
    """The keys of every micro-batch of a run, in order.

    Args:
        plan: The run.
        seed: Of the run.
        first_window: Index of the window to begin with, counted over the whole run.
    """
    for window in plan.all_windows(first_window):
        for micro_batch in window.micro_batches:
            places = range(micro_batch.start, micro_batch.start + micro_batch.size)
            yield [key_at(x, num_images=plan.num_images, seed=seed) for x in places]


def key_at(x: int, *, num_images: int, seed: int) -> SampleKey:
    """The key of image `x`, counted from the start of the run."""
    epoch, place = divmod(x, num_images)
    return SampleKey(epoch, place, int(epoch_permutation(num_images, seed, epoch)[place]))
