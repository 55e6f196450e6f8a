"""`batch=auto`: the largest micro-batch whose training fits in memory, found by training on samples at their worst.

What is chosen is recorded as decided, so a run that goes on keeps it, whatever is free then.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import partial
from itertools import cycle, islice

import numpy as np
import torch

from visiontrain.config.schema import AUTO_BATCH, Config
from visiontrain.engine.device import DeviceSetup, free_memory
from visiontrain.engine.ema import Ema, LiveWeights
from visiontrain.engine.memory import (
    Fit,
    Meter,
    largest,
    meter_of,
    micro_batch_sizes_for,
    peak_of,
    straight_line,
)
from visiontrain.engine.noise import NoiseScale
from visiontrain.engine.optimizer import build_optimizer
from visiontrain.engine.precision import Precision
from visiontrain.engine.window import GradientWindow
from visiontrain.errors import ConfigError
from visiontrain.models.info import training_bytes
from visiontrain.models.network import Network
from visiontrain.protocols import Criterion, Task
from visiontrain.run.prepare import decide_recipe, place
from visiontrain.run.samples import largest_size, stored_size
from visiontrain.sample import Records, Sample

MOST_OF_MEMORY, MOST_OF_CUDA = 0.6, 0.8
"""Part of what is free that training may take; a GPU is shared with nobody."""
MEASURED = (2, 4)
"""Images of the micro-batches that are tried; a single one leaves BatchNorm nothing to average over."""
LEAST_OF_ESTIMATE, LEAST_OF_HALF = 1.0, 0.6
"""Part of what an image is estimated to take in fp32 that it takes at least, in fp32 and in half precision.

Steps of few images may take most of their memory in the optimizer, which hides what an image takes.
"""


def with_measured_batch(
    config: Config, task: Task, network: Network, train: Records, setup: DeviceSetup, precision: Precision
) -> tuple[Config, Fit | None]:
    """`config` with the micro-batch decided where the user left it open, and what was found.

    Args:
        config: With everything else decided.
        task: Makes batches and the loss.
        network: To be trained; it is left as it was.
        train: The training split.
        setup: Where training computes.
        precision: In which.

    Raises:
        ConfigError: If the system tells nothing of its memory, or if a single image does not fit.
    """
    if config.batch != AUTO_BATCH:
        return config, None
    free = free_memory(setup.device)
    if free is None:
        raise ConfigError("batch = auto: this system does not tell how much memory is free; type a number")
    taken = _taken_beside(config, task, network, train, setup.device)
    is_cuda = setup.device.type == "cuda"
    budget = int((MOST_OF_CUDA if is_cuda else MOST_OF_MEMORY) * free) - taken
    trial = _Trial(config, task, network, train, setup, precision)
    # A GPU that runs out of memory says so; on a CPU the system ends the process, so nothing large is tried there.
    is_safe = is_cuda or trial.estimated()(max(MEASURED)) <= budget
    meter = meter_of(setup.device) if is_safe else None
    needs = trial.estimated() if meter is None else trial.measured(meter)
    sizes = [size for size in micro_batch_sizes_for(config.nbs, len(train)) if needs(size) <= budget]
    while sizes:
        batch = largest(sizes, config.nbs)
        # A GPU's libraries take more for some sizes than for others, and a step there is quick.
        needed = peak_of(meter, trial.step(batch)) if meter is not None and is_cuda else needs(batch)
        if needed <= budget:
            return config.decide(batch=batch), Fit(batch, needed + taken, free)
        sizes = [size for size in sizes if size < batch]
    raise ConfigError(
        f"batch = auto: a single image takes about {as_gb(needs(1) + taken)} GB, and of {as_gb(free)} GB that are free "
        f"{as_gb(budget + taken)} may be taken; use checkpoint_activations=True, a lower imgsz or a smaller model, or "
        "type a number to try it all the same"
    )


def fit_text(fit: Fit) -> str:
    """What was found, in a few words."""
    return f"auto: {as_gb(fit.needed)} of {as_gb(fit.available)} GB"


def as_gb(num_bytes: int) -> str:
    """Bytes in GB, with one digit behind the point."""
    return f"{num_bytes / 2**30:.1f}"


class _Trial:
    """Training steps on copies of a network, on samples with the most labels that augmentation can bring together."""

    def __init__(
        self, config: Config, task: Task, network: Network, train: Records, setup: DeviceSetup, precision: Precision
    ) -> None:
        # How many updates the run has is known only with its batch, and decides no more than the optimizer.
        self._config = replace(config, batch=1)
        self._task = task
        self._network = network
        self._setup = setup
        self._precision = precision
        self._imgsz = largest_size(config, max(network.strides))
        self._recipe = decide_recipe(self._config, task, len(train))
        self._num_labels = most_labels(train, config)

    def estimated(self) -> Callable[[int], int]:
        """Bytes by images, from what a forward pass keeps."""
        on_processor = self._setup.device.type == "cpu"
        return lambda images: training_bytes(self._network, self._imgsz, images, in_one_step=on_processor)

    def measured(self, meter: Meter) -> Callable[[int], int]:
        """Bytes by images, from two steps."""
        estimated = self.estimated()
        few, more = ((images, peak_of(meter, self.step(images))) for images in MEASURED)
        slope = (estimated(more[0]) - estimated(few[0])) / (more[0] - few[0])
        least = LEAST_OF_ESTIMATE if self._precision.dtype is None else LEAST_OF_HALF
        return straight_line(few, more, least_slope=least * slope)

    def step(self, images: int) -> Callable[[], None]:
        """What takes the memory of a run with micro-batches of so many images."""
        return partial(self._train, images)

    def _train(self, images: int) -> None:
        """Two windows: in the second the optimizer has its state, and gradients are held while `images` pass."""
        config, device = self._config, self._setup.device
        network = place(deepcopy(self._network), self._setup).train()
        if config.unfreeze_epoch is not None:
            network.requires_grad_(True)
        criterion = self._task.criterion(network, config)
        gradients = GradientWindow(
            build_optimizer(network, self._recipe.optimizer, weight_decay=self._recipe.weight_decay),
            model=network,
            clip=config.clip or None,
            noise=NoiseScale() if config.noise_scale else None,
        )
        average = Ema(network) if config.ema else LiveWeights(network)
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):  # dropout draws
            for sizes in ((MEASURED[0],), (MEASURED[0], images)):
                self._run_window(gradients, network, criterion, sizes)
                average.update(network)

    def _run_window(
        self, gradients: GradientWindow, network: Network, criterion: Criterion, sizes: tuple[int, ...]
    ) -> None:
        gradients.open(sum(sizes))
        sample = _sample_at_worst(self._imgsz, self._num_labels)
        for number, size in enumerate(sizes, start=1):
            batch = self._task.collate([sample] * size).to(self._setup.device)
            with gradients.micro_batch(last=number == len(sizes)):
                with self._precision.autocast():
                    outputs = network(batch.images)
                gradients.add(criterion(outputs, batch), num_images=size)
        gradients.step()


def most_labels(train: Records, config: Config) -> int:
    """The most labels that one sample can have: those of the richest images, as many as augmentation joins."""
    counts = sorted((len(record.classes) for record in train), reverse=True)
    tiles = 9 if config.mosaic9 else 4 if config.mosaic else 1
    joined = tiles * (2 if config.mixup or config.cutmix else 1) + (1 if config.copy_paste else 0)
    return max(1, sum(islice(cycle(counts), joined)))


def _sample_at_worst(imgsz: int, num_labels: int) -> Sample:
    """A square sample of noise with so many labels."""
    rng = np.random.default_rng(0)
    corners = rng.uniform(0, imgsz, (2, num_labels, 2)).astype(np.float32)
    return Sample(
        image=rng.integers(0, 256, (imgsz, imgsz, 3), dtype=np.uint8),
        boxes=np.concatenate([corners.min(axis=0), corners.max(axis=0)], axis=1),
        classes=np.zeros(num_labels, np.int64),
        path="",
        index=0,
        original_size=(imgsz, imgsz),
    )


def _taken_beside(config: Config, task: Task, network: Network, train: Records, device: torch.device) -> int:
    """Bytes of what is in the same memory beside training: on a CPU a window's images and the cache."""
    if device.type != "cpu":
        return 0
    stride = max(network.strides)
    window = 3 * largest_size(config, stride) ** 2 * config.nbs
    is_in_memory = config.cache is True or config.cache == "ram"
    return window + (3 * stored_size(config, task, stride) ** 2 * len(train) if is_in_memory else 0)
