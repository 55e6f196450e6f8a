from __future__ import annotations

import cv2
import numpy as np
import pytest

from visiontrain.report.thumbnails import LONG_SIDE, MOST_MARGIN, thumbnail

GREY = np.full((300, 600, 3), 200, np.uint8)


def drawn(*arguments, **more):
    image = cv2.imdecode(np.frombuffer(thumbnail(*arguments, **more), np.uint8), cv2.IMREAD_COLOR)
    assert image is not None
    return image


def marked_columns(image):
    """The columns in which much is magenta."""
    blue, green, red = image.astype(int).transpose(2, 0, 1)
    return np.flatnonzero((np.minimum(blue, red) - green > 60).sum(axis=0) > 20)


@pytest.mark.parametrize("shape", [(300, 600), (600, 300), (8, 5), (1, 2000)])
def test_the_long_side_is_that_of_a_thumbnail(shape):
    assert max(drawn(np.full((*shape, 3), 90, np.uint8), [], [], ["a"]).shape) == LONG_SIDE


def test_colors_are_those_of_the_image():
    image = np.full((64, 64, 3), (200, 60, 20), np.uint8)
    np.testing.assert_allclose(drawn(image, [], [], ["a"])[10, 10], (20, 60, 200), atol=4)


def test_boxes_are_drawn_at_their_place():
    image = drawn(GREY, [[0.25, 0.25, 0.75, 0.75]], [0], ["a"])
    assert np.abs(image[80, 80].astype(int) - 200).max() > 40  # the left edge
    np.testing.assert_allclose(image[80, 160], 200, atol=4)


def test_a_marked_box_inside_needs_no_margin():
    image = drawn(GREY, [], [], ["a"], marked=[[0.25, 0.2, 0.5, 0.8]])
    assert image.shape[:2] == (160, 320)
    assert {80, 160} <= set(marked_columns(image).tolist())


def test_what_reaches_beyond_the_image_is_seen_beside_it():
    image = drawn(GREY, [], [], ["a"], marked=[[0.9, 0.2, 1.1, 0.8]])
    assert image.shape[1] > 320
    assert marked_columns(image).max() > 330
    assert drawn(GREY, [], [], ["a"], marked=[[-9, 0.2, 0.5, 0.8]]).shape[1] <= round(320 * (1 + MOST_MARGIN)) + 8


def test_what_is_too_far_away_to_be_seen_is_left_out():
    assert drawn(GREY, [], [], ["a"], marked=[[300, 200, 350, 250]]).shape[:2] == (160, 320)
