from __future__ import annotations

from collections import Counter

import pytest

from visiontrain.data.transforms.multi_scale import size_of_window, sizes_about


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
    sizes = sizes_about(imgsz, stride)
    assert (sizes[0], sizes[-1]) == expected
    assert all(size % stride == 0 for size in sizes)


def test_a_size_depends_on_seed_epoch_and_window_alone():
    sizes = [size_of_window(0, epoch, window, 640, 32) for epoch in range(20) for window in range(20)]
    assert sizes == [size_of_window(0, epoch, window, 640, 32) for epoch in range(20) for window in range(20)]
    other = [size_of_window(1, epoch, window, 640, 32) for epoch in range(20) for window in range(20)]
    assert sizes != other
    assert sizes[:20] != sizes[20:40]


def test_every_size_is_about_equally_likely():
    counts = Counter(size_of_window(0, epoch, window, 640, 32) for epoch in range(30) for window in range(70))
    assert sorted(counts) == list(sizes_about(640, 32))  # 21 sizes, 100 draws of each expected
    assert min(counts.values()) > 60
    assert max(counts.values()) < 150


@pytest.mark.parametrize(("imgsz", "stride"), [(0, 32), (640, 0)])
def test_a_size_without_pixels_is_refused(imgsz, stride):
    with pytest.raises(ValueError, match="from 1 up"):
        size_of_window(0, 0, 0, imgsz, stride)
