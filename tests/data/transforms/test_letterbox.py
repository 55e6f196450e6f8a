from __future__ import annotations

import numpy as np
import pytest

from visiontrain.boxes import warp_boxes
from visiontrain.data.transforms.geometry import FILL
from visiontrain.data.transforms.letterbox import Letterbox
from visiontrain.sample import SampleKey


@pytest.mark.parametrize(
    ("source", "expected"),
    [((480, 640), (256, 320)), ((640, 480), (320, 256)), ((100, 100), (320, 320)), ((10, 900), (32, 320))],
)
def test_the_long_side_fits_and_the_short_one_is_padded_to_the_stride(source, expected):
    box = Letterbox(320, 32)
    image, _ = box.fit(np.zeros((*source, 3), np.uint8))
    assert image.shape[:2] == expected == box.shape_of(*source)
    assert image.dtype == np.uint8


def test_square_pads_to_the_full_size():
    box = Letterbox(320, 32, square=True)
    assert box.fit(np.zeros((100, 300, 3), np.uint8))[0].shape == (320, 320, 3)
    assert box.shape_of(100, 300) == (320, 320)


def test_padding_is_grey_and_the_picture_in_the_middle():
    image, matrix = Letterbox(64, 32, square=True).fit(np.zeros((16, 64, 3), np.uint8))
    assert (image[24:40] == 0).all()
    assert (image[:24] == FILL).all()
    assert (image[40:] == FILL).all()
    np.testing.assert_array_equal(matrix, [[1, 0, 0], [0, 1, 24], [0, 0, 1]])


@pytest.mark.parametrize("size", [(480, 640), (479, 641), (33, 50), (1000, 300)])
def test_boxes_follow_the_pixels(size, painted, hull_of_white):
    height, width = size
    rectangle = (width // 5, height // 4, width // 2, height // 4 * 3)
    source = painted([size], [rectangle])
    sample = Letterbox(320, 32)(SampleKey(0, 0, 0), source)
    np.testing.assert_allclose(hull_of_white(sample.image), sample.boxes[0], atol=1.0)
    np.testing.assert_allclose(warp_boxes(np.array([rectangle]), sample.matrix), sample.boxes, atol=1e-3)
    assert sample.original_size == size


def test_every_box_of_the_record_stays(painted):
    source = painted([(640, 640)], [(100, 100, 101, 101)])
    assert len(Letterbox(64, 32)(SampleKey(0, 0, 0), source).boxes) == 1
