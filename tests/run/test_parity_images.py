"""The images of the gate."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from visiontrain.config.load import load_config
from visiontrain.data.transforms.geometry import FILL
from visiontrain.errors import DataError
from visiontrain.export.program import Program
from visiontrain.run.parity_images import NUM_IMAGES, RealImages, batches_of, real_images
from visiontrain.tasks import TASKS


def program_of(network, *, is_dynamic):
    return Program(
        network, lambda outputs: TASKS[network.task].finish(network, outputs), 64, is_dynamic, opset=18, simplify=True
    )


def pictures(*shapes):
    return RealImages(tuple(np.full((*shape, 3), number, np.uint8) for number, shape in enumerate(shapes)), "here")


def test_every_image_is_in_a_batch_and_the_last_is_filled_from_the_first(two_level_detector):
    images = pictures(*[(64, 64)] * 10)
    batches = batches_of(images, 4, program_of(two_level_detector, is_dynamic=False))
    assert [tuple(batch.shape) for batch in batches] == [(4, 3, 64, 64)] * 3
    assert torch.cat(batches)[:, 0, 0, 0].tolist() == [*range(10), 0, 1]


def test_a_program_of_one_size_is_given_squares_and_another_no_more_than_needed(two_level_detector):
    images = pictures((32, 64), (64, 48))
    fixed = batches_of(images, 1, program_of(two_level_detector, is_dynamic=False))
    assert [tuple(batch.shape[2:]) for batch in fixed] == [(64, 64), (64, 64)]
    assert fixed[0][0, 0, 32:].unique().tolist() == [FILL]
    program = program_of(two_level_detector, is_dynamic=True)
    assert [tuple(batch.shape[2:]) for batch in batches_of(images, 1, program)] == [(32, 64), (64, 48)]
    assert [tuple(batch.shape[2:]) for batch in batches_of(images, 2, program)] == [(64, 64)]


def found(network, **keys):
    return real_images(load_config("export", python={"imgsz": 64, **keys}), TASKS["detect"], network)


def test_they_are_of_the_validation_split_or_of_one_that_is_there(two_level_detector, tiny_yolo):
    assert len(found(two_level_detector, data=str(tiny_yolo(12))).images) == NUM_IMAGES
    only_train = tiny_yolo(3, splits=("train",), folder="train_only")
    assert len(found(two_level_detector, data=str(only_train)).images) == 3


def test_without_data_they_are_of_the_bundled_sample_and_typed_data_must_be_there(two_level_detector):
    assert found(two_level_detector).source == "the bundled sample"
    with pytest.raises(DataError, match=r"gone\.yaml"):
        found(two_level_detector, data="gone.yaml")
