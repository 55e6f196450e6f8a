"""A batch is drawn as tiles, large enough to be read."""

import cv2
import numpy as np
import pytest
import torch

from visiontrain.report.mosaic import draw_batch
from visiontrain.sample import Marks

NAMES = ("cell", "other")


def read(path) -> np.ndarray:
    picture = cv2.imdecode(np.frombuffer(path.read_bytes(), np.uint8), cv2.IMREAD_COLOR)
    assert picture is not None
    return picture


def marks(*boxes, score=None, caption=""):
    """Of boxes of the first class."""
    count = len(boxes)
    scores = None if score is None else np.full(count, score, np.float32)
    return Marks(np.array(boxes, np.float32).reshape(-1, 4), np.zeros(count, np.int64), scores, caption)


def draw(path, images, **settings):
    draw_batch(images, [marks((10, 10, 40, 50))] * len(images), NAMES, path, **settings)
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


def test_without_marks_the_image_stays_as_it_is_and_a_caption_is_written_at_its_foot(tmp_path):
    images = np.full((1, 3, 320, 320), 128, np.uint8)
    for caption in ("", "cell 0.93"):
        draw_batch(images, [marks(caption=caption)], NAMES, tmp_path / "a.jpg")
        tile = read(tmp_path / "a.jpg")[6:-6, 6:-6]
        assert abs(tile[:-40].astype(int) - 128).max() < 4
        assert (abs(tile[-20:].astype(int) - 128).max() > 60) == bool(caption)


def test_boxes_lie_on_the_enlarged_image(tmp_path):
    images = np.full((1, 3, 160, 160), 128, np.uint8)
    draw_batch(images, [marks((40, 60, 120, 140))], NAMES, tmp_path / "a.jpg")
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
        [marks((1, 1, 30, 30), score=0.5), marks(score=0.5, caption="größe")],
        NAMES,
        path,
        titles=["图像.jpg", "b" * 200],
    )
    assert read(path).shape == (328, 652, 3)


@pytest.mark.parametrize("shape", [(0, 3, 8, 8), (1, 8, 8, 3), (3, 8, 8)])
def test_images_of_another_form_are_refused(tmp_path, shape):
    with pytest.raises(ValueError, match="they should be \\(B, 3, H, W\\) uint8"):
        draw_batch(np.zeros(shape, np.uint8), [], NAMES, tmp_path / "a.jpg")
