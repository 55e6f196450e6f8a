"""Images of the split that a sample is made of: its own, and others that it is composed with."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from visiontrain.data.transforms.geometry import Image
from visiontrain.errors import DataError
from visiontrain.protocols import ImageSource
from visiontrain.sample import Record, SampleKey

MAX_PARTNER_TRIES = 8


class Loaded(NamedTuple):
    """An image as it was read, with its labels."""

    record: Record
    image: Image
    """(H, W, 3), shared: not to be written to."""


def load(index: int, images: ImageSource) -> Loaded:
    """Raises DataError if the image cannot be read."""
    return Loaded(images.record(index), images.load(index))


def load_partners(key: SampleKey, images: ImageSource, rng: np.random.Generator, count: int) -> list[Loaded]:
    """Partners that can be read; the key's own image stands in where none is found in a few tries."""
    found: list[Loaded] = []
    for _ in range(MAX_PARTNER_TRIES):
        for index in images.partners(key, rng, count - len(found)):
            try:
                found.append(load(index, images))
            except DataError:
                continue  # it is reported where it stands itself in the epoch
        if len(found) == count:
            return found
    return found + [load(key.index, images)] * (count - len(found))
