"""`Recorder`: what a training run tells and keeps while it goes on."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from visiontrain.data.loader import LoadedWindow
from visiontrain.engine.checkpoint import save_checkpoint
from visiontrain.engine.fit import EpochEnd, RunState, TimedWindow
from visiontrain.engine.noise import advice
from visiontrain.engine.schedule import Rates
from visiontrain.engine.window import WindowReport
from visiontrain.loggers import LOGGERS, LogTarget
from visiontrain.loggers.csv import CsvLogger
from visiontrain.protocols import Logger
from visiontrain.run.parts import Parts, checkpoint_of
from visiontrain.run.prepare import check_readable
from visiontrain.run.session import Session
from visiontrain.sample import DroppedBoxes

CALIBRATION = "such windows only find the scale: they are counted as calibration_windows, and no image is at fault"
LOGGER_NAMES = ("console", "csv", "file")
SECONDS_BETWEEN_WINDOW_LOGS = 0.1


class Recorder:
    """Logs windows and epochs, and writes the checkpoints."""

    def __init__(self, session: Session, folder: Path, loggers: list[Logger]) -> None:
        self.unreadable: set[str] = set()
        """Training images that could not be read so far."""
        self._session = session
        self._folder = folder
        self._loggers = loggers
        self._last_window_log = -math.inf
        self._dropped = DroppedBoxes()  # since the last epoch ended
        self._sizes: list[int] = []  # images of each window since the last epoch ended

    @property
    def last(self) -> Path:
        return self._folder / "weights" / "last.pt"

    @property
    def best(self) -> Path:
        return self._folder / "weights" / "best.pt"

    def log(self, event: str, values: Mapping[str, Any]) -> None:
        for logger in self._loggers:
            logger.log(event, values)

    def warn(self, text: str) -> None:
        self.log("warning", {"text": text})

    def watch(self, windows: Iterable[LoadedWindow]) -> Iterator[LoadedWindow]:
        """The same windows, each looked through for unreadable images when it has been trained on.

        Raises:
            DataError: If there are too many of them.
        """
        num_images, data = len(self._session.train), self._session.config.data
        for window in windows:
            yield window
            for path in (path for batch in window for path in batch.unreadable):
                if path not in self.unreadable:
                    self.unreadable.add(path)
                    self.warn(f"{path}: cannot be read; it is left out of its window")
            check_readable(data, len(self.unreadable), num_images, remedy="mend them (train.log names them) and resume")

    def window(self, window: TimedWindow, report: WindowReport, state: RunState, rates: Rates) -> None:
        """Tell what became of a window; progress at most ten times a second, as it waits for the device."""
        planned = window.planned
        self._sizes.append(report.num_images)
        for batch in window:
            self._dropped += batch.dropped
        if report.is_calibration:
            if state.calibrations == 1:
                self.warn(f"window {planned.number} was left out: {report.reason}; {CALIBRATION}")
            return
        if not report.applied:
            images = ", ".join(path for batch in window for path in batch.paths)
            self.warn(f"window {planned.number} was left out: {report.reason}; its images: {images}")
            return
        now = time.monotonic()
        if now - self._last_window_log < SECONDS_BETWEEN_WINDOW_LOGS:
            return
        self._last_window_log = now
        num_images = len(self._session.train)
        self.log(
            "window",
            {
                "epoch": planned.epoch + 1,
                "epochs": self._session.config.epochs,
                "images_done": planned.stop - planned.epoch * num_images,
                "num_images": num_images,
                "update": state.updates,
                "losses": report.losses(),
                "lr": rates.lr,
            },
        )

    def epoch(self, end: EpochEnd, parts: Parts) -> None:
        """Write the epoch's row, and the checkpoints."""
        self.log("epoch", end.row)
        diverged = [name for name, value in end.row.items() if "loss" in name and not math.isfinite(value or 0.0)]
        if diverged:
            self.warn(f"epoch {end.state.epoch}: {', '.join(diverged)} not finite: the run has diverged; lower lr0")
        self.log("windows", {"epoch": end.state.epoch, "images": tuple(self._sizes)})
        self._sizes.clear()
        if self._dropped != DroppedBoxes():
            self.log("note", {"text": f"boxes lost to augmentation in epoch {end.state.epoch}: {self._dropped}"})
        self._dropped = DroppedBoxes()
        if parts.noise is not None:
            sentence = advice(parts.noise.estimate(), self._session.config.nbs)
            self.log("note", {"text": f"epoch {end.state.epoch}: {sentence}"})
        values = checkpoint_of(parts, self._session, end)
        if end.is_best:
            save_checkpoint(self.best, values)
        period = self._session.config.save_period
        if period > 0 and end.state.epoch % period == 0:
            save_checkpoint(self.last.with_name(f"epoch{end.state.epoch}.pt"), values)
        save_checkpoint(self.last, values)  # last of all: a run that is killed before goes on from the epoch before


@contextmanager
def open_recorder(session: Session, folder: Path) -> Iterator[Recorder]:
    """The recorder of a run; its log files are closed however the run ends."""
    (folder / "weights").mkdir(parents=True, exist_ok=True)
    target = LogTarget(folder, _columns(session), quiet=session.config.quiet)
    results = folder / "results.csv"
    if session.checkpoint is None:
        results.unlink(missing_ok=True)  # only with exist_ok: this is a new run
    else:
        CsvLogger(results, target.columns).truncate_after(session.state.epoch)
    loggers = [LOGGERS[name](target) for name in LOGGER_NAMES]
    try:
        yield Recorder(session, folder, loggers)
    finally:
        for logger in loggers:
            logger.close()


def _columns(session: Session) -> tuple[str, ...]:
    losses, metrics = session.task.loss_columns, session.task.metric_columns
    return (
        *("epoch", "time", "updates", "images"),
        *(f"train/{name}" for name in losses),
        *metrics,
        *(f"val/{name}" for name in losses),
        *("lr/weight", "lr/norm", "lr/bias", "t_data", "t_step", "t_val"),
    )
