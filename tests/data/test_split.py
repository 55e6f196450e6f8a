from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from visiontrain.data.split import split_off
from visiontrain.errors import DataError
from visiontrain.sample import Record, Records


def records_of(classes_of):
    """Records whose image number is their name, with one box of each class."""
    return Records(
        [
            Record(
                Path(f"{number}.png"), 10, 10, np.tile(np.float32([0, 0, 1, 1]), (len(classes), 1)), np.int64(classes)
            )
            for number, classes in enumerate(classes_of)
        ]
    )


def names(records):
    return [record.path.name for record in records]


def presence(records, number):
    return sum(number in record.classes for record in records)


@given(
    classes_of=st.lists(st.lists(st.integers(0, 4), max_size=6), min_size=2, max_size=40),
    fraction=st.floats(0.01, 0.99),
    seed=st.integers(0, 9),
)
def test_every_image_is_on_one_side_and_neither_is_empty(classes_of, fraction, seed):
    records = records_of(classes_of)
    left, off = split_off(records, fraction, seed)
    assert sorted([*names(left), *names(off)]) == sorted(names(records))
    assert len(off) == min(len(records) - 1, max(1, round(fraction * len(records))))
    for side in (left, off):
        assert names(side) == sorted(names(side), key=lambda name: int(name[:-4]))
        for record in side:
            np.testing.assert_array_equal(record.classes, classes_of[int(record.path.stem)])


def test_equal_seeds_give_equal_splits_and_others_another_one():
    records = records_of([[number % 3] for number in range(60)])
    assert names(split_off(records, 0.2, 0)[1]) == names(split_off(records, 0.2, 0)[1])
    assert names(split_off(records, 0.2, 0)[1]) != names(split_off(records, 0.2, 1)[1])


@pytest.mark.parametrize("seed", range(5))
def test_classes_and_background_keep_their_share_of_the_images(seed):
    rng = np.random.default_rng(seed)
    often = [0.9, 0.5, 0.2, 0.05]
    classes_of = [[number for number, share in enumerate(often) if rng.random() < share] for _ in range(400)]
    records = records_of(classes_of)
    left, off = split_off(records, 0.25, seed)
    for number in range(len(often)):
        total = presence(records, number)
        assert abs(presence(off, number) - 0.25 * total) <= 1 + 0.01 * total, number
    is_background = [not classes for classes in classes_of]
    num_background = sum(len(record.classes) == 0 for record in off)
    assert abs(num_background - 0.25 * sum(is_background)) <= 3
    assert len(left) == 300


def test_a_class_of_two_images_is_on_both_sides_of_a_split_in_halves():
    _, off = split_off(records_of([[0]] * 20 + [[0, 1]] * 2), 0.5, 0)
    assert presence(off, 1) == 1


def test_a_rare_class_stays_with_the_larger_side():
    left, _ = split_off(records_of([[0]] * 20 + [[0, 1]]), 0.2, 0)
    assert presence(left, 1) == 1


def test_an_image_that_is_listed_twice_stays_on_one_side():
    for seed in range(10):
        records = records_of([[0]] * 6)
        left, off = split_off(Records([*records, *records]), 0.5, seed)
        assert len(left) == len(off) == 6
        assert not set(names(left)) & set(names(off))


@pytest.mark.parametrize("fraction", [0, 1, -0.1, 1.5, float("nan")])
def test_a_fraction_that_leaves_a_side_empty_is_refused(fraction):
    with pytest.raises(ValueError, match="is not between 0 and 1"):
        split_off(records_of([[0]] * 4), fraction, 0)


def test_one_image_cannot_be_split():
    with pytest.raises(DataError, match="train: has 1 image, which cannot be split in two; give a validation split"):
        split_off(records_of([[0]]), 0.5, 0)


def test_bccd_is_split_with_its_classes_in_proportion(test_data):
    from visiontrain.data.formats import read_data_set

    records = read_data_set(test_data / "bccd", splits=("train",)).splits["train"]
    _, off = split_off(records, 0.2, 0)
    assert len(off) == 41
    for number in range(3):
        assert abs(presence(off, number) - 0.2 * presence(records, number)) <= 1.5
