from __future__ import annotations

import colorsys

import numpy as np
import pytest

from visiontrain.data.transforms.color import color_matrix, shift_colors_

CHANGES = [(0.0, 1.0, 1.0), (0.015, 1.7, 0.6), (-0.015, 0.3, 1.4), (1 / 3, 1.0, 1.0), (0.0, 0.0, 1.0), (0.4, 1.2, 0.9)]


@pytest.mark.parametrize("change", CHANGES)
def test_every_pixel_is_multiplied_by_the_matrix_rounded_and_clipped(change):
    image = np.random.default_rng(0).integers(0, 256, (7, 9, 3), dtype=np.uint8)
    expected = np.clip(np.einsum("ij,hwj->hwi", color_matrix(*change).astype(float), image.astype(float)), 0, 255)
    shift_colors_(image, *change)
    assert np.abs(image - expected).max() <= 0.75  # OpenCV calculates with 10 binary digits


def test_without_a_change_every_color_stays():
    np.testing.assert_allclose(color_matrix(0.0, 1.0, 1.0), np.eye(3), atol=1e-6)


@pytest.mark.parametrize("change", CHANGES)
def test_grey_stays_grey_and_its_brightness_is_multiplied(change):
    image = np.full((4, 4, 3), 100, np.uint8)
    shift_colors_(image, *change)
    assert np.abs(image.astype(int) - 100 * change[2]).max() <= 1


def test_hue_is_turned_in_the_direction_of_the_color_circle():
    for turn in (0.05, -0.05, 0.25):
        color = np.array([0.6, 0.45, 0.4])
        before = colorsys.rgb_to_hsv(*color)[0]
        after = colorsys.rgb_to_hsv(*(color_matrix(turn, 1, 1) @ color))[0]
        assert (after - before + 0.5) % 1 - 0.5 == pytest.approx(turn, abs=0.03)


def test_a_whole_turn_and_opposite_turns_change_nothing():
    np.testing.assert_allclose(color_matrix(1.0, 1.0, 1.0), np.eye(3), atol=1e-6)
    np.testing.assert_allclose(color_matrix(0.2, 1, 1) @ color_matrix(-0.2, 1, 1), np.eye(3), atol=5e-3)


def test_without_saturation_all_channels_are_the_luminance():
    image = np.random.default_rng(0).integers(0, 256, (5, 5, 3), dtype=np.uint8)
    luminance = image @ np.array([0.213, 0.715, 0.072])
    shift_colors_(image, 0.0, 0.0, 1.0)
    assert np.abs(image - luminance[..., None]).max() <= 0.51
