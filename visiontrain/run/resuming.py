"""Going on with a run: from its last good checkpoint, with what may be typed anew, at its place in the plan."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields, replace
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any, NamedTuple

import torch

from visiontrain.config.load import load_config
from visiontrain.config.schema import AUTO_BATCH, SETTINGS, Config
from visiontrain.engine.checkpoint import load_checkpoint
from visiontrain.engine.device import DeviceSetup
from visiontrain.engine.fit import EpochSums, RunState
from visiontrain.errors import CheckpointError, ConfigError
from visiontrain.models.network import Network
from visiontrain.plan import Plan
from visiontrain.protocols import Task
from visiontrain.run.time_limit import check_time_left
from visiontrain.sample import DataSet

WEIGHTS, LAST, PREVIOUS, ARGS = "weights", "last.pt", "previous.pt", "args.yaml"
"""Where a run keeps its checkpoints and settings."""

# What may be typed anew when a run goes on: none of it changes what the weights mean.
MAY_CHANGE = frozenset(
    (
        *("resume", "cfg", "exist_ok", "quiet", "plots", "json", "logger", "max_skips"),
        *("epochs", "time", "patience", "batch", "device", "processes", "workers", "amp"),
        *("val_interval", "save_period", "save_minutes"),
        *("norm", "bn_momentum", "precise_bn", "checkpoint_activations", "compile", "noise_scale", "cache"),
    )
)


class Resumed(NamedTuple):
    """A run that goes on; with its settings alone, a new one."""

    config: Config
    """Its settings, with those typed now."""
    folder: Path | None = None
    """Where it lies now, not where it was made."""
    checkpoint: Mapping[str, Any] | None = None
    """None where the run had not saved anything yet: it starts over in its folder."""
    changes: tuple[str, ...] = ()
    """What differs from the run as it was, one line each."""
    is_last_damaged: bool = False
    """Whether the checkpoint is the one before the last, which cannot be used."""


def go_on(config: Config) -> Resumed:
    """Find the run that `config.resume` names, and load its last good checkpoint.

    Raises:
        UserError: If there is no such run, none of its checkpoints can be used, or a key was typed that cannot change.
    """
    path = _named(config)
    folder = path.resolve().parent.parent
    if not path.is_file() and not path.with_name(PREVIOUS).is_file():
        return _started_over(config, folder)
    checkpoint, notes = _last_good(path)
    settings, changes = _resumed(config, checkpoint)
    return Resumed(settings, folder, checkpoint, notes + changes, is_last_damaged=bool(notes))


def _named(config: Config) -> Path:
    """The checkpoint that is meant, whether it is there or not, of a run that is there."""
    if not isinstance(config.resume, str):
        project = Path(config.project) if config.project else Path("runs") / config.task
        runs = {path.parent for path in project.glob(f"*/{ARGS}")}
        runs |= {path.parent.parent for path in project.glob(f"*/{WEIGHTS}/*.pt")}
        if not runs:
            raise ConfigError(
                f"resume = True: there is no run in {project}, no */{WEIGHTS}/{LAST}; name the run, resume=FOLDER"
            )
        return max(runs, key=_last_touched) / WEIGHTS / LAST
    path = Path(config.resume)
    if path.is_dir():
        known = (path / ARGS, path / WEIGHTS / LAST, path / WEIGHTS / PREVIOUS)
        if not any(map(Path.is_file, known)):
            raise ConfigError(
                f"resume = {config.resume!r}: holds neither {WEIGHTS}/{LAST} nor {ARGS}, so no run was begun there; "
                "name a run folder, or train anew with save_dir= and exist_ok=True"
            )
        return path / WEIGHTS / LAST
    if path.is_file() and path.resolve().parent.name != WEIGHTS:
        raise ConfigError(
            f"resume = {config.resume!r}: the file does not lie in the weights folder of a run; name the run's folder"
        )
    if path.is_file() and path.name == "best.pt":
        raise ConfigError(
            f"resume = {config.resume!r}: holds the best epoch, not the latest; name the run's folder or its {LAST} "
            "(or an epochN.pt, to train again from there)"
        )
    if not path.is_file():
        raise ConfigError(
            f"resume = {config.resume!r}: {path} does not exist; name a run folder or its {WEIGHTS}/{LAST}"
        )
    return path


def _last_touched(folder: Path) -> float:
    places = (folder / ARGS, *(folder / WEIGHTS).glob("*.pt"))
    return max(path.stat().st_mtime for path in places if path.is_file())


def _last_good(path: Path) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """The checkpoint at `path`, or the one before it where that is damaged or gone; and what there is to say of it."""
    try:
        return load_checkpoint(path), ()
    except CheckpointError as error:
        previous = path.with_name(PREVIOUS)
        if path.name != LAST or not previous.is_file():
            raise
        try:
            return load_checkpoint(previous), (f"{error}; going on from {previous}, the one before it",)
        except CheckpointError as other:
            raise CheckpointError([*error.faults, *other.faults]) from other


def _started_over(config: Config, folder: Path) -> Resumed:
    """The run of a folder that holds its settings and nothing else yet."""
    stored = load_config("train", python={"cfg": str(folder / ARGS)})
    settings, changes = _merged(config, stored)
    note = f"{folder}: the run had not saved anything yet, so it starts over there"
    return Resumed(replace(settings, cfg=config.cfg), folder, None, (note, *changes))


def _resumed(config: Config, checkpoint: Mapping[str, Any]) -> tuple[Config, tuple[str, ...]]:
    """The settings of the run that goes on, with those typed now; and the differences in words."""
    if "optimizer" not in checkpoint:
        raise CheckpointError("resume: the file holds weights but no optimizer state; resume from a last.pt")
    return _merged(config, config_from(checkpoint["args"]))


def _merged(config: Config, stored: Config) -> tuple[Config, tuple[str, ...]]:
    """`stored` with what was typed in `config`; and the differences in words.

    Raises:
        ConfigError: If a key was typed that cannot change; all faults at once.
    """
    typed = {key: getattr(config, key) for key in SETTINGS if config.is_typed(key)}
    if config.resume is True:
        typed.pop("project", None)  # it said where to look for the run
    if config.batch == AUTO_BATCH and stored.batch != AUTO_BATCH:
        typed.pop("batch", None)  # what was measured is kept
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


def rebuilt(task: Task, checkpoint: Mapping[str, Any]) -> Network:
    """The network of a checkpoint with its live weights."""
    network = task.network(checkpoint["network"], tuple(checkpoint["names"]))
    network.load_state_dict(checkpoint["model"])
    return network


def state_of(resumed: Resumed, plan: Plan, setup: DeviceSetup) -> RunState:
    """Where the run stands, found in the plan by its images: so `batch` may have changed.

    Raises:
        ConfigError: If the run is finished, or the plan opens no window where it stands.
    """
    assert resumed.checkpoint is not None
    assert resumed.folder is not None
    values = dict(resumed.checkpoint["plan"])
    sums = values.pop("sums", None)
    state = RunState(**values)
    if sums is not None:
        state.sums = EpochSums.from_plain(sums, setup.device)
    if state.images >= plan.total_images:
        if (resumed.folder / "results.json").is_file():
            raise ConfigError(
                f"resume: the run has finished its {state.epoch} epochs; type a larger epochs= to train it further"
            )
        return state  # trained to the end, but ended before its results were written
    window = plan.window_at(state.images)
    if window is None:
        raise ConfigError(
            f"resume: no window of the new plan begins at image {state.images}; leave batch, epochs and tail as the "
            "run had them, or go on from the end of an epoch (save_period keeps them as weights/epochN.pt)"
        )
    state.window = window
    check_time_left(resumed.config, state)
    return state


def state_values(state: RunState) -> dict[str, Any]:
    """`state` as tensors and plain values for a checkpoint."""
    values = {declared.name: getattr(state, declared.name) for declared in fields(state)}
    return {**values, "sums": state.sums.to_plain()}


def stored_args(config: Config) -> dict[str, Any]:
    """`config` as plain values for a checkpoint."""
    return {"values": config.values(), "origins": {key: config.origin(key) for key in config.values()}}


def config_from(args: Mapping[str, Any]) -> Config:
    """The settings that `stored_args` kept; keys that this version does not know are left out."""
    known = {key: value for key, value in args["values"].items() if key in SETTINGS}
    known = {key: tuple(value) if isinstance(value, list) else value for key, value in known.items()}
    return Config(**known, origins={key: args["origins"].get(key, "default") for key in known})


def like_before(setup: DeviceSetup, checkpoint: Mapping[str, Any]) -> tuple[DeviceSetup, tuple[str, ...]]:
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


def versions() -> dict[str, str]:
    """Versions that a run's bits depend on."""
    import visiontrain

    return {
        "visiontrain": visiontrain.__version__,
        "torch": str(torch.__version__),
        "torchvision": version_of("torchvision"),  # to import it takes seconds and 150 MB,
    }


def fingerprint_of(data: DataSet) -> str:
    """SHA-256 of class names, and of file names, sizes and labels of every split."""
    digest = hashlib.sha256("\0".join(data.names).encode())
    for split, records in sorted(data.splits.items()):
        digest.update(f"\0{split}\0{records.digest()}".encode())
    return digest.hexdigest()
