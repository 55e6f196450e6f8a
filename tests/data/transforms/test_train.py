from __future__ import annotations

from dataclasses import astuple, replace

import numpy as np
import pytest

from visiontrain.boxes import warp_boxes
from visiontrain.data.sampler import epoch_permutation
from visiontrain.data.transforms.geometry import FILL
from visiontrain.data.transforms.train import AugmentSettings, TrainTransform
from visiontrain.errors import ConfigError, DataError
from visiontrain.sample import DroppedBoxes, SampleKey

PLAIN = AugmentSettings(
    imgsz=128, mosaic_until_epoch=10, mosaic=0, translate=0, scale=0, fliplr=0, hsv_h=0, hsv_s=0, hsv_v=0
)
ONE = ([(96, 128)], [(40, 30, 80, 70)])
FOUR = (
    [(96, 128), (128, 90), (128, 128), (50, 60)],
    [(40, 30, 80, 70), (10, 50, 60, 110), (20, 20, 50, 100), (5, 5, 45, 40)],
)


NINE = (
    [(96, 128), (128, 90), (128, 128), (50, 60), (80, 128), (128, 64), (100, 100), (60, 128), (128, 100)],
    [(10 + k, 12, 40 + 2 * k, 45) for k in range(9)],
)
PIXELS = {"gray": 1.0, "blur": 1.0, "clahe": 1.0, "jpeg": 1.0}


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


def alone(painted, scene, index):
    """The scene with only one of its rectangles in sight, so that its pixels can be told from the others."""

    class Watched(painted):
        def __init__(self, sizes, rectangles):
            super().__init__(sizes, rectangles)
            self.partners_drawn = []

        def partners(self, key, rng, count):
            found = super().partners(key, rng, count)
            self.partners_drawn.extend(found)
            return found

    source = Watched(*scene)
    for other in set(range(len(source.images))) - {index}:
        source.images[other][:] = 0
    return source


@pytest.mark.parametrize(
    ("change", "tolerance"),
    [
        ({"mosaic": 1, "mosaic9": 1}, 1.0),
        ({"mosaic": 1, "mosaic9": 1, "degrees": 15.0}, 2.5),
        ({"mosaic": 1, "crop": 0.5}, 1.5),
        ({"mosaic": 1, "mosaic9": 0.5, "crop": 0.5, "shear": 5.0}, 2.5),
    ],
)
def test_boxes_of_composed_and_cropped_tiles_surround_their_pixels(change, tolerance, painted):
    transform = TrainTransform(replace(PLAIN, mosaic_until_epoch=25, scale=0.5, translate=0.1, fliplr=0.5, **change), 1)
    seen = 0
    for index in range(0, 9, 3):
        source = alone(painted, NINE, index)
        for epoch in range(25):
            source.partners_drawn.clear()
            sample = transform(SampleKey(epoch, 0, 0), source)
            boxes = sample.boxes[sample.classes == index]
            if [0, *source.partners_drawn].count(index) != 1 or len(boxes) != 1:  # absent, twice, or cut away
                continue
            if {"degrees", "shear"} & set(change) and not (boxes.min() > 0 and boxes.max() < 128):
                continue  # the canvas may have cut the corner that the hull of a turned box goes to
            rows, columns = np.nonzero(sample.image[..., 0] > 127)
            hull = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
            gain = 1.0 if "crop" not in change else np.linalg.norm(boxes[0, 2:] - boxes[0, :2]) / 30
            np.testing.assert_allclose(hull, boxes[0], atol=tolerance * max(1.0, gain))
            seen += 1
    assert seen > 4


@pytest.mark.parametrize("change", [{}, {"degrees": 30.0}, {"scale": 0.5, "fliplr": 0.5, "flipud": 0.5}])
def test_a_cropped_image_keeps_its_box_around_its_pixels_and_shows_nothing_beyond_the_window(change, painted):
    scene = ([(96, 128)], [(40, 30, 80, 70)])
    transform = TrainTransform(replace(PLAIN, mosaic_until_epoch=100, crop=1, **change), 0)
    matrices = set()
    for epoch in range(40):
        sample = transform(SampleKey(epoch, 0, 0), painted(*scene))
        matrices.add(sample.matrix.tobytes())
        white = sample.image[..., 0] > 127
        if not len(sample.boxes):
            assert sample.dropped != DroppedBoxes()
            continue
        gain = np.sqrt(abs(np.linalg.det(sample.matrix[:2, :2])))
        rows, columns = np.nonzero(white)
        hull = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
        if "degrees" not in change:
            np.testing.assert_allclose(hull, sample.boxes[0], atol=0.75 * max(1, gain))
        else:  # the hull of a turned piece is that of its cut rectangle, whose far corners the canvas may have cut
            low, high = np.array(hull[:2]), np.array(hull[2:])
            slack = 2.5 * max(1, gain)
            assert (low >= sample.boxes[0, :2] - slack).all()
            assert (high <= sample.boxes[0, 2:] + slack).all()
    assert len(matrices) > 20


def test_a_mosaic_of_nine_holds_more_images_and_ends_with_mosaic(painted):
    source = painted(*NINE)
    settings = replace(PLAIN, mosaic=1, mosaic9=1, mosaic_until_epoch=4, scale=0.5)
    transform, without = TrainTransform(settings, 0), TrainTransform(replace(settings, mosaic9=0), 0)
    assert max(len(transform(SampleKey(epoch, 0, 0), source).boxes) for epoch in range(4)) > 4
    for epoch in (4, 5):
        assert same(transform(SampleKey(epoch, 0, 0), source), without(SampleKey(epoch, 0, 0), source))


def test_copy_paste_adds_the_boxes_of_a_partner_with_their_pixels(painted):
    scene = ([(128, 128)] * 2, [(10, 10, 50, 50), (70, 70, 120, 120)])
    transform = TrainTransform(replace(PLAIN, copy_paste=1, fliplr=0.5, mosaic_until_epoch=10), 0)
    for epoch in range(9):
        place = int(epoch_permutation(2, 0, epoch).tolist().index(0))  # so that the partner is the other image
        sample = transform(SampleKey(epoch, place, 0), alone(painted, scene, 1))
        assert sorted(sample.classes.tolist()) == [0, 1]
        rows, columns = np.nonzero(sample.image[..., 0] > 127)
        hull = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
        np.testing.assert_allclose(hull, sample.boxes[sample.classes == 1][0], atol=1)
    assert TrainTransform(transform.settings, 0)(SampleKey(10, 0, 0), painted(*scene)).classes.tolist() == [0]


def test_a_flip_sideways_exchanges_the_classes_of_a_pair_and_one_upside_down_does_not(painted):
    source = painted([(96, 128)] * 3, [(40, 30, 80, 70)] * 3)
    for index, swapped in enumerate([1, 0, 2]):
        for change, expected in (({"fliplr": 1}, swapped), ({"flipud": 1}, index), ({}, index)):
            transform = TrainTransform(replace(PLAIN, flip_swap=((0, 1),), **change), 0)
            assert transform(SampleKey(0, index, index), source).classes.tolist() == [expected]


def test_a_patch_that_is_pasted_mirrored_changes_its_class_too(painted):
    source = painted([(128, 128)] * 2, [(10, 10, 50, 50), (70, 70, 120, 120)])
    place = int(epoch_permutation(2, 0, 0).tolist().index(0))
    for fliplr, expected in ((0.0, [0, 1]), (1.0, [0, 5])):
        settings = replace(PLAIN, copy_paste=1, fliplr=fliplr, flip_swap=((1, 5),))
        assert TrainTransform(settings, 0)(SampleKey(0, place, 0), source).classes.tolist() == expected


@pytest.mark.parametrize("change", [{}, {"mosaic": 1, "mosaic9": 0.5, "crop": 0.5, "mixup": 0.5, "scale": 0.5}])
def test_every_box_of_the_images_is_in_the_sample_or_counted_as_dropped(change, painted):
    source = painted(*NINE)
    transform = TrainTransform(replace(PLAIN, **change), 0)
    totals = []
    for epoch in range(10):
        sample = transform(SampleKey(epoch, 0, 0), source)
        lost = sum(astuple(sample.dropped))
        totals.append(len(sample.boxes) + lost)
    # one box in each image; blended samples hold the boxes of two mosaics
    assert set(totals) <= ({4, 8, 9, 13, 18} if change else {1})


def test_what_is_off_draws_nothing(painted):
    # The numbers are from before mosaic of nine, copy-paste, crop and the effects existed.
    settings = AugmentSettings(imgsz=128, mosaic_until_epoch=9, mixup=0.5, degrees=5)
    sample = TrainTransform(settings, 3)(SampleKey(1, 2, 0), painted(*FOUR))
    np.testing.assert_allclose(
        sample.matrix, [[-1.44424, -0.06461, 198.82149], [-0.06461, 1.44424, -39.41522], [0, 0, 1]], atol=1e-4
    )
    np.testing.assert_allclose(sample.boxes, [[78.76, 0, 128, 59.097], [27.137, 0, 128, 52.406]], atol=1e-2)


def test_effects_on_pixels_change_no_box(painted):
    settings = AugmentSettings(imgsz=128, mosaic_until_epoch=9)
    source = painted(*FOUR)
    for image in source.images:
        image[..., 1] //= 2  # a color, for gray to take away
    for name in PIXELS:
        plain, changed = (
            TrainTransform(s, 0)(SampleKey(0, 0, 0), source) for s in (settings, replace(settings, **{name: 1.0}))
        )
        assert not np.array_equal(plain.image, changed.image)
        np.testing.assert_array_equal(plain.boxes, changed.boxes)
        np.testing.assert_array_equal(plain.matrix, changed.matrix)


def test_a_mosaic_holds_four_images_and_stops_at_its_epoch(painted):
    source = painted(*FOUR)
    transform = TrainTransform(replace(PLAIN, mosaic=1, mosaic_until_epoch=3), 0)
    counts = [[len(transform(SampleKey(epoch, i, i), source).classes) for i in range(4)] for epoch in range(6)]
    assert max(max(row) for row in counts[:3]) > 1
    assert {count for row in counts[3:] for count in row} == {1}


def test_the_same_key_makes_the_same_sample_and_other_keys_others(painted):
    source = painted(*FOUR)
    settings = AugmentSettings(imgsz=96, mosaic_until_epoch=9, mixup=0.5, degrees=5)
    transform = TrainTransform(replace(settings, mosaic9=0.5, copy_paste=0.5, crop=0.5, jpeg=0.5), 3)
    first = transform(SampleKey(1, 2, 0), source)
    assert same(first, transform(SampleKey(1, 2, 0), source))
    for key in (SampleKey(2, 2, 0), SampleKey(1, 2, 1), SampleKey(1, 2, 0, occurrence=1)):
        assert not same(first, transform(key, source))
    assert not same(first, TrainTransform(transform.settings, 4)(SampleKey(1, 2, 0), source))


def test_images_handed_in_are_not_changed(painted):
    source = painted(*FOUR)
    before = [image.copy() for image in source.images]
    settings = AugmentSettings(imgsz=128, mosaic_until_epoch=9, mosaic=0.5, mixup=0.5, copy_paste=0.7, crop=0.5)
    transform = TrainTransform(replace(settings, mosaic9=0.5, **PIXELS), 0)
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


def test_color_changes_pixels_and_no_boxes(painted):
    source = painted(*ONE)
    key = SampleKey(0, 0, 0)
    plain, colored = (TrainTransform(s, 0)(key, source) for s in (PLAIN, replace(PLAIN, hsv_v=0.4)))
    assert not np.array_equal(plain.image, colored.image)
    np.testing.assert_array_equal(plain.boxes, colored.boxes)


@pytest.mark.parametrize("change", [{}, {"mixup": 1.0}, {"copy_paste": 1.0}, {"degrees": 20.0}, {"flipud": 1.0}])
def test_color_changes_the_padding_as_it_does_the_picture(change, painted):
    settings = replace(PLAIN, mosaic=1, scale=0.5, hsv_h=0.5, hsv_s=0.9, hsv_v=0.4, **change)
    source = painted(*FOUR)
    for image in source.images:
        image[:] = FILL
    values = set()
    for epoch in range(9):
        image = TrainTransform(settings, 0)(SampleKey(epoch, 0, 0), source).image
        assert np.ptp(image.astype(int)) <= 1  # channels may be rounded differently
        values.add(int(image[0, 0, 0]))
    assert len(values) > 3


def test_values_out_of_range_are_refused_all_at_once():
    with pytest.raises(ConfigError, match=r"mosaic = 2 is not a probability") as caught:
        replace(PLAIN, mosaic=2, scale=1.0, translate=-0.1, imgsz=0)
    assert len(caught.value.faults) == 4


@pytest.mark.parametrize("pairs", [((0, 0),), ((0, 1), (1, 2)), ((-1, 2),)])
def test_a_class_that_would_be_swapped_with_two_others_is_refused(pairs):
    with pytest.raises(ConfigError, match="each once"):
        replace(PLAIN, flip_swap=pairs)


@pytest.mark.parametrize("name", ["mosaic9", "copy_paste", "crop", "gray", "blur", "clahe", "jpeg"])
def test_a_probability_above_one_is_refused(name):
    with pytest.raises(ConfigError, match=f"{name} = 1.5 is not a probability"):
        replace(PLAIN, **{name: 1.5})


def test_mixup_ends_with_mosaic(painted):
    transform = TrainTransform(replace(PLAIN, mixup=1, mosaic_until_epoch=3), 0)
    counts = [len(transform(SampleKey(epoch, 0, 0), painted(*FOUR)).boxes) for epoch in range(5)]
    assert counts == [2, 2, 2, 1, 1]
