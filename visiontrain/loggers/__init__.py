"""Sinks for what a run reports: console, `train.log`, `results.csv`, and the trackers that a user asks for by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from visiontrain.protocols import Logger


@dataclass(frozen=True)
class LogTarget:
    """What a logger may need to know of the run it reports."""

    folder: Path
    """The run's folder; it exists."""
    columns: tuple[str, ...]
    """The header of `results.csv`."""
    quiet: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Every key with its value."""
    is_resumed: bool = False
    epoch: int = 0
    """Epochs that the run has behind it: what is known of later ones comes again."""
    update: int = 0
    """Updates that the run has behind it."""


def _console(target: LogTarget) -> Logger:
    from visiontrain.loggers.console import ConsoleLogger

    return ConsoleLogger(quiet=target.quiet)


def _csv(target: LogTarget) -> Logger:
    from visiontrain.loggers.csv import CsvLogger

    return CsvLogger(target.folder / "results.csv", target.columns)


def _file(target: LogTarget) -> Logger:
    from visiontrain.loggers.file import FileLogger

    return FileLogger(target.folder / "train.log")


def _tensorboard(target: LogTarget) -> Logger:
    from visiontrain.loggers.tensorboard import TensorBoardLogger

    return TensorBoardLogger(target.folder, settings=target.settings, epoch=target.epoch, update=target.update)


def _mlflow(target: LogTarget) -> Logger:
    from visiontrain.loggers.mlflow import MlflowLogger

    return MlflowLogger(target.folder, settings=target.settings, is_resumed=target.is_resumed)


def _wandb(target: LogTarget) -> Logger:
    from visiontrain.loggers.wandb import WandbLogger

    return WandbLogger(target.folder, settings=target.settings, is_resumed=target.is_resumed)


LOGGERS: Mapping[str, Callable[[LogTarget], Logger]] = {
    "console": _console,
    "csv": _csv,
    "file": _file,
    "tensorboard": _tensorboard,
    "mlflow": _mlflow,
    "wandb": _wandb,
}
