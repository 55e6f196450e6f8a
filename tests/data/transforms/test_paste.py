from __future__ import annotations

import numpy as np
import pytest

from visiontrain.data.transforms.paste import MAX_HIDDEN, Labels, paste_boxes_, shares_covered

NOTHING = Labels(np.zeros((0, 4), np.float32), np.zeros(0, np.int64))


def labels_of(*boxes):
    return Labels(np.array(boxes, np.float32).reshape(-1, 4), np.arange(len(boxes)))


def paste(present, source, labels, *, gain=1.0, mirrored=0.0, seed=0, size=128):
    canvas = np.zeros((size, size, 3), np.uint8)
    pasted, is_mirrored = paste_boxes_(
        canvas, present, source, labels, gain=gain, mirrored=mirrored, rng=np.random.default_rng(seed)
    )
    return canvas, pasted, is_mirrored


@pytest.mark.parametrize("gain", [0.5, 0.83, 1.0, 1.7])
@pytest.mark.parametrize("mirrored", [0.0, 1.0])
def test_the_box_of_a_pasted_patch_surrounds_its_pixels(gain, mirrored, hull_of_white):
    source = np.zeros((96, 128, 3), np.uint8)
    source[30:70, 40:80] = 255
    for seed in range(10):
        canvas, pasted, flags = paste(
            NOTHING, source, labels_of([40, 30, 80, 70]), gain=gain, mirrored=mirrored, seed=seed
        )
        assert flags.tolist() == [mirrored == 1]
        np.testing.assert_allclose(hull_of_white(canvas), pasted.boxes[0], atol=0.51)
        assert pasted.boxes.min() >= 0
        assert pasted.boxes.max() <= 128


def test_a_mirrored_patch_shows_its_left_on_the_right():
    source = np.zeros((40, 40, 3), np.uint8)
    source[:, :20] = 255
    for mirrored in (0.0, 1.0):
        canvas, pasted, _ = paste(NOTHING, source, labels_of([0, 0, 40, 40]), mirrored=mirrored)
        x1, y1, x2, y2 = pasted.boxes[0].round().astype(int)
        left, right = canvas[y1:y2, x1 : (x1 + x2) // 2].mean(), canvas[y1:y2, (x1 + x2) // 2 : x2].mean()
        assert (left > right) == (mirrored == 0)


def test_patches_together_hide_no_more_of_a_present_box_than_allowed():
    rng = np.random.default_rng(5)
    corners = rng.uniform(0, 90, (12, 2))
    present = labels_of(*np.concatenate([corners, corners + rng.uniform(8, 38, (12, 2))], axis=1))
    source = np.full((64, 64, 3), 255, np.uint8)
    labels = labels_of(*[[x, y, x + 16, y + 16] for x in (0, 16, 32, 48) for y in (0, 16, 32, 48)])
    num_pasted = 0
    for seed in range(20):
        canvas, pasted, _ = paste(present, source, labels, gain=1.3, seed=seed)
        num_pasted += len(pasted.boxes)
        for x1, y1, x2, y2 in present.boxes:
            # an edge of a box lies within a pixel: count the whole ones inside
            inside = canvas[int(np.ceil(y1)) : int(y2), int(np.ceil(x1)) : int(x2), 0] > 0
            assert inside.sum() <= MAX_HIDDEN * (x2 - x1) * (y2 - y1) + 1e-3
    assert num_pasted > 20


def test_nothing_is_pasted_where_it_would_hide_an_object():
    source = np.full((100, 100, 3), 255, np.uint8)
    canvas, pasted, flags = paste(labels_of([0, 0, 128, 128]), source, labels_of([0, 0, 100, 100]))
    assert (canvas == 0).all()
    assert len(pasted.boxes) == len(pasted.classes) == len(flags) == 0


@pytest.mark.parametrize("gain", [0.01, 2.0])
def test_a_patch_that_is_too_large_or_too_small_is_not_pasted(gain):
    source = np.full((100, 100, 3), 255, np.uint8)
    canvas, pasted, _ = paste(NOTHING, source, labels_of([0, 0, 100, 100]), gain=gain)
    assert (canvas == 0).all()
    assert len(pasted.boxes) == 0


def test_what_else_shows_by_half_in_a_patch_is_labelled_too():
    source = np.zeros((100, 100, 3), np.uint8)
    labels = labels_of([10, 10, 70, 70], [30, 30, 50, 50], [60, 60, 74, 74], [69, 69, 99, 99])
    expected = np.array([[0, 0, 60, 60], [20, 20, 40, 40], [50, 50, 60, 60]])  # the third is cut by the patch
    firsts = []
    for seed in range(20):
        _, pasted, _ = paste(NOTHING, source, labels, seed=seed)
        firsts.append(pasted.classes[0])
        if firsts[-1] == 0:
            assert pasted.classes[:3].tolist() == [0, 1, 2]
            np.testing.assert_allclose(pasted.boxes[:3] - np.tile(pasted.boxes[0, :2], 2), expected, atol=1e-3)
    assert {0, 1, 2, 3} == set(firsts)  # of a patch about another box, the large one shows too little


def test_half_of_the_boxes_are_tried():
    source = np.full((100, 100, 3), 255, np.uint8)
    labels = labels_of(*[[10 * k, 0, 10 * k + 8, 8] for k in range(9)])
    _, pasted, _ = paste(NOTHING, source, labels, size=2000)
    assert len(pasted.boxes) == 5


def test_an_image_without_boxes_gives_nothing():
    _, pasted, flags = paste(NOTHING, np.zeros((9, 9, 3), np.uint8), NOTHING)
    assert pasted.boxes.shape == (0, 4)
    assert len(flags) == 0


def test_covered_shares_are_those_of_the_area():
    boxes = np.array([[0, 0, 10, 10], [20, 20, 30, 30], [5, 0, 10, 20]], np.float32)
    np.testing.assert_allclose(shares_covered((5, 5, 25, 10), boxes), [0.25, 0, 0.25])
