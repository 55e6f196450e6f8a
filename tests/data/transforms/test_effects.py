from __future__ import annotations

import cv2
import numpy as np
import pytest

from visiontrain.data.transforms.effects import blur, equalize, through_jpeg, to_gray


@pytest.fixture
def picture():
    coarse = np.random.default_rng(0).integers(60, 160, (6, 8, 3), dtype=np.uint8)
    image = np.asarray(cv2.resize(coarse, (128, 96), interpolation=cv2.INTER_CUBIC), np.uint8)
    image.flags.writeable = False
    return image


@pytest.mark.parametrize(
    "effect", [to_gray, lambda i: blur(i, 2), lambda i: equalize(i, 2), lambda i: through_jpeg(i, 30)]
)
def test_an_effect_changes_a_copy_and_keeps_shape_and_type(effect, picture):
    changed = effect(picture)
    assert changed.shape == picture.shape
    assert changed.dtype == np.uint8
    assert not np.array_equal(changed, picture)
    assert changed.flags.writeable


def test_gray_has_equal_channels_of_the_luma(picture):
    gray = to_gray(picture)
    assert (gray == gray[..., :1]).all()
    np.testing.assert_allclose(gray[..., 0], picture @ [0.299, 0.587, 0.114], atol=1)


def test_a_blur_takes_contrast_between_neighbors_and_leaves_the_mean(picture):
    noisy = np.random.default_rng(1).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    soft = blur(noisy, 1.5)
    assert soft.std() < noisy.std() / 3
    assert abs(soft.mean() - noisy.mean()) < 2


def test_equalizing_raises_contrast_and_leaves_gray_gray():
    flat = (100 + np.add.outer(np.arange(96), np.arange(128)) % 24).astype(np.uint8)[..., None].repeat(3, axis=2)
    more = equalize(flat, 4)
    assert more.std() > 1.5 * flat.std()
    assert np.abs(more.astype(int) - more[..., :1]).max() <= 2


def test_a_jpeg_of_lower_quality_is_further_from_the_picture(picture):
    errors = [np.abs(through_jpeg(picture, quality).astype(int) - picture).mean() for quality in (95, 60, 10)]
    assert errors == sorted(errors)
    assert errors[0] < 3 < 3 * errors[2]
