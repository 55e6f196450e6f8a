from __future__ import annotations

import colorsys

import numpy as np
import pytest

from visiontrain.data.transforms.color import shift_hsv_


@pytest.mark.parametrize("hue_shift", [0, 3, -3, 29, -29, 31, 60, -60, 90, 150, 179])
@pytest.mark.parametrize(("saturation", "value"), [(1.0, 1.0), (1.6, 0.7), (0.3, 1.4)])
def test_the_change_is_that_of_the_color_model(hue_shift, saturation, value):
    image = np.random.default_rng(0).integers(0, 256, (7, 9, 3), dtype=np.uint8)
    expected = np.empty_like(image)
    for place in np.ndindex(7, 9):
        h, s, v = colorsys.rgb_to_hsv(*(image[place] / 255))
        moved = colorsys.hsv_to_rgb((h + hue_shift / 180) % 1, min(1, s * saturation), min(1, v * value))
        expected[place] = np.round(np.array(moved) * 255)
    shift_hsv_(image, hue_shift, saturation, value)
    assert np.abs(image.astype(int) - expected).max() <= 9  # hue has 180 steps, saturation 256
    assert np.abs(image.astype(int) - expected).mean() <= 2


def test_grey_stays_grey():
    image = np.full((4, 4, 3), 100, np.uint8)
    shift_hsv_(image, 5, 1.7, 1.2)
    assert (image == 120).all()


def test_a_tall_image_is_changed_in_every_row():
    image = np.full((3000, 50, 3), (200, 100, 50), np.uint8)
    shift_hsv_(image, 0, 1.0, 0.5)
    assert np.unique(image.reshape(-1, 3), axis=0).tolist() == [[100, 50, 25]]
