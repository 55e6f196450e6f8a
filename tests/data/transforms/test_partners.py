from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np

from visiontrain.data.transforms.partners import load_partners
from visiontrain.errors import DataError
from visiontrain.sample import Record, SampleKey


class Damaged:
    """An `ImageSource` of ten images of which only some can be read."""

    def __init__(self, *readable):
        self.readable = readable
        self.loads = Counter()

    def record(self, index):
        return Record(Path(f"{index}.png"), 1, 1, np.zeros((0, 4), np.float32), np.array([index]))

    def load(self, index):
        self.loads[index] += 1
        if index not in self.readable:
            raise DataError(f"{index}.png: damaged")
        return np.full((1, 1, 3), index, np.uint8)

    def partners(self, key, rng, count):
        return rng.integers(1, 10, count).tolist()


def test_only_images_that_can_be_read_become_partners():
    for seed in range(20):
        source = Damaged(0, 3, 4, 5, 6)
        found = load_partners(SampleKey(0, 0, 0), source, np.random.default_rng(seed), 3)
        indices = [partner.record.classes.item() for partner in found]
        assert [partner.image.flat[0] for partner in found] == indices
        assert len(indices) == 3
        assert set(indices) <= {3, 4, 5, 6}
        assert Counter(indices) == {index: source.loads[index] for index in set(indices)}  # each was read once


def test_where_none_can_be_read_the_image_itself_stands_in():
    found = load_partners(SampleKey(0, 0, 0), Damaged(0), np.random.default_rng(0), 2)
    assert [partner.record.classes.item() for partner in found] == [0, 0]
