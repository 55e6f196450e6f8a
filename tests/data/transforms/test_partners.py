from __future__ import annotations

import numpy as np

from visiontrain.data.transforms.partners import readable_partners
from visiontrain.errors import DataError
from visiontrain.sample import SampleKey


class Damaged:
    """An `ImageSource` of ten images of which only some can be read."""

    def __init__(self, *readable):
        self.readable = readable

    def record(self, index):
        raise AssertionError

    def load(self, index):
        if index not in self.readable:
            raise DataError(f"{index}.png: damaged")

    def partners(self, key, rng, count):
        return rng.integers(1, 10, count).tolist()


def test_only_images_that_can_be_read_become_partners():
    for seed in range(20):
        found = readable_partners(SampleKey(0, 0, 0), Damaged(0, 3, 4, 5, 6), np.random.default_rng(seed), 3)
        assert len(found) == 3
        assert set(found) <= {3, 4, 5, 6}


def test_where_none_can_be_read_the_image_itself_stands_in():
    assert readable_partners(SampleKey(0, 0, 0), Damaged(0), np.random.default_rng(0), 2) == [0, 0]
