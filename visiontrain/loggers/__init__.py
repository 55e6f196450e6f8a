"""Sinks for what a run reports: console, `train.log`, `results.csv`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from visiontrain.protocols import Logger


@dataclass(frozen=True)
class LogTarget:
    """What a logger may need to know of the run it reports."""

    folder: Path
    """The run's folder; it exists."""
    columns: tuple[str, ...]
    """The header of `results.csv`."""
    quiet: bool = False


def _console(target: LogTarget) -> Logger:
    from visiontrain.loggers.console import ConsoleLogger

    return ConsoleLogger(quiet=target.quiet)


def _csv(target: LogTarget) -> Logger:
    from visiontrain.loggers.csv import CsvLogger

    return CsvLogger(target.folder / "results.csv", target.columns)


def _file(target: LogTarget) -> Logger:
    from visiontrain.loggers.file import FileLogger

    return FileLogger(target.folder / "train.log")


LOGGERS: Mapping[str, Callable[[LogTarget], Logger]] = {"console": _console, "csv": _csv, "file": _file}
