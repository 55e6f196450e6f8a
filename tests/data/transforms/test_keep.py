from __future__ import annotations

import numpy as np
import pytest

from visiontrain.data.transforms.keep import Fate, count_dropped, fate_of_boxes
from visiontrain.sample import DroppedBoxes


@pytest.mark.parametrize(
    ("box", "fate"),
    [
        ([0, 0, 10, 10], Fate.KEPT),
        ([-85, 0, 15, 100], Fate.KEPT),
        ([-95, 0, 5, 100], Fate.TOO_LITTLE_LEFT),
        ([-50, 10, -1, 60], Fate.OUTSIDE),
        ([400, 400, 500, 500], Fate.OUTSIDE),
        ([0, 0, 1.5, 50], Fate.TOO_SMALL),
        ([-99, 0, 1, 1], Fate.TOO_SMALL),  # too little is left too, but the first cause counts
        ([0, 0, 300, 2.5], Fate.TOO_LONG),
    ],
)
def test_a_box_is_kept_if_enough_of_it_is_left_and_else_its_cause_is_named(box, fate):
    moved = np.array([box], float)
    assert fate_of_boxes(moved, moved.clip(0, 320)).tolist() == [fate]


def test_every_box_is_kept_or_counted_once():
    boxes = np.random.default_rng(0).uniform(-200, 500, (500, 4))
    boxes[:, 2:] = boxes[:, :2] + np.random.default_rng(1).exponential(20, (500, 2))
    fate = fate_of_boxes(boxes, boxes.clip(0, 320))
    dropped = count_dropped(fate)
    total = dropped.outside + dropped.too_small + dropped.too_little_left + dropped.too_long
    assert total + (fate == Fate.KEPT).sum() == 500
    assert dropped.outside == (fate == Fate.OUTSIDE).sum() > 0


def test_counts_add_up_cause_by_cause():
    assert DroppedBoxes(1, 2, 3, 4) + DroppedBoxes(10, 20, 30, 40) == DroppedBoxes(11, 22, 33, 44)
    assert count_dropped(np.zeros(0, np.intp)) == DroppedBoxes()
