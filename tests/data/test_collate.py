from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from visiontrain.data.collate import collate_classification, collate_detection
from visiontrain.data.dataset import UnreadableImage
from visiontrain.sample import DroppedBoxes, Sample


def sample_with(num_boxes, index=0):
    rng = np.random.default_rng(index)
    return Sample(
        image=rng.integers(0, 256, (8, 6, 3), dtype=np.uint8),
        boxes=rng.random((num_boxes, 4)).astype(np.float32),
        classes=np.arange(num_boxes),
        path=f"{index}.png",
        index=index,
        original_size=(80, 60),
    )


def test_boxes_are_padded_to_the_most_of_an_image():
    samples = [sample_with(2, 0), sample_with(0, 1), sample_with(3, 2)]
    batch = collate_detection(samples)
    assert batch.images.shape == (3, 3, 8, 6)
    assert batch.images.dtype == torch.uint8
    assert batch.targets["classes"].tolist() == [[0, 1, -1], [-1, -1, -1], [0, 1, 2]]
    assert batch.targets["boxes"].shape == (3, 3, 4)
    assert batch.targets["boxes"].dtype == torch.float32
    assert (batch.targets["boxes"][0, 2] == 0).all()
    np.testing.assert_array_equal(batch.targets["boxes"][2], samples[2].boxes)
    np.testing.assert_array_equal(batch.images[1].permute(1, 2, 0), samples[1].image)
    assert batch.indices == (0, 1, 2)
    assert batch.original_sizes == ((80, 60),) * 3
    assert batch.matrices.shape == (3, 3, 3)


def test_a_batch_of_background_has_no_boxes():
    batch = collate_detection([sample_with(0, 0), sample_with(0, 1)])
    assert batch.targets["boxes"].shape == (2, 0, 4)
    assert batch.targets["classes"].shape == (2, 0)


def test_boxes_dropped_from_its_samples_are_counted_over_the_batch():
    samples = [replace(sample_with(1, index), dropped=DroppedBoxes(1, index, 0, 2)) for index in range(3)]
    assert collate_detection(samples).dropped == DroppedBoxes(3, 3, 0, 6)


def test_unreadable_images_are_left_out_and_named():
    batch = collate_detection([sample_with(1, 0), UnreadableImage("bad.png", 1, "damaged"), sample_with(2, 2)])
    assert len(batch) == 2
    assert batch.indices == (0, 2)
    assert batch.unreadable == ("bad.png",)


def test_a_batch_of_unreadable_images_is_empty():
    batch = collate_detection([UnreadableImage("bad.png", 1, "damaged")])
    assert len(batch) == 0
    assert batch.images.shape[:2] == (0, 3)
    assert batch.targets["boxes"].shape == (0, 0, 4)
    assert batch.unreadable == ("bad.png",)


def picture_of(classes, shares=None, index=0):
    return replace(
        sample_with(0, index),
        classes=np.array(classes, np.int64),
        shares=None if shares is None else np.array(shares, np.float32),
    )


def test_labels_and_shares_are_padded_to_the_most_of_an_image():
    samples = [picture_of([4], [1], 0), picture_of([], [], 1), picture_of([2, 0], [0.25, 0.75], 2), picture_of([3, 1])]
    batch = collate_classification(samples)
    assert batch.targets["classes"].tolist() == [[4, -1], [-1, -1], [2, 0], [3, 1]]
    assert batch.targets["shares"].tolist() == [[1, 0], [0, 0], [0.25, 0.75], [1, 1]]
    assert {name: tensor.dtype for name, tensor in batch.targets.items()} == {
        "classes": torch.int64,
        "shares": torch.float32,
    }
    assert batch.images.shape == (4, 3, 8, 6)
    np.testing.assert_array_equal(batch.images[2].permute(1, 2, 0), samples[2].image)
    assert batch.original_sizes == ((80, 60),) * 4


def test_unreadable_pictures_have_no_labels():
    batch = collate_classification([UnreadableImage("bad.png", 0, "damaged"), picture_of([1], [1], 1)])
    assert (batch.targets["classes"].tolist(), batch.unreadable, batch.indices) == ([[1]], ("bad.png",), (1,))
    empty = collate_classification([UnreadableImage("bad.png", 0, "damaged")])
    assert (len(empty), empty.targets["classes"].shape, empty.targets["shares"].shape) == (0, (0, 0), (0, 0))
