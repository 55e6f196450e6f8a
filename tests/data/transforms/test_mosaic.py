from __future__ import annotations

import numpy as np
import pytest

from visiontrain.boxes import warp_boxes
from visiontrain.data.transforms.mosaic import place_in_mosaic, place_nine


def rectangles_of(sizes, matrices):
    """(N, 4) xyxy: where images of these sizes lie on the canvas."""
    return np.concatenate(
        [warp_boxes(np.array([[0.0, 0, width, height]]), m) for (height, width), m in zip(sizes, matrices, strict=True)]
    )


def nine(sizes, center_x=160.0, center_y=160.0, imgsz=160):
    images = [np.zeros((*size, 3), np.uint8) for size in sizes]
    return rectangles_of(sizes, place_nine(images, center_x, center_y, imgsz))


def test_tiles_of_four_touch_the_center_with_their_long_side_at_full_size():
    for quarter, (x, y) in enumerate([(0, 0), (1, 0), (0, 1), (1, 1)]):
        image = np.zeros((60, 80, 3), np.uint8)
        box = warp_boxes(np.array([[0.0, 0, 80, 60]]), place_in_mosaic(image, quarter, 130.0, 150.0, 160))[0]
        np.testing.assert_allclose(box[2:] - box[:2], [160, 120])
        np.testing.assert_allclose([box[2 - 2 * x], box[3 - 2 * y]], [130, 150])


@pytest.mark.parametrize("seed", range(8))
def test_nine_tiles_never_overlap_and_each_touches_the_next_of_its_row(seed):
    sizes = [(int(h), int(w)) for h, w in np.random.default_rng(seed).integers(20, 200, (9, 2))]
    tiles = nine(sizes)
    for one in range(9):
        for other in range(one):
            sides = np.minimum(tiles[one, 2:], tiles[other, 2:]) - np.maximum(tiles[one, :2], tiles[other, :2])
            assert sides.min() < 1e-3
    for left, middle, right in ((1, 2, 3), (4, 0, 5), (6, 7, 8)):
        np.testing.assert_allclose([tiles[left, 2], tiles[middle, 2]], [tiles[middle, 0], tiles[right, 0]], atol=1e-3)
    np.testing.assert_allclose((tiles[:, 2:] - tiles[:, :2]).max(axis=1), 160 * 2 / 3, rtol=1e-4)


def test_the_first_of_nine_lies_about_the_given_point():
    tiles = nine([(60, 80)] * 9, center_x=140.0, center_y=190.0)
    np.testing.assert_allclose((tiles[0, :2] + tiles[0, 2:]) / 2, [140, 190], atol=1e-3)


def test_nine_images_of_one_shape_fill_a_rectangle_without_a_gap():
    tiles = nine([(60, 80)] * 9)
    area = (tiles[:, 2:] - tiles[:, :2]).prod(axis=1).sum()
    np.testing.assert_allclose(area, np.prod(tiles[:, 2:].max(axis=0) - tiles[:, :2].min(axis=0)), rtol=1e-4)
