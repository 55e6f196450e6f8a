from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from visiontrain.boxes import warp_boxes
from visiontrain.data.transforms.train import AugmentSettings, TrainTransform, is_worth_keeping, place_in_mosaic
from visiontrain.errors import ConfigError, DataError
from visiontrain.sample import SampleKey

PLAIN = AugmentSettings(
    imgsz=128, mosaic_until_epoch=10, mosaic=0, translate=0, scale=0, fliplr=0, hsv_h=0, hsv_s=0, hsv_v=0
)
ONE = ([(96, 128)], [(40, 30, 80, 70)])
FOUR = (
    [(96, 128), (128, 90), (128, 128), (50, 60)],
    [(40, 30, 80, 70), (10, 50, 60, 110), (20, 20, 50, 100), (5, 5, 45, 40)],
)


def same(a, b):
    return all(
        np.array_equal(getattr(a, name), getattr(b, name)) for name in ("image", "boxes", "classes", "matrix", "path")
    )


def test_without_augmentation_a_sample_is_the_letterboxed_image(painted):
    sample = TrainTransform(PLAIN, 0)(SampleKey(0, 0, 0), painted(*ONE))
    assert sample.image.shape == (128, 128, 3)
    assert (sample.image[:16] == 114).all()
    np.testing.assert_allclose(sample.boxes, [[40, 46, 80, 86]])
    np.testing.assert_allclose(sample.matrix, [[1, 0, 0], [0, 1, 16], [0, 0, 1]])


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"fliplr": 1.0},
        {"flipud": 1.0, "fliplr": 0.5},
        {"scale": 0.5, "translate": 0.1},
        {"scale": 0.5, "translate": 0.1, "fliplr": 0.5, "flipud": 0.5},
        {"degrees": 40.0},
        {"shear": 10.0, "scale": 0.3},
        {"perspective": 0.001},
    ],
)
def test_the_box_of_a_moved_image_surrounds_its_pixels(change, painted, hull_of_white):
    source = painted(*ONE)
    transform = TrainTransform(replace(PLAIN, **change), 0)
    is_upright = not {"degrees", "shear", "perspective"} & set(change)
    for epoch in range(15):
        sample = transform(SampleKey(epoch, 0, 0), source)
        np.testing.assert_allclose(hull_of_white(sample.image), sample.boxes[0], atol=1 if is_upright else 2.5)
        moved = warp_boxes(np.array([[40.0, 30, 80, 70]]), sample.matrix).clip(0, 128)
        np.testing.assert_allclose(moved, sample.boxes, atol=0.01)


def test_the_boxes_of_a_mosaic_surround_the_pixels_of_their_tiles(painted):
    sizes, rectangles = FOUR
    for index in range(4):  # paint one rectangle at a time, so that its pixels can be told from the others
        source = painted(sizes, rectangles)
        for other in set(range(4)) - {index}:
            source.images[other][:] = 0
        transform = TrainTransform(replace(PLAIN, mosaic=1, scale=0.5, translate=0.1, fliplr=0.5), 1)
        seen = 0
        for epoch in range(9):
            sample = transform(SampleKey(epoch, 0, 0), source)
            boxes = sample.boxes[sample.classes == index]
            white = sample.image[..., 0] > 127
            if len(boxes) != 1:  # not in this mosaic, twice, or cut away
                continue
            rows, columns = np.nonzero(white)
            hull = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
            np.testing.assert_allclose(hull, boxes[0], atol=1.0)
            seen += 1
        assert seen > 0


def test_a_mosaic_holds_four_images_and_stops_at_its_epoch(painted):
    source = painted(*FOUR)
    transform = TrainTransform(replace(PLAIN, mosaic=1, mosaic_until_epoch=3), 0)
    counts = [[len(transform(SampleKey(epoch, i, i), source).classes) for i in range(4)] for epoch in range(6)]
    assert max(max(row) for row in counts[:3]) > 1
    assert {count for row in counts[3:] for count in row} == {1}


def test_tiles_of_a_mosaic_touch_its_center_with_their_long_side_at_full_size():
    for quarter, (x, y) in enumerate([(0, 0), (1, 0), (0, 1), (1, 1)]):
        image = np.zeros((60, 80, 3), np.uint8)
        box = warp_boxes(np.array([[0.0, 0, 80, 60]]), place_in_mosaic(image, quarter, 130.0, 150.0, 160))[0]
        np.testing.assert_allclose(box[2:] - box[:2], [160, 120])
        np.testing.assert_allclose([box[2 - 2 * x], box[3 - 2 * y]], [130, 150])


def test_the_same_key_makes_the_same_sample_and_other_keys_others(painted):
    source = painted(*FOUR)
    transform = TrainTransform(AugmentSettings(imgsz=96, mosaic_until_epoch=9, mixup=0.5, degrees=5), 3)
    first = transform(SampleKey(1, 2, 0), source)
    assert same(first, transform(SampleKey(1, 2, 0), source))
    for key in (SampleKey(2, 2, 0), SampleKey(1, 2, 1), SampleKey(1, 2, 0, occurrence=1)):
        assert not same(first, transform(key, source))
    assert not same(first, TrainTransform(transform.settings, 4)(SampleKey(1, 2, 0), source))


def test_images_handed_in_are_not_changed(painted):
    source = painted(*FOUR)
    before = [image.copy() for image in source.images]
    transform = TrainTransform(AugmentSettings(imgsz=128, mosaic_until_epoch=9, mosaic=0.5, mixup=0.5), 0)
    for index in range(4):
        source.images[index].flags.writeable = False
        transform(SampleKey(0, index, index), source)
    for image, copy in zip(source.images, before, strict=True):
        np.testing.assert_array_equal(image, copy)


def test_mixup_blends_two_samples_and_keeps_the_boxes_of_both(painted):
    source = painted([(128, 128)] * 2, [(10, 10, 50, 50), (70, 70, 120, 120)])
    sample = TrainTransform(replace(PLAIN, mixup=1), 0)(SampleKey(0, 0, 0), source)
    assert sorted(sample.classes.tolist()) == [0, 1]
    first, second = int(sample.image[30, 30, 0]), int(sample.image[100, 100, 0])
    assert abs(first + second - 255) <= 1
    assert 64 < first < 191


def test_an_unreadable_partner_is_replaced_by_another(painted):
    class Broken(painted):
        def load(self, index):
            if index == 2:
                raise DataError("2.png: damaged")
            return super().load(index)

    transform = TrainTransform(replace(PLAIN, mosaic=1), 0)
    for epoch in range(8):
        sample = transform(SampleKey(epoch, 0, 0), Broken(*FOUR))
        assert 2 not in sample.classes


def test_a_box_is_kept_if_enough_of_it_is_left():
    moved = np.array([[0, 0, 10, 10], [-95, 0, 5, 100], [-85, 0, 15, 100], [0, 0, 1.5, 50], [0, 0, 300, 2.5]], float)
    assert is_worth_keeping(moved, moved.clip(0, 320)).tolist() == [True, False, True, False, False]


def test_color_changes_pixels_and_no_boxes(painted):
    source = painted(*ONE)
    key = SampleKey(0, 0, 0)
    plain, colored = (TrainTransform(s, 0)(key, source) for s in (PLAIN, replace(PLAIN, hsv_v=0.4)))
    assert not np.array_equal(plain.image, colored.image)
    np.testing.assert_array_equal(plain.boxes, colored.boxes)


def test_values_out_of_range_are_refused_all_at_once():
    with pytest.raises(ConfigError, match=r"mosaic = 2 is not a probability") as caught:
        replace(PLAIN, mosaic=2, scale=1.0, translate=-0.1, imgsz=0)
    assert len(caught.value.faults) == 4


def test_mixup_ends_with_mosaic(painted):
    transform = TrainTransform(replace(PLAIN, mixup=1, mosaic_until_epoch=3), 0)
    counts = [len(transform(SampleKey(epoch, 0, 0), painted(*FOUR)).boxes) for epoch in range(5)]
    assert counts == [2, 2, 2, 1, 1]
