"""Other images of the split that a sample is composed with."""

from __future__ import annotations

import numpy as np

from visiontrain.errors import DataError
from visiontrain.protocols import ImageSource
from visiontrain.sample import SampleKey

MAX_PARTNER_TRIES = 8


def readable_partners(key: SampleKey, images: ImageSource, rng: np.random.Generator, count: int) -> list[int]:
    """Partners that can be decoded; the key's own image stands in where none is found in a few tries."""
    found: list[int] = []
    for _ in range(MAX_PARTNER_TRIES):
        for index in images.partners(key, rng, count - len(found)):
            try:
                images.load(index)
            except DataError:
                continue  # it is reported where it stands itself in the epoch
            found.append(index)
        if len(found) == count:
            return found
    return found + [key.index] * (count - len(found))
