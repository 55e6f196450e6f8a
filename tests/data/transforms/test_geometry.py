from __future__ import annotations

import numpy as np
import pytest

from visiontrain.boxes import warp_boxes
from visiontrain.data.transforms.geometry import (
    FILL,
    Tile,
    flipping,
    foreshortening,
    move_all_boxes,
    move_boxes,
    rotation,
    scaling,
    shearing,
    translation,
    warp_tiles,
)

UPRIGHT = [
    scaling(1, 1),
    translation(10, -7.4) @ scaling(0.73, 1.31),
    flipping(160, 120, sideways=True, upside_down=False) @ translation(-31.7, 4.2) @ scaling(1.5, 1.5),
    flipping(160, 120, sideways=False, upside_down=True) @ translation(-31.7, 4.2) @ scaling(0.6, 0.6),
    flipping(160, 120, sideways=True, upside_down=True) @ translation(20.2, 14.2),
    translation(-180, -120) @ scaling(3, 3),
    translation(30, 30) @ scaling(0.3, 0.3),
]
ABOUT_MIDDLE = translation(80, 60)
FREE = [
    ABOUT_MIDDLE @ rotation(20) @ translation(-60, -45),
    ABOUT_MIDDLE @ rotation(-100) @ scaling(0.6, 0.6) @ translation(-60, -45),
    ABOUT_MIDDLE @ shearing(10, 5) @ translation(-60, -45),
    ABOUT_MIDDLE @ foreshortening(0.002, -0.003) @ translation(-60, -45),
    ABOUT_MIDDLE @ rotation(30) @ scaling(0.35, 0.35) @ translation(-60, -45),
]


def canvas_of(height=120, width=160):
    return np.full((height, width, 3), FILL, np.uint8)


@pytest.mark.parametrize("matrix", [*UPRIGHT, *FREE])
def test_boxes_follow_the_pixels(matrix, hull_of_white):
    image = np.zeros((90, 120, 3), np.uint8)
    image[30:60, 50:80] = 255
    canvas = canvas_of()
    (used,) = warp_tiles([Tile(image, matrix)], canvas)
    expected = warp_boxes(np.array([[50.0, 30.0, 80.0, 60.0]]), used)[0].clip(0, [160, 120, 160, 120])
    # a corner that is turned to a point is too thin to be white over its last pixel
    tolerance = 0.75 if used[0, 1] == used[2, 0] == 0 else 1.75
    np.testing.assert_allclose(hull_of_white(canvas), expected, atol=tolerance)


@pytest.mark.parametrize("matrix", UPRIGHT)
def test_rounding_an_upright_tile_to_whole_pixels_moves_nothing_visible_by_a_pixel(matrix):
    image = np.zeros((90, 120, 3), np.uint8)
    (used,) = warp_tiles([Tile(image, matrix)], canvas_of())
    corners = np.array([[0.0, 0.0, 120.0, 90.0]])
    asked, drawn = (warp_boxes(corners, m).clip(0, [160, 120, 160, 120]) for m in (matrix, used))
    np.testing.assert_allclose(drawn, asked, atol=max(1.0, abs(matrix[0, 0])))


def test_a_matrix_that_moves_nothing_copies_every_pixel():
    image = np.random.default_rng(0).integers(0, 256, (120, 160, 3), dtype=np.uint8)
    for matrix in (scaling(1, 1), rotation(360)):  # the second is not upright by a rounding error
        canvas = canvas_of()
        warp_tiles([Tile(image, matrix)], canvas)
        np.testing.assert_allclose(canvas, image, atol=1)


def test_the_free_warp_agrees_with_the_upright_one():
    smooth = np.add.outer(np.arange(90), np.arange(120))[..., None].repeat(3, axis=2).astype(np.uint8)
    fast, free = canvas_of(), canvas_of()
    matrix = translation(10, 7) @ scaling(0.75, 0.8)
    warp_tiles([Tile(smooth, matrix)], fast)
    warp_tiles([Tile(smooth, matrix @ shearing(1e-9, 0))], free)
    assert np.abs(fast.astype(int) - free).max() <= 2


@pytest.mark.parametrize("turn", [scaling(1, 1), rotation(17)])
@pytest.mark.parametrize("center", [(80.0, 60.0), (61.3, 77.8), (0.2, 119.7)])
def test_four_tiles_around_a_point_leave_no_gap_and_do_not_overlap(turn, center):
    white = np.full((300, 300, 3), 255, np.uint8)
    corners = [(-300, -300), (0, -300), (-300, 0), (0, 0)]
    matrices = [translation(*center) @ turn @ translation(x, y) for x, y in corners]
    covered = np.zeros((120, 160), int)
    for matrix in matrices:
        canvas = canvas_of()
        warp_tiles([Tile(white, matrix)], canvas)
        covered += canvas[..., 0] == 255
    assert (covered == 1).all()


def test_what_no_tile_covers_keeps_the_fill_and_a_tile_outside_draws_nothing():
    canvas = canvas_of()
    image = np.zeros((10, 10, 3), np.uint8)
    for matrix in (translation(500, 0), translation(-10, 0), translation(500, 500) @ rotation(30)):
        warp_tiles([Tile(image, matrix)], canvas)
    assert (canvas == FILL).all()
    warp_tiles([Tile(image, translation(20, 30))], canvas)
    assert (canvas[30:40, 20:30] == 0).all()
    assert (canvas == FILL).sum() == canvas.size - 300


@pytest.mark.parametrize("matrix", [scaling(0.125, 0.125), rotation(0.01) @ scaling(0.125, 0.125)])
def test_a_strong_reduction_averages_instead_of_picking_pixels(matrix):
    noise = np.random.default_rng(0).integers(0, 256, (400, 400, 3), dtype=np.uint8)
    canvas = np.zeros((50, 50, 3), np.uint8)
    warp_tiles([Tile(noise, matrix)], canvas)
    # an average of n values of noise has 1/√n of its deviation; bilinear alone would average 4, all of them are 64
    assert canvas.std() < noise.std() / np.sqrt(40)


@pytest.mark.parametrize("matrix", [*UPRIGHT, FREE[0], FREE[3]])
def test_boxes_are_moved_as_by_their_corners(matrix):
    boxes = np.random.default_rng(0).uniform(0, 90, (20, 4)).astype(np.float32)
    boxes[:, 2:] += boxes[:, :2]
    np.testing.assert_allclose(move_boxes(boxes, matrix), warp_boxes(boxes, matrix), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("matrices", [UPRIGHT, [UPRIGHT[1], FREE[0]]])
def test_moving_the_boxes_of_all_tiles_at_once_is_moving_those_of_each(matrices):
    rng = np.random.default_rng(0)
    boxes = [rng.uniform(0, 90, (count, 4)).astype(np.float32) for count in range(len(matrices))]
    for part in boxes:
        part[:, 2:] += part[:, :2]
    each = [move_boxes(part, matrix) for part, matrix in zip(boxes, matrices, strict=True)]
    together = move_all_boxes(boxes, matrices)
    np.testing.assert_array_equal(together, np.concatenate(each))
    assert together.dtype == np.float32
