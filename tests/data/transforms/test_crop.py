from __future__ import annotations

import numpy as np
import pytest

from visiontrain.data.transforms import crop
from visiontrain.data.transforms.crop import Window, best_iou, draw_crop

BOXES = np.array([[10, 20, 90, 70], [100, 10, 150, 100]], np.float32)


def windows(count=200, boxes=BOXES, width=160, height=120):
    return [draw_crop(boxes, width, height, np.random.default_rng(seed)) for seed in range(count)]


@pytest.mark.parametrize("size", [(160, 120), (33, 400), (3, 2), (1, 1)])
def test_a_window_lies_in_the_image_and_is_not_empty(size):
    width, height = size
    for window in windows(boxes=BOXES[:0], width=width, height=height):
        assert 0 <= window.left < window.right <= width
        assert 0 <= window.top < window.bottom <= height


def test_windows_have_a_tenth_to_all_of_the_area_and_at_most_twice_the_proportion():
    sides = np.array([[w.right - w.left, w.bottom - w.top] for w in windows(500, BOXES[:0])]) / [160, 120]
    area, aspect = sides.prod(axis=1), sides[:, 0] / sides[:, 1]
    assert 0.09 < area.min() < 0.2  # whole pixels
    assert 0.8 < area.max() <= 1
    assert 0.48 < aspect.min() < 0.7
    assert 1.5 < aspect.max() < 2.1


@pytest.mark.parametrize("least", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_a_window_overlaps_some_box_by_what_was_asked_or_is_the_whole_image(least, monkeypatch):
    monkeypatch.setattr(crop, "LEAST_OVERLAPS", (least,))
    found = windows()
    assert all(best_iou(w, BOXES) >= least or w == Window(0, 0, 160, 120) for w in found)
    if least <= 0.5:
        assert len(set(found)) > 20


def test_the_overlap_is_that_of_counted_pixels():
    painted = np.zeros((2, 120, 160), bool)
    for mask, (x1, y1, x2, y2) in zip(painted, BOXES.astype(int), strict=True):
        mask[y1:y2, x1:x2] = True
    for window in windows(30):
        inside = np.zeros((120, 160), bool)
        inside[window.top : window.bottom, window.left : window.right] = True
        expected = max((inside & mask).sum() / (inside | mask).sum() for mask in painted)
        assert best_iou(window, BOXES) == pytest.approx(expected)
