from __future__ import annotations

import numpy as np
import pytest

from visiontrain.data.transforms import mixing


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([1], [2], {1: 0.25, 2: 0.75}),
        ([2], [1], {1: 0.75, 2: 0.25}),
        ([3], [3], {3: 1.0}),
        ([0, 2], [2, 5], {0: 0.25, 2: 1.0, 5: 0.75}),
        ([], [4], {4: 0.75}),
        ([], [], {}),
    ],
)
def test_each_class_has_the_share_of_the_images_that_show_it(first, second, expected):
    classes, shares = mixing.mix_labels(np.array(first, np.int64), np.array(second, np.int64), 0.25)
    assert dict(zip(classes.tolist(), shares.tolist(), strict=True)) == pytest.approx(expected)
    assert (classes.dtype, shares.dtype) == (np.int64, np.float32)


@pytest.mark.parametrize(("ratio", "left"), [(1.0, 1), (0.0, 2)])
def test_an_image_that_is_not_seen_has_no_label(ratio, left):
    classes, shares = mixing.mix_labels(np.array([1]), np.array([2]), ratio)
    assert (classes.tolist(), shares.tolist()) == ([left], [1.0])


def test_a_blend_is_the_weighted_mean():
    first, second = np.full((4, 4, 3), 200, np.uint8), np.full((4, 4, 3), 100, np.uint8)
    assert (mixing.blend(first, second, 0.75) == 175).all()


def test_the_share_of_a_pasted_patch_is_that_of_its_pixels():
    rng = np.random.default_rng(0)
    shares = []
    for _ in range(200):
        image, other = np.zeros((20, 30, 3), np.uint8), np.full((20, 30, 3), 255, np.uint8)
        patch = mixing.draw_patch(20, 30, rng)
        shares.append(mixing.paste_patch_(image, other, patch))
        assert shares[-1] == pytest.approx((image == 0).mean())
    assert min(shares) < 0.3
    assert max(shares) > 0.95


def test_a_tenth_or_so_of_the_picture_is_erased():
    rng = np.random.default_rng(0)
    shares = []
    for _ in range(200):
        image = np.full((40, 60, 3), 7, np.uint8)
        mixing.erase_(image, rng)
        changed = (image != 7).any(axis=2)
        rows, columns = np.flatnonzero(changed.any(axis=1)), np.flatnonzero(changed.any(axis=0))
        rectangle = (rows[-1] + 1 - rows[0]) * (columns[-1] + 1 - columns[0])
        assert changed.sum() > 0.95 * rectangle
        shares.append(rectangle / changed.size)
    assert min(shares) > mixing.ERASED_AREA[0] - 0.01
    assert max(shares) < mixing.ERASED_AREA[1] + 0.02
    assert max(shares) > 0.3
