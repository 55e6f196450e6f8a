from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from visiontrain.data.transforms.resized_crop import ASPECTS, draw_window, middle_square

sides = st.integers(1, 2000)


@given(sides, sides, st.floats(0.001, 1), st.integers(0, 99))
def test_a_window_lies_in_the_image_and_is_never_empty(height, width, least_area, seed):
    left, top, right, bottom = draw_window(height, width, least_area, np.random.default_rng(seed))
    assert 0 <= left < right <= width
    assert 0 <= top < bottom <= height


@pytest.mark.parametrize("size", [(300, 400), (400, 300), (350, 350), (200, 900)])
def test_area_and_aspect_of_a_window_are_as_asked(size):
    height, width = size
    rng = np.random.default_rng(0)
    windows = np.array([draw_window(height, width, 0.3, rng) for _ in range(300)])
    wide, high = (windows[:, 2:] - windows[:, :2]).T
    assert ((wide / high > ASPECTS[0] * 0.98) & (wide / high < ASPECTS[1] * 1.02)).all()
    shares = wide * high / (height * width)
    # Only windows of up to 4/9 · 4/3 of a 2:9 strip have an allowed aspect.
    assert shares.min() == pytest.approx(0.3, abs=0.02)
    assert shares.max() <= 1


def test_of_a_strip_in_which_no_window_fits_the_middle_is_seen():
    assert draw_window(100, 2000, 0.9, np.random.default_rng(0)) == (933, 0, 1066, 100)
    assert draw_window(2000, 100, 0.9, np.random.default_rng(0)) == (0, 933, 100, 1066)


def test_the_middle_square_leaves_as_much_on_either_side():
    assert middle_square(30, 50) == (10, 0, 40, 30)
    assert middle_square(51, 30) == (0, 10, 30, 40)
