"""TensorBoard: an event file in the run's folder, so that `tensorboard --logdir runs/detect` compares all runs."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter
from torch.utils.tensorboard.summary import hparams, scalar

from visiontrain.loggers.values import BEST, EPOCH, UPDATE, best_values, epoch_values, update_values

EVENT_FILES = "events.out.tfevents.*"
HYPERPARAMETERS = "_hparams_/"
"""Begins the tags of TensorBoard's table of them."""


class TensorBoardLogger:
    """Writes the columns of `results.csv` by epoch, losses and learning rate by update, settings and the best score.

    The file is opened for each event, as a log that cannot be written is then met where it happens, and no thread is
    needed. A run that goes on has a new file with what came before the place where it goes on.
    """

    def __init__(self, folder: Path, *, settings: Mapping[str, Any], epoch: int = 0, update: int = 0) -> None:
        """
        Args:
            folder: Of the run.
            settings: Shown as hyperparameters.
            epoch: Events of later epochs are dropped, as they come again; 0 drops all.
            update: The same for updates.

        Raises:
            OSError: If the folder cannot be written.
        """
        self._settings = settings
        self._epoch = epoch
        before = sorted(folder.glob(EVENT_FILES))
        self._path = _unused(folder)
        self._num_bytes = 0
        self._append([Event(wall_time=time.time(), file_version="brain.Event:2"), *_kept(before, epoch, update)])
        for path in before:  # only now: a run that is killed meanwhile loses nothing
            path.unlink()

    def log(self, event: str, values: Mapping[str, Any]) -> None:
        if event == "updates":
            self._append(one for row in values["rows"] for one in _scalars(update_values(row), row[UPDATE]))
        elif event == "epoch":
            self._epoch = int(values[EPOCH])
            self._append(_scalars(epoch_values(values), self._epoch))
        elif event == "end":
            best = best_values(values.get("metrics", {}))
            table = (_event(summary, self._epoch) for summary in hparams(_plain(self._settings), best))
            self._append([*_scalars(best, self._epoch), *table])

    def close(self) -> None:
        """Nothing is left open between events."""

    def _append(self, events: Iterable[Event]) -> None:
        buffer = io.BytesIO()
        writer = RecordWriter(buffer)
        for event in events:
            writer.write(event.SerializeToString())
        with self._path.open("r+b" if self._num_bytes else "xb") as file:
            file.truncate(self._num_bytes)  # a record that a full disk has cut off would hide all that follow
            file.seek(0, os.SEEK_END)
            file.write(buffer.getvalue())
            file.flush()
            os.fsync(file.fileno())
        self._num_bytes += buffer.tell()


def _unused(folder: Path) -> Path:
    """A name that sorts behind those of the event files there: TensorBoard reads them in this order."""
    taken = [int(part) for path in folder.glob(EVENT_FILES) if (part := path.name.split(".")[3]).isdigit()]
    return folder / f"events.out.tfevents.{max([int(time.time()), *(number + 1 for number in taken)]):010d}.visiontrain"


def _kept(paths: Iterable[Path], epoch: int, update: int) -> Iterator[Event]:
    """The events of the run before of updates and epochs that do not come again, each once."""
    kept: dict[tuple[str, int], Event] = {}
    for path in paths:
        for event in LegacyEventFileLoader(str(path)).Load():  # ends at a record that was cut off
            tag = event.summary.value[0].tag if event.summary.value else ""
            last = update if tag.startswith(f"{UPDATE}/") else epoch
            if tag and event.step <= last and not tag.startswith((BEST, HYPERPARAMETERS)):
                kept[tag, event.step] = event
    return iter(kept.values())


def _scalars(values: Mapping[str, float], step: int) -> Iterator[Event]:
    return (_event(scalar(name, value), step) for name, value in values.items())


def _event(summary: Summary, step: int) -> Event:
    return Event(wall_time=time.time(), step=step, summary=summary)


def _plain(settings: Mapping[str, Any]) -> dict[str, int | float | str]:
    """The settings as what a table of hyperparameters may hold; truth would be shown as 0 and 1."""
    return {
        key: value if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)
        for key, value in settings.items()
    }
