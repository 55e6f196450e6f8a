"""Samples → a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from visiontrain.data.dataset import UnreadableImage
from visiontrain.sample import Batch, DroppedBoxes, Sample


def collate_detection(samples: Sequence[Sample | UnreadableImage]) -> Batch:
    """Stack detection samples of one size; boxes are padded to the most of an image.

    Images that could not be read are left out and named. If nothing is left, `images` is (0, 3, 0, 0).

    Returns:
        A batch whose `images` (B, 3, H, W) lie in memory channels last, as decoders and fast convolutions have them.
    """
    readable = _readable(samples)
    most = max((len(sample.classes) for sample in readable), default=0)
    boxes = np.zeros((len(readable), most, 4), np.float32)
    for row, sample in enumerate(readable):
        boxes[row, : len(sample.boxes)] = sample.boxes
    return _batch(samples, {"boxes": torch.from_numpy(boxes), "classes": _padded_classes(readable, most)})


def collate_classification(samples: Sequence[Sample | UnreadableImage]) -> Batch:
    """Stack classification samples of one size; labels and their shares are padded to the most of an image.

    Unreadable images and memory layout are as in `collate_detection`.
    """
    readable = _readable(samples)
    most = max((len(sample.classes) for sample in readable), default=0)
    shares = np.zeros((len(readable), most), np.float32)
    for row, sample in enumerate(readable):
        shares[row, : len(sample.classes)] = 1 if sample.shares is None else sample.shares
    return _batch(samples, {"classes": _padded_classes(readable, most), "shares": torch.from_numpy(shares)})


def _readable(samples: Sequence[Sample | UnreadableImage]) -> list[Sample]:
    return [sample for sample in samples if isinstance(sample, Sample)]


def _padded_classes(samples: Sequence[Sample], most: int) -> torch.Tensor:
    """(B, `most`) int64, padded with -1."""
    classes = np.full((len(samples), most), -1, np.int64)
    for row, sample in enumerate(samples):
        classes[row, : len(sample.classes)] = sample.classes
    return torch.from_numpy(classes)


def _batch(samples: Sequence[Sample | UnreadableImage], targets: Mapping[str, torch.Tensor]) -> Batch:
    readable = _readable(samples)
    images = np.stack([sample.image for sample in readable]) if readable else np.zeros((0, 0, 0, 3), np.uint8)
    matrices = np.stack([sample.matrix for sample in readable]) if readable else np.zeros((0, 3, 3), np.float32)
    return Batch(
        images=torch.from_numpy(images).permute(0, 3, 1, 2),  # (B, H, W, 3) → (B, 3, H, W)
        targets=targets,
        paths=tuple(sample.path for sample in readable),
        indices=tuple(sample.index for sample in readable),
        original_sizes=tuple(sample.original_size for sample in readable),
        matrices=torch.from_numpy(matrices),
        dropped=sum((sample.dropped for sample in readable), DroppedBoxes()),
        unreadable=tuple(sample.path for sample in samples if isinstance(sample, UnreadableImage)),
    )
