from __future__ import annotations

import cv2
import numpy as np
import pytest

from visiontrain.data.check.prints import ALIKE_BITS, PRINT_BYTES, bits_between, find_alike, print_of
from visiontrain.data.images import read_image, reduce_image

RNG = np.random.default_rng(0)


def picture(seed, height=120, width=160):
    """Spots of light of all sizes, the stronger the larger, as photographs have them."""
    rng = np.random.default_rng(seed)
    image = np.full((height, width, 3), 128.0)
    for across in (4, 8, 16, 32, 64):
        spots = rng.uniform(-1, 1, (across * 3 // 4, across, 3))
        image += 240 / across**0.7 * cv2.resize(spots, (width, height), interpolation=cv2.INTER_CUBIC)
    return np.clip(image, 0, 220).astype(np.uint8)


def apart(a, b):
    left, right = (np.frombuffer(print_of(image), np.uint8)[None] for image in (a, b))
    return int(bits_between(left, right)[0])


def compressed(image, quality):
    return cv2.imdecode(cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])[1], cv2.IMREAD_COLOR)


@pytest.mark.parametrize(
    "copy_of",
    [
        lambda image: cv2.resize(image, (96, 72), interpolation=cv2.INTER_AREA),
        lambda image: compressed(image, 60),
        lambda image: np.clip(image * 1.15 + 4, 0, 255).astype(np.uint8),
        lambda image: cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB),
    ],
    ids=["resized", "compressed", "brighter", "grey"],
)
def test_a_copy_of_a_picture_has_a_near_print(copy_of):
    assert all(apart(image, copy_of(image)) <= ALIKE_BITS for image in map(picture, range(20)))


def test_different_pictures_have_prints_far_apart():
    images = [picture(seed) for seed in range(20)]
    assert min(apart(a, b) for a in images for b in images if a is not b) > 4 * ALIKE_BITS


def test_a_picture_of_one_color_has_no_print():
    assert print_of(np.full((50, 50, 3), 17, np.uint8)) is None
    noisy = np.full((400, 400, 3), 17, np.uint8) + RNG.integers(0, 3, (400, 400, 3), dtype=np.uint8)
    assert print_of(noisy) is None
    assert len(print_of(picture(0))) == PRINT_BYTES


def test_a_picture_of_one_pixel_can_be_printed():
    assert print_of(np.zeros((1, 1, 3), np.uint8)) is None
    assert print_of(RNG.integers(0, 256, (1, 9, 3), dtype=np.uint8)) is not None


def slow_alike(prints, groups, most_bits):
    """Whether each has a near print of a lower group: by comparing all pairs."""
    places = range(len(prints))
    return [
        any(groups[a] < groups[b] and np.unpackbits(prints[a] ^ prints[b]).sum() <= most_bits for a in places)
        for b in places
    ]


@pytest.mark.parametrize("num_bits", range(ALIKE_BITS + 3))
def test_what_is_near_is_found_as_by_comparing_all_pairs(num_bits):
    rng = np.random.default_rng(num_bits)
    prints = rng.integers(0, 256, (60, PRINT_BYTES), dtype=np.uint8)
    for copy in range(40, 60):
        bits = np.unpackbits(prints[copy - 40])
        bits[rng.choice(256, num_bits, replace=False)] ^= 1
        prints[copy] = np.packbits(bits)
    groups = rng.integers(0, 3, 60)
    alike = find_alike(prints, groups)
    assert ((alike >= 0) == slow_alike(prints, groups, ALIKE_BITS)).all()
    for place in np.flatnonzero(alike >= 0):
        assert groups[alike[place]] < groups[place]
        assert bits_between(prints[[alike[place]]], prints[[place]])[0] <= ALIKE_BITS


def test_equal_prints_are_found_however_many_there_are():
    groups = (RNG.random(5_000) < 0.1).astype(np.int64)
    alike = find_alike(np.zeros((5_000, PRINT_BYTES), np.uint8), groups)
    assert ((alike >= 0) == (groups == 1)).all()


@pytest.mark.parametrize("count", [0, 1])
def test_too_few_prints_have_no_neighbors(count):
    assert (find_alike(np.zeros((count, PRINT_BYTES), np.uint8), np.zeros(count, np.int64)) == -1).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("folder", "pattern"), [("bccd/images", "*.jpg"), ("signs", "*.JPG"), ("aquarium_yolo", "*.jpg")]
)
def test_pictures_of_one_kind_are_not_taken_for_copies(test_data, folder, pattern):
    images = [reduce_image(read_image(path), 640) for path in sorted((test_data / folder).rglob(pattern))]
    prints = np.stack([np.frombuffer(print_of(image), np.uint8) for image in images])
    assert (find_alike(prints, np.arange(len(prints))) == -1).all()
