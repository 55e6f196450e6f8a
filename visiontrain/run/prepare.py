"""From what the user asked to what a run needs: data, network, plan. Everything that can be wrong is found here.

Nothing is written: a run folder is made only when all of this has passed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import yaml

from visiontrain.config.schema import Config
from visiontrain.data.split import split_off
from visiontrain.engine.checkpoint import load_checkpoint
from visiontrain.engine.device import DeviceSetup, choose_device
from visiontrain.engine.distributed import Place
from visiontrain.engine.optimizer import OptimizerChoice, choose_optimizer
from visiontrain.engine.schedule import Schedule, lr_factor
from visiontrain.errors import CheckpointError, ConfigError, DataError
from visiontrain.export.onnx_network import SUFFIX as ONNX_SUFFIX
from visiontrain.export.onnx_network import OnnxNetwork
from visiontrain.folders import make_run_folder
from visiontrain.models.network import Network
from visiontrain.plan import Plan, Tail, plan_run
from visiontrain.protocols import Task
from visiontrain.sample import DataSet, Records
from visiontrain.tasks import TASKS

WEIGHTS_SUFFIXES = (".pt", ".pth")
RUNS_EXPORTED = ("val", "compare", "predict")
"""Modes that take an exported file as their model."""
MOST_UNREADABLE = 0.01
"""Share of the training images that may be unreadable."""


@dataclass(frozen=True)
class LoadedModel:
    """A network with what is known of it."""

    network: Network
    names: tuple[str, ...]
    args: dict[str, Any]
    """Arguments of the run that made the weights; empty for a fresh network."""


def with_bundled_data(config: Config, task: Task) -> Config:
    """`config` with the bundled data set and its own suggestions, where the user named no data."""
    if config.data is not None:
        return config
    folder = files("visiontrain.bundled") / task.default_data
    description = Path(str(folder)) / "data.yaml"
    suggested = yaml.safe_load(description.read_text(encoding="utf-8")).get("suggested", {})
    return config.suggest(data=str(description), **suggested)


def read_data(config: Config, task: Task, splits: Sequence[str]) -> DataSet:
    """The splits that a mode needs, with `fraction` applied to train.

    Raises:
        DataError: If nothing can be read, or the data are unfit for training; all faults at once.
    """
    data = _with_val(config, task, splits) if config.val_fraction and "val" in splits else task.read(config, splits)
    if data.faults:
        raise DataError(data.faults)
    train = data.splits.get("train")
    if train is not None:
        out = data.num_unreadable("train")
        named = "; ".join(map(str, data.findings.examples("image-unreadable", "train")))
        check_readable(config.data, out, len(train) + out, remedy=f"mend them, or take them out ({named})")
    if train is not None and config.fraction < 1:
        count = max(1, round(len(train) * config.fraction))
        data = replace(data, splits={**data.splits, "train": draw_records(train, count, config.seed)})
    return data


def _with_val(config: Config, task: Task, splits: Sequence[str]) -> DataSet:
    """The data set with a part of train as val, where it has no val of its own."""
    data = task.read(config, tuple(dict.fromkeys((*splits, "train"))))
    found = dict(data.splits)
    if "val" in found:
        note = "val_fraction: the data set has a val split of its own, so nothing is split off"
    else:
        found["train"], found["val"] = split_off(found["train"], config.val_fraction, config.seed)
        note = (
            f"val: {len(found['val'])} of train's images, split off by val_fraction = {config.val_fraction:g} and seed "
            f"= {config.seed}; {len(found['train'])} are left"
        )
    wanted = {split: records for split, records in found.items() if split in splits}
    return replace(data, splits=wanted, notes=(*data.notes, note))


def split_of(data: DataSet, split: str) -> Records:
    """The records of a split.

    Raises:
        DataError: If the data set does not have it, or it holds no image.
    """
    records = data.splits.get(split)
    if records is None:
        raise DataError(f"{data.source}: there is no {split!r} split; it has {', '.join(data.splits) or 'none'}")
    if not len(records):
        raise DataError(f"{data.source}: the {split!r} split holds no image; check the folder that it names")
    return records


def check_readable(source: Path | str | None, num_unreadable: int, num_images: int, *, remedy: str) -> None:
    """Raises DataError if more than a hundredth of the training images cannot be read."""
    if num_unreadable > MOST_UNREADABLE * num_images:
        raise DataError(
            f"{source}: {num_unreadable} of {num_images} training images cannot be read, more than "
            f"{MOST_UNREADABLE:.0%}; {remedy}"
        )


def draw_records(records: Records, count: int, seed: int) -> Records:
    """So many of `records` in their order, drawn by the seed; all of them if there are no more."""
    if count >= len(records):
        return records
    chosen = np.sort(np.random.default_rng([seed, len(records)]).permutation(len(records))[:count])
    return Records([records[int(index)] for index in chosen])


def fresh_network(config: Config, task: Task, names: tuple[str, ...]) -> Network:
    """An untrained network whose weights are a function of the seed; torch's random state is left alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        return task.fresh_network(config, names)


def is_weights_file(model: str | None) -> bool:
    """Whether `model` is the path of a weights file, and not a network's name or YAML."""
    return model is not None and Path(model).suffix in WEIGHTS_SUFFIXES


def load_model(config: Config, task: Task) -> LoadedModel:
    """The network of a checkpoint, with the weights that were validated.

    Raises:
        ConfigError: If `model` is no weights file, or of another task.
        CheckpointError: If the file cannot be used.
    """
    if config.model is not None and Path(config.model).suffix == ONNX_SUFFIX and config.mode in RUNS_EXPORTED:
        return _load_exported(config.model, task)
    if config.model is None or Path(config.model).suffix not in WEIGHTS_SUFFIXES:
        named = "not given" if config.model is None else f"{config.model!r}, which is not a weights file"
        raise ConfigError(
            f"model: is {named}; name trained weights, such as model=runs/{task.name}/train/weights/best.pt"
        )
    checkpoint = load_checkpoint(Path(config.model))
    if checkpoint["task"] != task.name:
        raise ConfigError(f"model = {config.model!r}: is for {checkpoint['task']}, not for {task.name}")
    network = task.network(checkpoint["network"], tuple(checkpoint["names"]))
    try:
        network.load_state_dict(checkpoint["ema"] or checkpoint["model"])
    except RuntimeError as error:
        fault = f"{config.model}: its weights do not fit its own network ({' '.join(str(error).split())[:200]})"
        raise CheckpointError(f"{fault}; use another copy of the file") from error
    args = dict(checkpoint["args"])
    if checkpoint.get("fp32_took_over"):  # the precision that was asked for did not hold this network's numbers
        args["values"] = {**args["values"], "amp": False}
    return LoadedModel(network, tuple(checkpoint["names"]), args)


def _load_exported(model: str, task: Task) -> LoadedModel:
    """The network of an ONNX file; of its training's arguments it tells those that scoring goes by."""
    network = OnnxNetwork(Path(model))
    if network.task != task.name:
        raise ConfigError(f"model = {model!r}: is for {network.task}, not for {task.name}")
    return LoadedModel(network, network.names, {"values": network.metadata.args})


def place(network: Network, setup: DeviceSetup) -> Network:
    """The network on its device, with channels last in memory, which convolutions run fastest on."""
    return network.to(setup.device).to(memory_format=torch.channels_last)


def device_of(config: Config, place: Place | None = None) -> DeviceSetup:
    """The device and workers that `config` asks for; of several processes, those of the one at `place`."""
    workers = None if config.workers == "auto" else int(config.workers)
    return choose_device(config.device, workers=workers, place=place)


def check_image_size(config: Config, network: Network) -> None:
    """Raises ConfigError unless the network takes images of `imgsz`."""
    assert config.imgsz is not None
    network.check_size(config.imgsz)
    if config.multi_scale and network.fixed_size is not None:
        raise ConfigError(
            f"multi_scale = True: the network takes images of {network.fixed_size} pixels alone; leave multi_scale out"
        )


@dataclass(frozen=True)
class Recipe:
    """What was decided about the optimizer's steps: the plan, the rates, the decay."""

    plan: Plan
    optimizer: OptimizerChoice
    schedule: Schedule
    weight_decay: float
    decay_factor: float
    """Used weight decay over the one asked for."""
    lr_factor: float
    """What `lr_scaling` multiplies the learning rate by."""
    gain: float
    """What the task multiplies the mean gradient by."""


def decide_recipe(config: Config, task: Task, num_images: int) -> Recipe:
    """All numbers of the update, from what was asked and the number of images."""
    plan = plan_run(
        num_images=num_images,
        batch=config.batch,
        nbs=config.nbs,
        epochs=config.epochs,
        warmup_epochs=config.warmup_epochs,
        tail=cast(Tail, config.tail),
    )
    choice = choose_optimizer(
        config.optimizer,
        num_updates=plan.num_updates,
        lr0=config.lr0,
        momentum=config.momentum,
        is_lr_typed=config.is_typed("lr0"),
        is_momentum_typed=config.is_typed("momentum"),
    )
    factor = lr_factor(plan, config.lr_scaling)
    schedule = Schedule(
        lr0=choice.lr0 * factor,
        lrf=config.lrf,
        momentum=choice.momentum,
        warmup_momentum=_warmup_momentum(config, choice),
        warmup_bias_lr=config.warmup_bias_lr,
        is_cosine=config.cos_lr,
        warmup_images=plan.warmup_images,
        total_images=plan.total_images,
    )
    decay_factor = plan.weight_decay_factor / factor
    return Recipe(
        plan=plan,
        optimizer=choice,
        schedule=schedule,
        weight_decay=config.weight_decay * decay_factor,
        decay_factor=decay_factor,
        lr_factor=factor,
        gain=task.gain(plan),
    )


def _warmup_momentum(config: Config, choice: OptimizerChoice) -> float:
    """The momentum that warmup starts from; a default above the momentum itself would make it fall."""
    typed = config.is_typed("warmup_momentum")
    return config.warmup_momentum if typed else min(config.warmup_momentum, choice.momentum)


def make_folder(config: Config) -> Path:
    """Make the run folder that `config` asks for; its path is absolute."""
    return make_run_folder(
        task=config.task,
        name=config.name or config.mode,
        project=config.project,
        save_dir=config.save_dir,
        exist_ok=config.exist_ok,
    ).resolve()


def task_of(config: Config) -> Task:
    """The task's entry in the table of tasks."""
    return TASKS[config.task]
