from __future__ import annotations

from pathlib import Path

import pytest

from visiontrain.data.formats.pixels import class_list, first_of, number_row
from visiontrain.errors import DataError

WHERE = Path("set")


@pytest.mark.parametrize(
    ("values", "row"),
    [
        ([1, 2.5, 3, 4], (1, 2.5, 3, 4)),
        ([1, 2, 3], None),
        ([1, 2, 3, 4, 5], None),
        ([1, 2, 3, float("inf")], None),
        ([1, 2, 3, float("nan")], None),
        ([1, 2, 3, 10**400], None),
        ([1, 2, 3, "4"], None),
        ([1, 2, 3, True], None),
        ([1, 2, 3, None], None),
    ],
)
def test_a_row_is_four_finite_numbers(values, row):
    assert number_row(values) == row


def test_the_first_split_makes_the_class_list_unless_one_was_given():
    names_of = {"train": ("b", "a"), "val": ("a",)}
    assert class_list(names_of, None, WHERE, word="classes") == ("b", "a")
    assert class_list(names_of, ("a", "b", "c"), WHERE, word="classes") == ("a", "b", "c")


def test_classes_that_the_list_lacks_are_told_for_all_splits_at_once():
    with pytest.raises(DataError) as caught:
        class_list({"train": ("a",), "val": ("b", "a"), "test": ("c",)}, None, WHERE, word="classes")
    assert [fault.split(";")[0] for fault in caught.value.faults] == [
        "set: val has 1 classes that train lacks: 'b'",
        "set: test has 1 classes that train lacks: 'c'",
    ]


def test_a_long_list_is_cut():
    assert first_of(list("abcde")) == "a, b, c, d, e"
    assert first_of(list("abcdef"), "; ") == "a; b; c; d; e; …"
