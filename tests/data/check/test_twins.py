from __future__ import annotations

from pathlib import Path

import numpy as np

from visiontrain.data.check.looks import Look
from visiontrain.data.check.twins import twin_findings
from visiontrain.sample import DataSet, Record, Records


def found_in(splits):
    """The findings of splits that map a name to the bytes and the print of its image, as numbers."""
    nothing = np.zeros((0, 4), np.float32), np.zeros(0, np.int64)
    data = DataSet(
        Path("set"),
        ("a",),
        {split: Records([Record(Path(name), 8, 8, *nothing) for name in names]) for split, names in splits.items()},
    )
    looks = {
        name: Look(None if digest is None else bytes([digest]), None if seen is None else prints(seen))
        for names in splits.values()
        for name, (digest, seen) in names.items()
    }
    return {
        (code, split, one.file, one.image)
        for code, split, tally in twin_findings(data, looks)
        for one in tally.examples
    }


def prints(number):
    return np.random.default_rng(number).integers(0, 256, 32, dtype=np.uint8).tobytes()


def test_different_pictures_are_no_finding():
    assert found_in({"train": {"a": (1, 1), "b": (2, 2)}, "val": {"c": (3, 3)}}) == set()


def test_equal_files_of_one_split_are_the_same_image():
    found = found_in({"train": {"a": (1, 1), "b": (1, 1), "c": (1, 1)}})
    assert found == {("image-same", "train", "b", "a"), ("image-same", "train", "c", "a")}


def test_equal_files_of_two_splits_are_told_of_the_later_one_only_and_not_as_alike_again():
    assert found_in({"train": {"a": (1, 1)}, "val": {"b": (1, 1)}}) == {("image-in-splits", "val", "b", "a")}


def test_one_file_that_two_splits_list_is_in_both():
    assert found_in({"train": {"a": (1, 1)}, "test": {"a": (1, 1)}}) == {("image-in-splits", "test", "a", "a")}


def test_near_prints_of_two_splits_are_alike_and_of_one_split_are_not_told():
    found = found_in({"train": {"a": (1, 7), "b": (2, 7)}, "val": {"c": (3, 7), "d": (4, 8)}})
    assert {(code, split, file) for code, split, file, _ in found} == {("image-alike", "val", "c")}


def test_pictures_without_a_print_and_those_that_cannot_be_read_are_left_out():
    assert found_in({"train": {"a": (1, None), "x": (None, None)}, "val": {"b": (2, None), "y": (None, None)}}) == set()
