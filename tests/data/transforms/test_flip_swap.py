from __future__ import annotations

import numpy as np
import pytest

from visiontrain.data.transforms.flip_swap import faults_of_flip_swap, swap_classes


@pytest.mark.parametrize(
    ("pairs", "is_right"), [((), True), (((0, 1), (2, 3)), True), (((0, 1), (1, 2)), False), (((0, -1),), False)]
)
def test_a_class_stands_in_one_pair_only(pairs, is_right):
    assert (faults_of_flip_swap(pairs) == []) == is_right


def test_swapping_twice_restores_and_writes_into_nothing():
    classes = np.array([0, 1, 2, 3, 1])
    classes.flags.writeable = False
    once = swap_classes(classes, ((0, 1), (3, 7)))
    assert once.tolist() == [1, 0, 2, 7, 0]
    assert swap_classes(once, ((0, 1), (3, 7))).tolist() == classes.tolist()
