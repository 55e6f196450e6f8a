import numpy as np
import pytest

from visiontrain.predict.pixels import rgb_of_array


@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 1)])
def test_a_gray_array_has_three_equal_channels(shape):
    gray = np.arange(35, dtype=np.uint8).reshape(shape)
    rgb = rgb_of_array(gray, "image0")
    assert rgb.shape == (5, 7, 3)
    assert all((rgb[..., channel] == gray.reshape(5, 7)).all() for channel in range(3))


def test_three_columns_of_a_gray_array_are_no_channels():
    assert rgb_of_array(np.zeros((8, 3), np.uint8), "image0").shape == (8, 3, 3)


def test_channels_of_an_array_change_their_order_and_the_array_stays(picture):
    bgr = picture()
    before = bgr.copy()
    rgb = rgb_of_array(bgr, "image0")
    np.testing.assert_array_equal(rgb[..., 0], bgr[..., 2])
    rgb[:] = 0
    np.testing.assert_array_equal(bgr, before)
