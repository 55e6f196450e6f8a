from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from visiontrain.data.multi_scale import AtWindowSize, WindowSizes
from visiontrain.data.transforms.train import AugmentSettings, TrainTransform
from visiontrain.plan import Window
from visiontrain.sample import SampleKey


@pytest.mark.parametrize(
    ("imgsz", "stride", "expected"),
    [
        (640, 32, (320, 960)),
        (320, 32, (160, 480)),
        (320, 64, (192, 448)),
        (64, 32, (32, 96)),
        (32, 32, (32, 32)),
        (16, 32, (32, 32)),
        (100, 32, (64, 128)),
    ],
)
def test_sizes_are_all_multiples_of_the_stride_within_half_of_the_size(imgsz, stride, expected):
    sizes = WindowSizes(imgsz, stride, 0).all
    assert (sizes[0], sizes[-1]) == expected
    assert all(size % stride == 0 for size in sizes)


def test_every_size_is_about_equally_likely():
    sizes = WindowSizes(640, 32, 0)
    counts = Counter(sizes.of(Window(0, 0, start, (1,))) for start in range(2100))
    assert sorted(counts) == list(sizes.all)  # 21 sizes, 100 draws of each expected
    assert min(counts.values()) > 60
    assert max(counts.values()) < 150


def test_the_size_of_a_window_does_not_depend_on_how_it_is_cut():
    sizes = WindowSizes(640, 32, 0)
    for start in range(0, 640, 64):
        assert sizes.of(Window(start, 0, start, (64,))) == sizes.of(Window(start // 64, 0, start, (8,) * 8))


def test_runs_of_other_seeds_have_other_sizes():
    windows = [Window(0, 0, start, (1,)) for start in range(20)]
    assert [WindowSizes(640, 32, 0).of(one) for one in windows] != [WindowSizes(640, 32, 1).of(one) for one in windows]


@pytest.mark.parametrize(("imgsz", "stride"), [(0, 32), (640, 0)])
def test_a_size_without_pixels_is_refused(imgsz, stride):
    with pytest.raises(ValueError, match="from 1 up"):
        WindowSizes(imgsz, stride, 0)


def test_a_sample_at_another_size_is_that_of_a_run_of_this_size(painted):
    settings = AugmentSettings(imgsz=96, mosaic_until_epoch=0, degrees=10)
    source = painted([(48, 64)], [(8, 8, 40, 40)])
    key = SampleKey(0, 0, 0, size=160)
    sample = AtWindowSize(TrainTransform(settings, 0), int)(key, source)
    other = TrainTransform(replace(settings, imgsz=160), 0)(replace(key, size=None), source)
    assert sample.image.shape == (160, 160, 3)
    np.testing.assert_array_equal(sample.image, other.image)
    np.testing.assert_array_equal(sample.boxes, other.boxes)


def test_a_small_sample_is_made_of_images_that_were_reduced_by_averaging(painted):
    class Seen:
        """Gives the image that it loads."""

        def at_size(self, imgsz):
            return lambda key, images: images.load(key.index)

    source = painted([(96, 128)], [(0, 0, 1, 1)])
    source.images[0][:, ::2] = 200
    image = AtWindowSize(Seen(), lambda imgsz: 2 * imgsz)(SampleKey(0, 0, 0, size=32), source)
    assert image.shape == (48, 64, 3)
    assert np.abs(image[1:].astype(int) - 100).max() <= 1
