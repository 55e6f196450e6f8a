"""`visiontrain show`: draws one training sample, exactly as training with the same settings sees it."""

from __future__ import annotations

import numpy as np

from visiontrain.config.schema import Config
from visiontrain.data.sampler import Sampler
from visiontrain.errors import ConfigError, DataError
from visiontrain.run.choose_task import with_task
from visiontrain.run.pictures import draw_targets
from visiontrain.run.prepare import make_folder, read_data, split_of, task_of, with_bundled_data
from visiontrain.run.samples import open_samples
from visiontrain.sample import Sample


def show(config: Config) -> None:
    """Draw the sample of image `index` in epoch `epoch`; a sample is a function of seed, epoch and image.

    Raises:
        UserError: If there is no such image or epoch, or the image cannot be read.
    """
    config = with_task(config)
    task = task_of(config)
    config = with_bundled_data(config, task)
    if config.imgsz is None:
        config = config.decide(imgsz=task.default_imgsz)
    data = read_data(config, task, ("train",))
    train = split_of(data, "train")
    _check(config, len(train))
    dataset = open_samples(config, task, train, stride=1)
    place = _place_of(config, dataset.sampler)
    sample = dataset[dataset.sampler.key((config.epoch - 1) * len(train) + place)]
    if not isinstance(sample, Sample):
        raise DataError(sample.reason)
    path = make_folder(config) / f"epoch{config.epoch}_index{config.index}.jpg"
    draw_targets(task, task.collate([sample]), data.names, path)
    print("\n".join([*data.messages, *_lines(sample, data.names, config, place), f"drawn in {path}"]))


def _place_of(config: Config, sampler: Sampler) -> int:
    """Where the image first stands in its epoch.

    Raises:
        ConfigError: If the epoch does not see it.
    """
    places = np.flatnonzero(sampler.order(config.epoch - 1) == config.index)
    if not len(places):
        raise ConfigError(
            f"index = {config.index}: epoch {config.epoch} does not see this image with sampling={config.sampling}; "
            "choose another epoch or image"
        )
    return int(places[0])


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
    """The sample in words: where it comes from, and its labels, boxes in pixels of the sample."""
    if sample.shares is None:
        labels = [f"{len(sample.boxes)} boxes (x1 y1 x2 y2, pixels)"] + [
            f"  {names[label]:<16} {' '.join(f'{side:8.1f}' for side in box)}"
            for box, label in zip(sample.boxes.tolist(), sample.classes.tolist(), strict=True)
        ]
    else:
        pairs = zip(sample.classes.tolist(), sample.shares.tolist(), strict=True)
        labels = ["labels: " + (", ".join(f"{names[label]} ({share:.3g})" for label, share in pairs) or "none")]
    return [
        f"{sample.path}: image {config.index}, place {place} of epoch {config.epoch}, seed {config.seed}",
        *labels,
    ]
