"""`visiontrain show`: draws one training sample, exactly as training with the same settings sees it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from visiontrain.config.schema import Config
from visiontrain.data.dataset import TrainDataset
from visiontrain.data.sampler import epoch_permutation
from visiontrain.errors import ConfigError, DataError
from visiontrain.run.pictures import draw_targets
from visiontrain.run.prepare import make_folder, read_data, split_of, task_of, with_bundled_data
from visiontrain.sample import Sample, SampleKey


def show(config: Config) -> None:
    """Draw the sample of image `index` in epoch `epoch`; a sample is a function of seed, epoch and image.

    Raises:
        UserError: If there is no such image or epoch, or the image cannot be read.
    """
    task = task_of(config)
    config = with_bundled_data(config, task)
    if config.imgsz is None:
        config = config.decide(imgsz=task.default_imgsz)
    assert config.imgsz is not None
    data = read_data(config, task, ("train",))
    train = split_of(data, "train")
    _check(config, len(train))
    dataset = TrainDataset(train, task.train_transform(config), seed=config.seed, imgsz=config.imgsz)
    order = epoch_permutation(len(train), config.seed, config.epoch - 1)
    place = int(np.flatnonzero(order == config.index)[0])
    sample = dataset[SampleKey(config.epoch - 1, place, config.index)]
    if not isinstance(sample, Sample):
        raise DataError(sample.reason)
    path = make_folder(config) / f"epoch{config.epoch}_index{config.index}.jpg"
    draw_targets(task.collate([sample]), data.names, path)
    print("\n".join([*data.messages, *_lines(sample, data.names, config, place), f"drawn in {path}"]))


def _check(config: Config, num_images: int) -> None:
    """Raises ConfigError for an epoch or an image that the run does not have; both at once."""
    faults = []
    if config.epoch > config.epochs:
        faults.append(f"epoch = {config.epoch}: the run has {config.epochs}; type epochs= as for training")
    if config.index >= num_images:
        faults.append(
            f"index = {config.index}: the training split has {num_images} images; choose 0 to {num_images - 1}"
        )
    if faults:
        raise ConfigError(faults)


def _lines(sample: Sample, names: tuple[str, ...], config: Config, place: int) -> list[str]:
    """The sample in words: where it comes from and its boxes, in pixels of the sample."""
    boxes = [
        f"  {names[label]:<16} {' '.join(f'{side:8.1f}' for side in box)}"
        for box, label in zip(sample.boxes.tolist(), sample.classes.tolist(), strict=True)
    ]
    return [
        f"{Path(sample.path)}: image {config.index}, place {place} of epoch {config.epoch}, seed {config.seed}",
        f"{len(boxes)} boxes (x1 y1 x2 y2, pixels)",
        *boxes,
    ]
