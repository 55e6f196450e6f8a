from __future__ import annotations

import pickle
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from visiontrain.boxes import warp_boxes
from visiontrain.data.dataset import EvalDataset, TrainDataset
from visiontrain.data.sampler import Sampler, epoch_permutation
from visiontrain.data.transforms.classify import ClassifySettings, ClassifyTrain, ClassifyVal, stored_long_side
from visiontrain.errors import ConfigError
from visiontrain.sample import Record, Records, SampleKey

PLAIN = ClassifySettings(imgsz=64, scale=0, fliplr=0, hsv_h=0, hsv_s=0, hsv_v=0)
EVERYTHING = ClassifySettings(
    imgsz=32, degrees=10, flipud=0.5, auto_augment="randaugment", erasing=0.5, mixup=0.4, cutmix=0.4
)
SCENE = (
    [(96, 128), (128, 90), (64, 64), (50, 60)],
    [(40, 30, 80, 70), (10, 50, 60, 110), (20, 20, 50, 50), (5, 5, 45, 40)],
)


def same(a, b):
    return all(np.array_equal(getattr(a, field.name), getattr(b, field.name)) for field in fields(a))


def test_without_augmentation_a_sample_is_the_middle_square(painted):
    source = painted([(64, 100)], [(30, 10, 70, 50)])
    sample = ClassifyTrain(PLAIN, 0)(SampleKey(0, 0, 0), source)
    np.testing.assert_array_equal(sample.image, source.images[0][:, 18:82])
    np.testing.assert_allclose(sample.matrix, [[1, 0, -18], [0, 1, 0], [0, 0, 1]])
    assert sample.classes.tolist() == [0]
    assert sample.shares.tolist() == [1.0]
    assert sample.boxes.shape == (0, 4)
    assert sample.original_size == (64, 100)


@pytest.mark.parametrize(
    "change",
    [
        {"scale": 0.5},
        {"scale": 0.9, "fliplr": 0.5, "flipud": 0.5},
        {"degrees": 30.0},
        {"degrees": 30.0, "scale": 0.5, "fliplr": 0.5},
    ],
)
def test_the_matrix_tells_where_the_pixels_went(change, painted, hull_of_white):
    source = painted([(96, 128)], [(50, 35, 80, 65)])
    transform = ClassifyTrain(replace(PLAIN, **change), 0)
    seen = 0
    for epoch in range(25):
        sample = transform(SampleKey(epoch, 0, 0), source)
        box = warp_boxes(np.array([[50.0, 35, 80, 65]]), sample.matrix)[0]
        if box.min() < 0 or box.max() > 64:
            continue  # cut off
        np.testing.assert_allclose(hull_of_white(sample.image), box, atol=2.5 if "degrees" in change else 1)
        seen += 1
    assert seen >= 5


def test_the_matrix_is_that_of_the_file_where_the_image_was_reduced(painted):
    whole, reduced = painted([(96, 128)], [(50, 35, 80, 65)]), painted([(48, 64)], [(25, 17, 40, 32)])
    reduced.records = whole.records
    for transform in (ClassifyTrain(replace(PLAIN, scale=0.5), 0), ClassifyVal(64)):
        key = SampleKey(0, 0, 0)
        # Windows are whole pixels of what was read: one of these is two of the file's.
        np.testing.assert_allclose(transform(key, reduced).matrix, transform(key, whole).matrix, atol=1.5)


def test_a_sample_is_a_function_of_its_key(painted):
    source = painted(*SCENE)
    transform = ClassifyTrain(EVERYTHING, 0)
    keys = [
        SampleKey(epoch, place, index)
        for epoch in range(3)
        for place, index in enumerate(epoch_permutation(4, 0, epoch))
    ]
    there = [transform(key, source) for key in keys]
    back = [pickle.loads(pickle.dumps(transform))(key, source) for key in reversed(keys)]
    assert all(same(a, b) for a, b in zip(there, reversed(back), strict=True))
    assert not np.array_equal(there[0].image, ClassifyTrain(EVERYTHING, 1)(keys[0], source).image)


def test_the_global_generators_are_neither_used_nor_changed(painted):
    import torch

    def states():
        return torch.get_rng_state().tolist(), np.random.get_state()[1].tolist()

    before = states()
    for policy in ("randaugment", "autoaugment", "augmix"):
        ClassifyTrain(replace(EVERYTHING, auto_augment=policy), 0)(SampleKey(0, 0, 0), painted(*SCENE))
    assert states() == before


def test_what_is_loaded_is_not_written_to(painted):
    source = painted(*SCENE)
    before = [image.copy() for image in source.images]
    for image in source.images:
        image.flags.writeable = False
    for epoch in range(10):
        ClassifyTrain(EVERYTHING, 0)(SampleKey(epoch, 0, 0), source)
    assert all(np.array_equal(a, b) for a, b in zip(before, source.images, strict=True))


def test_at_another_size_the_sample_is_the_same_but_for_its_size(painted):
    source = painted(*SCENE)
    transform = ClassifyTrain(replace(EVERYTHING, auto_augment=None), 0)
    for epoch in range(8):
        small = transform(SampleKey(epoch, 0, 0), source)
        large = transform.at_size(64)(SampleKey(epoch, 0, 0), source)
        assert large.image.shape == (64, 64, 3)
        np.testing.assert_allclose(large.matrix, np.diag([2.0, 2, 1]) @ small.matrix, atol=1e-4)
        assert small.classes.tolist() == large.classes.tolist()
        np.testing.assert_allclose(small.shares, large.shares, atol=0.1)


class Plain:
    """An `ImageSource` of four pictures of one grey each, of the classes 0 to 3."""

    greys = (0, 80, 160, 240)

    def record(self, index):
        return Record(Path(f"{index}.png"), 40, 40, np.zeros((0, 4), np.float32), np.array([index]))

    def load(self, index):
        return np.full((40, 40, 3), self.greys[index], np.uint8)

    def partners(self, key, rng, count):
        return [int((key.index + 1 + rng.integers(3)) % 4) for _ in range(count)]


@pytest.mark.parametrize("kind", ["mixup", "cutmix"])
def test_the_shares_of_a_mixed_picture_are_those_of_its_pixels(kind):
    transform = ClassifyTrain(replace(PLAIN, **{kind: 1.0}), 0)
    mixed = 0
    for epoch in range(30):
        sample = transform(SampleKey(epoch, 0, 1), Plain())
        assert sample.shares.sum() == pytest.approx(1)
        greys = np.array(Plain.greys)[sample.classes]
        assert sample.image.mean() == pytest.approx((greys * sample.shares).sum(), abs=0.51)
        if kind == "cutmix":
            for grey, share in zip(greys, sample.shares, strict=True):
                assert (sample.image == grey).mean() == pytest.approx(share)
        mixed += len(sample.classes) == 2
    assert mixed > 15


def test_mixing_happens_as_often_as_asked():
    transform = ClassifyTrain(replace(PLAIN, imgsz=8, mixup=0.25, cutmix=0.25), 0)
    samples = [transform(SampleKey(epoch, 0, 0), Plain()) for epoch in range(400)]
    assert 0.4 < np.mean([len(sample.classes) == 2 for sample in samples]) < 0.55


def test_a_flip_swaps_the_classes_that_are_mirror_images():
    transform = ClassifyTrain(replace(PLAIN, fliplr=1.0, flip_swap=((0, 1),)), 0)
    assert [transform(SampleKey(0, 0, index), Plain()).classes.tolist() for index in range(3)] == [[1], [0], [2]]


@pytest.mark.parametrize("name", ["hsv_v", "erasing", "mixup", "cutmix", "auto_augment"])
def test_what_changes_pixels_alone_leaves_the_geometry_as_it_is(name, painted):
    source, key = painted(*SCENE), SampleKey(0, 0, 0)
    plain = replace(PLAIN, scale=0.5, fliplr=0.5, degrees=5)
    changed = replace(plain, **{name: "autoaugment" if name == "auto_augment" else 0.9})
    np.testing.assert_array_equal(
        ClassifyTrain(plain, 0)(key, source).matrix, ClassifyTrain(changed, 0)(key, source).matrix
    )


@pytest.mark.parametrize("size", [(96, 96), (150, 200), (200, 150), (30, 40), (640, 480), (1, 7)])
def test_validation_sees_the_middle_square(size):
    height, width = size
    image = np.zeros((height, width, 3), np.uint8)
    image[..., 0] = np.linspace(0, 255, width)[None]
    image[..., 1] = np.linspace(0, 255, height)[:, None]
    seen, matrix = ClassifyVal(96).prepare(image)
    assert seen.shape == (96, 96, 3)
    side = min(height, width)
    corners = matrix @ [
        [(width - side) // 2, (width - side) // 2 + side],
        [(height - side) // 2, (height - side) // 2 + side],
        [1, 1],
    ]
    np.testing.assert_allclose(corners, [[0, 96], [0, 96], [1, 1]], atol=1e-4)
    middle = image[height // 2, width // 2]
    np.testing.assert_allclose(seen[48, 48, :2].astype(int), middle[:2].astype(int), atol=12)


def test_prediction_sees_the_pixels_of_validation(painted):
    source = painted(*SCENE)
    for index in range(4):
        sample = ClassifyVal(48)(SampleKey(0, 0, index), source)
        image, matrix = ClassifyVal(48).prepare(source.load(index))
        np.testing.assert_array_equal(sample.image, image)
        np.testing.assert_array_equal(sample.matrix, matrix)
        assert (sample.classes.tolist(), sample.shares.tolist()) == ([index], [1.0])


def test_an_image_of_the_right_size_is_validated_as_it_is():
    image = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    np.testing.assert_array_equal(ClassifyVal(32).prepare(image)[0], image)


def test_validation_averages_what_it_shrinks():
    stripes = np.zeros((96, 96, 3), np.uint8)
    stripes[:, ::2] = 200
    assert ClassifyVal(48).prepare(stripes)[0].std() == 0


def test_images_are_stored_larger_than_they_are_seen():
    assert stored_long_side(224) == 336


def test_every_wrong_setting_is_named_at_once():
    with pytest.raises(ConfigError) as caught:
        ClassifySettings(
            0, scale=1, degrees=-1, erasing=2, mixup=0.7, cutmix=0.6, auto_augment="rand", flip_swap=((0, 0),)
        )
    message = str(caught.value)
    for name in (
        "imgsz = 0",
        "scale = 1",
        "degrees = -1",
        "erasing = 2",
        "mixup = 0.7 and cutmix = 0.6",
        "'rand'",
        "flip_swap",
    ):
        assert name in message
    assert len(caught.value.faults) == 7


def test_photographs_with_an_orientation_tag_are_seen_upright(test_data):
    from PIL import Image, ImageOps

    path = test_data / "signs" / "val" / "7" / "IMG_5935.JPG"
    record = Record(path, 3024, 3024, np.zeros((0, 4), np.float32), np.array([7]))
    seen = EvalDataset(Records([record]), ClassifyVal(32))[0].image
    upright = ImageOps.exif_transpose(Image.open(path)).resize((32, 32), Image.Resampling.BOX)
    assert np.abs(seen.astype(int) - np.asarray(upright)).mean() < 2
    trained = TrainDataset(
        Records([record]),
        ClassifyTrain(replace(PLAIN, imgsz=32), 0),
        sampler=Sampler(1, seed=0),
        imgsz=stored_long_side(32),
    )
    assert np.abs(trained[SampleKey(0, 0, 0)].image.astype(int) - np.asarray(upright)).mean() < 6
