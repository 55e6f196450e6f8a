"""A batch is drawn as tiles, large enough to be read."""

import cv2
import numpy as np
import pytest
import torch

from visiontrain.report.mosaic import draw_batch

NAMES = ("cell", "other")


def read(path) -> np.ndarray:
    picture = cv2.imdecode(np.frombuffer(path.read_bytes(), np.uint8), cv2.IMREAD_COLOR)
    assert picture is not None
    return picture


def draw(path, images, **settings):
    boxes = [[[10, 10, 40, 50], [0, 0, 0, 0]]] * len(images)
    draw_batch(images, boxes, [[0, -1]] * len(images), NAMES, path, **settings)
    return read(path)


def test_small_images_are_enlarged_and_large_ones_reduced(tmp_path):
    for size, tile in ((64, 320), (320, 320), (500, 500), (1280, 640)):
        picture = draw(tmp_path / "a.jpg", torch.zeros(1, 3, size, size, dtype=torch.uint8))
        assert picture.shape[:2] == (tile + 8, tile + 8)


def test_tiles_stand_in_columns_and_no_more_than_asked_for(tmp_path):
    images = torch.zeros(7, 3, 64, 64, dtype=torch.uint8)
    assert draw(tmp_path / "a.jpg", images, columns=3).shape[:2] == (3 * 324 + 4, 3 * 324 + 4)
    assert draw(tmp_path / "a.jpg", images, columns=3, max_images=2).shape[:2] == (328, 2 * 324 + 4)


def test_colors_are_those_of_the_rgb_images_given(tmp_path):
    image = np.zeros((1, 3, 320, 320), np.uint8)
    image[:, 0] = 250  # red
    picture = draw(tmp_path / "a.jpg", image)
    blue, green, red = picture[300, 300].astype(int)
    assert red > 230
    assert max(blue, green) < 25


def test_padding_rows_are_not_drawn(tmp_path):
    images = np.full((1, 3, 320, 320), 128, np.uint8)
    draw_batch(images, [[[50, 50, 200, 200]]], [[-1]], NAMES, tmp_path / "a.jpg", scores=[[0.5]])
    tile = read(tmp_path / "a.jpg")[6:-6, 6:-6]
    assert abs(tile.astype(int) - 128).max() < 4


def test_boxes_lie_on_the_enlarged_image(tmp_path):
    images = np.full((1, 3, 160, 160), 128, np.uint8)
    draw_batch(images, [[[40, 60, 120, 140]]], [[0]], NAMES, tmp_path / "a.jpg")
    changed = abs(read(tmp_path / "a.jpg")[4:-4, 4:-4].astype(int) - 128).max(axis=2) > 60
    rows, columns = np.nonzero(changed)
    assert abs(columns.min() - 80) <= 2
    assert abs(columns.max() - 240) <= 2
    assert abs(rows.max() - 280) <= 2


def test_scores_titles_and_a_path_with_any_letters_are_taken(tmp_path):
    images = torch.zeros(2, 3, 64, 64, dtype=torch.uint8)
    path = tmp_path / "größe 图.jpg"
    draw_batch(
        images,
        [[[1, 1, 30, 30]], np.zeros((0, 4))],
        [[1], []],
        NAMES,
        path,
        scores=[[0.5], []],
        titles=["图像.jpg", "b" * 200],
    )
    assert read(path).shape == (328, 652, 3)


@pytest.mark.parametrize("shape", [(0, 3, 8, 8), (1, 8, 8, 3), (3, 8, 8)])
def test_images_of_another_form_are_refused(tmp_path, shape):
    with pytest.raises(ValueError, match="they should be \\(B, 3, H, W\\) uint8"):
        draw_batch(np.zeros(shape, np.uint8), [], [], NAMES, tmp_path / "a.jpg")
