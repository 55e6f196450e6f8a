"""Real images on which an exported file is compared with its network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from visiontrain.config.schema import Config
from visiontrain.data.dataset import EvalDataset
from visiontrain.data.transforms.geometry import FILL
from visiontrain.errors import DataError, UserError
from visiontrain.export.program import Program
from visiontrain.models.network import Network
from visiontrain.protocols import Task
from visiontrain.run.prepare import with_bundled_data
from visiontrain.sample import Records, Sample

NUM_IMAGES = 10
SPLITS = ("val", "test", "train")
"""In which images are looked for, in turn."""


@dataclass(frozen=True)
class RealImages:
    """Images as the network sees them in validation."""

    images: tuple[NDArray[np.uint8], ...]
    """(H, W, 3) RGB each."""
    source: str
    notes: tuple[str, ...] = ()


def real_images(config: Config, task: Task, network: Network) -> RealImages:
    """Ten images of the data that the weights were trained on; where those are gone, of the bundled sample.

    Raises:
        UserError: If `data` was typed and cannot be read.
    """
    if config.data is None:
        return _bundled(config, task, network)
    try:
        return RealImages(_load(config, task, network), str(config.data))
    except UserError as error:
        if config.is_typed("data"):
            raise
        note = f"{error.faults[0]}: the bundled sample is taken instead; data= names another set"
        return replace(_bundled(config, task, network), notes=(note,))


def batches_of(images: RealImages, size: int, program: Program) -> list[Tensor]:
    """All images in batches of `size`, from the first again where they do not come out even.

    Returns:
        (size, 3, H, W) uint8 each, H = W = imgsz unless the program leaves them open.
    """
    count = -(-len(images.images) // size) * size
    chosen = [images.images[index % len(images.images)] for index in range(count)]
    return [_stacked(chosen[start : start + size], program) for start in range(0, count, size)]


def _bundled(config: Config, task: Task, network: Network) -> RealImages:
    own = replace(with_bundled_data(replace(config, data=None), task), imgsz=config.imgsz, data_format="auto")
    return RealImages(_load(own, task, network), "the bundled sample")


def _load(config: Config, task: Task, network: Network) -> tuple[NDArray[np.uint8], ...]:
    records = _records(config, task)
    dataset = EvalDataset(records, task.val_transform(config, network), max_pixels=config.max_pixels)
    places = np.linspace(0, len(records) - 1, min(NUM_IMAGES, len(records))).round().astype(int)
    samples = [dataset[int(place)] for place in places]
    images = tuple(sample.image for sample in samples if isinstance(sample, Sample))
    if not images:
        raise DataError(f"{config.data}: none of its images can be read; name a data set whose images can")
    return images


def _records(config: Config, task: Task) -> Records:
    """Of the first split that holds an image."""
    failure: UserError | None = None
    for split in SPLITS:
        try:
            records = task.read(config, (split,)).splits.get(split)
        except DataError as error:
            failure = failure or error
            continue
        if records:
            return records
    raise failure or DataError(f"{config.data}: holds no image; name a data set that does")


def _stacked(images: Sequence[NDArray[np.uint8]], program: Program) -> Tensor:
    sides = (program.imgsz, program.imgsz)
    if program.is_dynamic:
        sides = (max(image.shape[0] for image in images), max(image.shape[1] for image in images))
    padded = [_padded(image, *sides) for image in images]
    return torch.from_numpy(np.stack(padded).transpose(0, 3, 1, 2).copy())  # (B, 3, H, W)


def _padded(image: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    padded = np.full((height, width, 3), FILL, np.uint8)
    padded[: image.shape[0], : image.shape[1]] = image
    return padded
