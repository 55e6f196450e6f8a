"""Which task a command is for, where the user did not say: that of the model, or else that of the data."""

from __future__ import annotations

from pathlib import Path

from visiontrain.config.schema import SETTINGS, Config
from visiontrain.data.formats import recognized
from visiontrain.data.formats.files import exists
from visiontrain.engine.checkpoint import load_checkpoint
from visiontrain.errors import ConfigError
from visiontrain.export.onnx_network import SUFFIX as ONNX_SUFFIX
from visiontrain.export.onnx_network import read_metadata
from visiontrain.folders import with_home
from visiontrain.models.classifiers import task_of_network
from visiontrain.run.prepare import RUNS_EXPORTED, WEIGHTS_SUFFIXES


def with_task(config: Config, *, known: str | None = None) -> Config:
    """`config` with its task decided.

    Args:
        config: The settings.
        known: The model's task, where that was read already; the file may be gone since.

    Raises:
        ConfigError: If the task that was typed is not the model's, or a key was typed that has no effect on the task;
            all faults at once.
    """
    config, faults = found_task(config, known=known)
    if faults:
        raise ConfigError(faults)
    return config


def found_task(config: Config, *, known: str | None = None) -> tuple[Config, list[str]]:
    """`config` with its task decided, and the faults of keys that have no effect on it.

    Args:
        config: The settings.
        known: As for `with_task`.

    Raises:
        ConfigError: If the task that was typed is not the model's; with the other faults.
    """
    found = known or (None if config.model is None else _task_of_model(config.model, config.mode))
    if not config.is_typed("task"):
        known_by_data = None if found or config.data is None else _task_of_data(config)
        config = config.decide(task=found or known_by_data or config.task)
    faults = [
        f"{key}: has no effect on {config.task}, it is for {' and '.join(setting.rules.tasks)}; leave it out"
        for key, setting in SETTINGS.items()
        if config.origin(key) in ("command line", "python")
        and config.task not in (setting.rules.tasks or (config.task,))
    ]
    if found not in (None, config.task):
        wrong_task = f"task = {config.task}: model = {config.model!r} is for {found}; leave one of them out"
        raise ConfigError([wrong_task, *faults])
    return config, faults


def _task_of_model(model: str, mode: str) -> str:
    if Path(model).suffix == ONNX_SUFFIX:
        if mode not in RUNS_EXPORTED:
            modes = f"{', '.join(RUNS_EXPORTED[:-1])} and {RUNS_EXPORTED[-1]}"
            raise ConfigError(
                f"model = {model!r}: is an exported file, which {modes} take; {mode} needs the weights "
                "that it was made of, such as best.pt"
            )
        return read_metadata(Path(model)).task
    if Path(model).suffix in WEIGHTS_SUFFIXES:
        return str(load_checkpoint(Path(model))["task"])
    return task_of_network(model)


def _task_of_data(config: Config) -> str | None:
    """The task of the format that was typed, or that is recognized; None where none is."""
    source = with_home(str(config.data))
    found = recognized(source, data_format=config.data_format) if exists(source) else None
    return None if found is None else found[0]
