"""The training samples of a run: which image stands where, how large it is, and what is made of it."""

from __future__ import annotations

from visiontrain.config.schema import Config
from visiontrain.data.balance import image_weights
from visiontrain.data.cache import ImageCache
from visiontrain.data.dataset import TrainDataset
from visiontrain.data.multi_scale import AtWindowSize, WindowSizes
from visiontrain.data.sampler import Sampler
from visiontrain.protocols import Task
from visiontrain.sample import Records


def open_samples(
    config: Config, task: Task, records: Records, *, stride: int, cache: ImageCache | None = None
) -> TrainDataset:
    """The training samples that the settings ask for.

    Args:
        config: The settings.
        task: Makes samples.
        records: The training split.
        stride: The network's largest, pixels; sizes are multiples of it, where they change.
        cache: Of the same records, at `stored_size`.
    """
    sizes = window_sizes(config, stride)
    transform = task.train_transform(config)
    return TrainDataset(
        records,
        transform if sizes is None else AtWindowSize(transform, task.stored_size),
        sampler=Sampler(
            len(records),
            seed=config.seed,
            weights=image_weights(records, power=task.balance_power) if config.sampling == "balanced" else None,
            sizes=sizes,
        ),
        imgsz=stored_size(config, task, stride),
        cache=cache,
        max_pixels=config.max_pixels,
    )


def window_sizes(config: Config, stride: int) -> WindowSizes | None:
    """The sizes of the windows, None where all have `imgsz`."""
    assert config.imgsz is not None
    return WindowSizes(config.imgsz, stride, config.seed) if config.multi_scale else None


def largest_size(config: Config, stride: int) -> int:
    """The largest side of a training sample, pixels: what memory must be there for."""
    assert config.imgsz is not None
    sizes = window_sizes(config, stride)
    return config.imgsz if sizes is None else sizes.all[-1]


def smallest_size(config: Config, stride: int) -> int:
    """The smallest side of a training sample, pixels."""
    assert config.imgsz is not None
    sizes = window_sizes(config, stride)
    return config.imgsz if sizes is None else sizes.all[0]


def stored_size(config: Config, task: Task, stride: int) -> int:
    """The long side to which training images are reduced when they are read, pixels."""
    return task.stored_size(largest_size(config, stride))
