"""A training run before its first step: what was asked, decided and read, from fresh or from a checkpoint."""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

from visiontrain.config.schema import SETTINGS, Config
from visiontrain.data.workers import fitting_workers, lowered_workers_message, shm_free
from visiontrain.engine.checkpoint import load_checkpoint
from visiontrain.engine.device import DeviceSetup
from visiontrain.engine.fit import RunState
from visiontrain.engine.precision import Precision, choose_precision
from visiontrain.errors import CheckpointError, ConfigError
from visiontrain.models.network import Network
from visiontrain.plan import Plan
from visiontrain.protocols import Task
from visiontrain.run.choose_task import with_task
from visiontrain.run.normalization import check_batch_size, set_up_normalization_
from visiontrain.run.prepare import (
    LoadedModel,
    Recipe,
    check_image_size,
    decide_recipe,
    device_of,
    fresh_network,
    read_data,
    split_of,
    task_of,
    with_bundled_data,
)
from visiontrain.run.samples import largest_size
from visiontrain.sample import DataSet, Records

NETWORK_SUFFIXES = (".yaml", ".yml")

# What may be typed anew when a run goes on: none of it changes what the weights mean.
MAY_CHANGE = frozenset(
    (
        *("resume", "cfg", "exist_ok", "quiet", "plots"),
        *("epochs", "patience", "batch", "device", "workers", "amp", "val_interval", "save_period"),
        *("norm", "bn_momentum", "precise_bn", "checkpoint_activations", "noise_scale", "cache"),
    )
)


@dataclass(frozen=True)
class Session:
    """All that a training run starts from; nothing of it is on disk yet."""

    config: Config
    """Asked and decided."""
    task: Task
    data: DataSet
    train: Records
    val: Records | None
    network: Network
    setup: DeviceSetup
    precision: Precision
    recipe: Recipe
    state: RunState
    checkpoint: Mapping[str, Any] | None
    """Of the run that goes on."""
    folder: Path | None
    """Of the run that goes on: where its checkpoint lies now, not where it was made."""
    changes: tuple[str, ...]
    """What differs from the run that goes on, and what was guessed or dropped, one line each."""


def open_session(config: Config, *, trained: LoadedModel | None = None) -> Session:
    """Read and decide everything that training needs.

    Args:
        config: What was asked.
        trained: The network to start from, in place of the one that `config` names.

    Raises:
        UserError: If anything about it is wrong.
    """
    _check_not_a_worker()
    config = _with_absolute_paths(config)
    was_amp_typed = config.is_typed("amp")  # before the run that goes on adds what was typed for it
    checkpoint: Mapping[str, Any] | None = None
    changes: tuple[str, ...] = ()
    folder: Path | None = None
    if config.resume:
        path = _last_of(config)
        folder = path.resolve().parent.parent
        checkpoint = load_checkpoint(path)
        config, changes = _resumed(config, checkpoint)
    config = with_task(config)
    task = task_of(config)
    config = with_bundled_data(config, task)
    if config.imgsz is None:
        config = config.decide(imgsz=task.default_imgsz)
    if checkpoint is not None:
        trained = LoadedModel(_rebuilt(task, checkpoint), tuple(checkpoint["names"]), {})
    setup, precision, differences = _hardware(config, checkpoint, may_overrule=not was_amp_typed)
    data = read_data(config, task, ("train", "val") if config.val else ("train",))
    train = split_of(data, "train")
    val = split_of(data, "val") if "val" in data.splits else None
    if trained is None:
        network = fresh_network(config, task, data.names)
    else:
        _check_fits(trained, data, config)
        network = trained.network
    check_image_size(config, network)
    config = task.settle(config, data)
    setup, lowered = _with_fitting_workers(setup, config, largest_size(config, max(network.strides)))
    config = set_up_normalization_(network, config)
    network.checkpoint_activations = config.checkpoint_activations
    recipe = decide_recipe(config, task, len(train))
    check_batch_size(config, network, recipe.plan)
    _check_noise_scale(config, recipe.plan)
    config = _with_decisions(config, task, recipe)
    state = RunState() if checkpoint is None or folder is None else _state_of(checkpoint, folder, recipe.plan)
    has_no_val = config.val and val is None
    messages = data.messages + (("no val split: the last epoch counts as the best",) if has_no_val else ())
    return Session(
        config,
        task,
        data,
        train,
        val,
        network,
        setup,
        precision,
        recipe,
        state,
        checkpoint,
        folder,
        changes + differences + lowered + messages,
    )


def _hardware(
    config: Config, checkpoint: Mapping[str, Any] | None, *, may_overrule: bool
) -> tuple[DeviceSetup, Precision, tuple[str, ...]]:
    """What the run computes on and in which precision, as before where it goes on; and the differences in words."""
    setup, lines = device_of(config), tuple[str, ...]()
    precision = choose_precision(str(config.amp), setup.device)
    if checkpoint is not None:
        setup, lines = _like_before(setup, checkpoint)
        precision.is_overruled = may_overrule and bool(checkpoint.get("fp32_took_over"))
    return setup, precision, lines


def _check_fits(trained: LoadedModel, data: DataSet, config: Config) -> None:
    """Raises ConfigError where weights are of other classes than the data, or of another network than was typed."""
    if trained.names != data.names:
        raise ConfigError(
            f"data: its classes are {', '.join(data.names)}; those of the weights are {', '.join(trained.names)}: "
            "they must be the same, in the same order"
        )
    stored = trained.network.description.get("norm", "batch")
    if config.is_typed("norm") and (config.norm == "group") != (stored == "group"):
        raise ConfigError(
            f"norm = {config.norm}: the weights are those of a network with norm = {stored}; leave norm out"
        )


def _check_noise_scale(config: Config, plan: Plan) -> None:
    """Raises ConfigError where the noise scale could never be measured."""
    if config.noise_scale and not any(len(window.sizes) > 1 for window in plan.all_windows()):
        raise ConfigError(
            f"noise_scale = True: compares a micro-batch with its window, and here they are the same; lower batch "
            f"(now {plan.batch}) below nbs = {plan.nbs} and below the number of images, or leave noise_scale out"
        )


def _check_not_a_worker() -> None:
    """Raises ConfigError in a loader's worker that is about to run the user's script, and the training in it, again."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # what Python itself asks before it refuses
        raise ConfigError(
            "workers: a worker process runs the script again from its top; put the call below "
            '`if __name__ == "__main__":`, or use workers=0'
        )


def _with_absolute_paths(config: Config) -> Config:
    """`config` with paths that hold from any folder, so that a run can be repeated and resumed from anywhere."""
    paths: dict[str, str] = {}
    if config.data is not None:
        paths["data"] = str(Path(config.data).expanduser().absolute())
    if config.model is not None and Path(config.model).suffix in NETWORK_SUFFIXES:
        paths["model"] = str(Path(config.model).expanduser().absolute())
    return replace(config, **paths)  # type: ignore[arg-type]


def _like_before(setup: DeviceSetup, checkpoint: Mapping[str, Any]) -> tuple[DeviceSetup, tuple[str, ...]]:
    """The threads that the run had, where they are to be had, for the same bits; and what differs all the same."""
    threads, lines = checkpoint["threads"], []
    if setup.device.type == "cpu" and threads != setup.threads:
        if threads < setup.threads:
            setup = replace(setup, threads=threads)
        else:
            lines.append(f"threads: the run had {threads}, here are {setup.threads}: bits will differ by rounding")
    for name, version in versions().items():
        before = checkpoint["versions"].get(name)
        if before != version:
            lines.append(f"{name}: the run had version {before}, here is {version}: bits may differ")
    return setup, tuple(lines)


def _with_fitting_workers(setup: DeviceSetup, config: Config, imgsz: int) -> tuple[DeviceSetup, tuple[str, ...]]:
    """As many workers as the shared memory has room for, in which they hand over their batches.

    Args:
        setup: What the machine would allow.
        config: The settings.
        imgsz: The largest side of a sample, pixels.

    Raises:
        ConfigError: If more were typed: a bus error would end them, which nothing can catch.
    """
    room, batch_bytes = shm_free(), config.batch * 3 * imgsz**2
    is_pinned = setup.device.type == "cuda"  # then batches leave the shared memory at once
    held = 0 if is_pinned else max(config.batch, config.nbs) * 3 * imgsz**2
    fitting = fitting_workers(setup.workers, batch_bytes=batch_bytes, shm_bytes=room, held_bytes=held)
    if fitting >= setup.workers or room is None:
        return setup, ()
    message = lowered_workers_message(setup.workers, fitting, batch_bytes=batch_bytes, shm_bytes=room)
    if config.is_typed("workers") and config.workers != "auto":
        raise ConfigError(message)
    return replace(setup, workers=fitting), (message,)


def _with_decisions(config: Config, task: Task, recipe: Recipe) -> Config:
    """`config` with what was decided about the update in place of `auto` and of defaults."""
    rates = {
        "lr0": recipe.optimizer.lr0,
        "momentum": recipe.optimizer.momentum,
        "warmup_momentum": recipe.schedule.warmup_momentum,
    }
    return config.decide(
        model=config.model or task.default_model,
        optimizer=recipe.optimizer.name,
        **{key: value for key, value in rates.items() if not config.is_typed(key)},
    )


def stored_args(config: Config) -> dict[str, Any]:
    """`config` as plain values for a checkpoint."""
    return {"values": config.values(), "origins": {key: config.origin(key) for key in config.values()}}


def config_from(args: Mapping[str, Any]) -> Config:
    """The settings that `stored_args` kept; keys that this version does not know are left out."""
    known = {key: value for key, value in args["values"].items() if key in SETTINGS}
    known = {key: tuple(value) if isinstance(value, list) else value for key, value in known.items()}
    return Config(**known, origins={key: args["origins"].get(key, "default") for key in known})


def _last_of(config: Config) -> Path:
    """The checkpoint to go on from: a file, the `last.pt` of a run folder, or that of the newest run."""
    if not isinstance(config.resume, str):
        project = Path(config.project) if config.project else Path("runs") / config.task
        found = sorted(project.glob("*/weights/last.pt"), key=lambda path: path.stat().st_mtime)
        if not found:
            raise ConfigError(f"resume = True: there is no */weights/last.pt in {project}; name the run, resume=FOLDER")
        return found[-1]
    path = Path(config.resume)
    if path.is_dir():
        path = path / "weights" / "last.pt"
    elif path.is_file() and path.resolve().parent.name != "weights":
        raise ConfigError(
            f"resume = {config.resume!r}: the file does not lie in the weights folder of a run; name the run's folder"
        )
    if path.is_file() and path.name == "best.pt":
        raise ConfigError(
            f"resume = {config.resume!r}: holds the best epoch, not the latest; name the run's folder or its last.pt "
            "(or an epochN.pt, to train again from there)"
        )
    if not path.is_file():
        raise ConfigError(
            f"resume = {config.resume!r}: {path} does not exist; name a run folder or its weights/last.pt"
        )
    return path


def _resumed(config: Config, checkpoint: Mapping[str, Any]) -> tuple[Config, tuple[str, ...]]:
    """The settings of the run that goes on, with those typed now; and the differences in words."""
    if "optimizer" not in checkpoint:
        raise CheckpointError("resume: the file holds weights but no optimizer state; resume from a last.pt")
    stored = config_from(checkpoint["args"])
    typed = {key: getattr(config, key) for key in SETTINGS if config.is_typed(key)}
    differing = {key: value for key, value in typed.items() if value != getattr(stored, key)}
    faults = [
        f"{key} = {value!r}: the run to go on has {getattr(stored, key)!r}, which cannot change; leave {key} out"
        for key, value in differing.items()
        if key not in MAY_CHANGE or (key == "norm" and "group" in (value, stored.norm))  # that is another network
    ]
    if faults:
        raise ConfigError(faults)
    lines = tuple(
        f"{key}: {getattr(stored, key)!r} → {value!r}"
        for key, value in differing.items()
        if key not in ("resume", "exist_ok")
    )
    origins = {**stored.origins, **{key: config.origin(key) for key in typed}}
    values = {declared.name: getattr(stored, declared.name) for declared in fields(Config)}
    return Config(**{**values, **typed, "origins": origins}), lines


def _rebuilt(task: Task, checkpoint: Mapping[str, Any]) -> Network:
    network = task.network(checkpoint["network"], tuple(checkpoint["names"]))
    network.load_state_dict(checkpoint["model"])
    return network


def _state_of(checkpoint: Mapping[str, Any], folder: Path, plan: Plan) -> RunState:
    """Where the run stands, found in the plan by its images: so `batch` may have changed."""
    state = RunState(**checkpoint["plan"])
    if state.images >= plan.total_images:
        if (folder / "results.json").is_file():
            raise ConfigError(
                f"resume: the run has finished its {state.epoch} epochs; type a larger epochs= to train it further"
            )
        return state  # trained to the end, but ended before its results were written
    if state.images not in plan.first_image:
        raise ConfigError(
            f"resume: no epoch of the new plan opens a window at image {state.images}; with tail={plan.tail} leave "
            "batch and epochs as the run had them"
        )
    # Of epochs that open no window of their own (tail=carry) the last one's index is the same.
    state.window = plan.first_window[plan.first_image.index(state.images)]
    return state


def state_values(state: RunState) -> dict[str, Any]:
    """`state` as plain values for a checkpoint."""
    return asdict(state)


def versions() -> dict[str, str]:
    """Versions that a run's bits depend on."""
    import torchvision

    import visiontrain

    return {
        "visiontrain": visiontrain.__version__,
        "torch": str(torch.__version__),
        "torchvision": torchvision.__version__,
    }
