"""`Recorder`: what a training run tells and keeps while it goes on."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from visiontrain.config.schema import Config
from visiontrain.data.loader import LoadedWindow
from visiontrain.engine.checkpoint import SaveError, save_checkpoint
from visiontrain.engine.device import available_cores
from visiontrain.engine.fit import EpochEnd, RunState, TimedWindow
from visiontrain.engine.noise import advice
from visiontrain.engine.schedule import Rates
from visiontrain.engine.window import WindowReport
from visiontrain.errors import CheckpointError, ConfigError, DataError
from visiontrain.loggers import LOGGERS, LogTarget
from visiontrain.loggers.csv import CsvLogger
from visiontrain.protocols import Logger
from visiontrain.run.callbacks import Callbacks, CheckpointSaved, EpochStart, Warned, WindowEnd, WindowStart
from visiontrain.run.interrupt import Interrupt
from visiontrain.run.parts import Parts, checkpoint_of
from visiontrain.run.prepare import check_readable
from visiontrain.run.resuming import LAST, PREVIOUS, WEIGHTS
from visiontrain.run.session import Session
from visiontrain.run.update_log import Progress, UpdateLog
from visiontrain.run.waiting import DataWait
from visiontrain.sample import DroppedBoxes

CALIBRATION = "such windows only find the scale: they are counted as calibration_windows, and no image is at fault"
LOGGER_NAMES = ("console", "csv", "file")
"""Of every run; the trackers that the user asks for come behind them."""
RETRY_MINUTES = 1.0
"""After which a checkpoint that could not be written is tried again."""


class Recorder:
    """Logs windows and epochs, and writes the checkpoints."""

    def __init__(
        self,
        session: Session,
        folder: Path,
        loggers: list[Logger],
        *,
        callbacks: Callbacks | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.callbacks = callbacks or Callbacks()
        self.interrupt = Interrupt(self.warn)
        self._clock = clock
        self.unreadable: set[str] = set()
        """Training images that could not be read so far."""
        self._session = session
        self._folder = folder
        self._loggers = loggers
        self._complaints: set[str] = set()
        self._saved = session.state.window if session.checkpoint is not None else -1  # window of the last checkpoint
        self._next_save = self._clock() + 60 * session.config.save_minutes
        self._dropped = DroppedBoxes()  # since the last epoch ended
        self._sizes: list[int] = []  # images of each window since the last epoch ended
        self._epoch = session.state.epoch  # the last that was told to begin, from 1
        self._progress = Progress(self.log, clock, epochs=session.config.epochs, num_images=len(session.train))
        self._updates = UpdateLog(self.log, clock)
        self.data_wait = DataWait(
            workers=session.setup.workers,
            cores=available_cores(),
            is_cached=bool(session.config.cache),
            on_cpu=session.setup.device.type == "cpu",
        )

    @property
    def last(self) -> Path:
        return self._folder / WEIGHTS / LAST

    @property
    def best(self) -> Path:
        return self._folder / WEIGHTS / "best.pt"

    def log(self, event: str, values: Mapping[str, Any]) -> None:
        """Tell all loggers. One that cannot write (a full disk, a folder that is gone) does not end the run."""
        for logger in self._loggers:
            try:
                logger.log(event, values)
            except OSError as error:
                self._complain(str(error))

    def _complain(self, text: str) -> None:
        """Say once what cannot be written."""
        if text not in self._complaints:
            self._complaints.add(text)
            self.warn(f"{text}; training goes on without it")

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Pictures that cannot be written (a full disk, a folder that is gone) do not end the run."""
        try:
            yield
        except OSError as error:
            self.warn(f"{self._folder}: no pictures ({error.strerror or error}); the run goes on without them")
        except DataError as error:  # results.csv has lost its rows
            self.warn(f"{error}; the run goes on without its curves")

    def warn(self, text: str) -> None:
        self.log("warning", {"text": text})
        self.callbacks.tell("on_warning", Warned(text))

    def watch(self, windows: Iterable[LoadedWindow]) -> Iterator[LoadedWindow]:
        """The same windows, each told before, and looked through for unreadable images when it has been trained on.

        Raises:
            DataError: If there are too many of them.
        """
        num_images, data = len(self._session.train), self._session.config.data
        for window in windows:
            planned = window.planned
            self._start_epochs(planned.epoch + 1)
            sizes = tuple(planned.sizes)
            self.callbacks.tell("on_window_start", WindowStart(planned.epoch + 1, planned.number, planned.size, sizes))
            yield window
            for path in (path for batch in window for path in batch.unreadable):
                if path not in self.unreadable:
                    self.unreadable.add(path)
                    self.warn(f"{path}: cannot be read; it is left out of its window")
            check_readable(data, len(self.unreadable), num_images, remedy="mend them (train.log names them) and resume")

    def window(
        self,
        window: TimedWindow,
        report: WindowReport,
        state: RunState,
        rates: Rates,
        find_culprits: Callable[[TimedWindow], list[str]],
    ) -> None:
        """Tell what became of a window; progress at most ten times a second, as it waits for the device.

        Args:
            window: With its batches.
            report: Of it.
            state: Where the run stands behind it.
            rates: It was trained at.
            find_culprits: Names the images of a window that are to blame by themselves.
        """
        self._sizes.append(report.num_images)
        self.data_wait.note_first(window)
        for batch in window:
            self._dropped += batch.dropped
        if report.applied:
            self._progress.show(window.planned, report, state, rates)
            if trackers_of(self._session.config):
                self._updates.add(report, state, rates)
        elif report.is_calibration:
            if state.calibrations == 1:
                self.warn(f"window {window.planned.number} was left out: {report.reason}; {CALIBRATION}")
        else:
            images = ", ".join(path for batch in window for path in batch.paths)
            culprits = find_culprits(window) if report.num_images and not report.is_forward_finite else []
            blame = f"; by itself it is {', '.join(culprits)}" if culprits else ""
            self.warn(f"window {window.planned.number} was left out: {report.reason}{blame}; its images: {images}")
        self.callbacks.tell("on_window_end", WindowEnd.of(window.planned, report, state, rates))

    def _start_epochs(self, last: int) -> None:
        """Tell that the epochs up to `last` (from 1) begin: a window may hold all of an epoch between two others."""
        while self._epoch < last:
            self._epoch += 1
            self.callbacks.tell("on_epoch_start", EpochStart(self._epoch, self._session.config.epochs))

    def epoch(self, end: EpochEnd, parts: Parts) -> None:
        """Write the epoch's row, and the checkpoints."""
        self._start_epochs(end.state.epoch)
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
        values = checkpoint_of(parts, self._session, end.state, end.metrics)
        if end.is_best:
            self._save(self.best, values, end.state)
        period = self._session.config.save_period
        if period > 0 and end.state.epoch % period == 0:
            self._save(self.last.with_name(f"epoch{end.state.epoch}.pt"), values, end.state)
        self._save_last(values, end.state)  # last of all: a run that is killed before goes on from the one before
        advice_on_data = self.data_wait.add(end.row)
        if advice_on_data:
            self.warn(advice_on_data)
        self.callbacks.tell("on_epoch_end", end)

    def is_to_end(self, state: RunState, parts: Parts) -> bool:
        """Save where that is due, and tell whether the user wants the run to end."""
        wants_end = self.interrupt.signum is not None
        if (wants_end or self._clock() >= self._next_save) and self._saved != state.window:
            self._save_last(checkpoint_of(parts, self._session, state), state)
        return wants_end

    def _save_last(self, values: Mapping[str, Any], state: RunState) -> None:
        self._updates.flush()
        is_saved = self._save(self.last, values, state, previous=self.last.with_name(PREVIOUS))
        self._saved = state.window if is_saved else -1
        minutes = self._session.config.save_minutes
        self._next_save = self._clock() + 60 * (minutes if is_saved else min(minutes, RETRY_MINUTES))

    def _save(self, path: Path, values: Mapping[str, Any], state: RunState, *, previous: Path | None = None) -> bool:
        """Whether the checkpoint could be written; if not, it is told, and training goes on."""
        try:
            save_checkpoint(path, values, previous=previous)
        except SaveError as error:
            self.warn(f"{error}; training goes on and tries again in {RETRY_MINUTES:g} minute at the latest")
            return False
        self.callbacks.tell("on_checkpoint", CheckpointSaved(path, state.epoch, state.images))
        return True

    def check_saved(self, state: RunState) -> None:
        """Raises CheckpointError if the run has ended and is not on disk."""
        if self._saved != state.window:
            raise CheckpointError(
                f"{self.last}: the run has ended and could not be saved; make room and go on with "
                f"resume={self._folder}, from its last checkpoint"
            )


def trackers_of(config: Config) -> tuple[str, ...]:
    """The trackers that `logger` names, each once."""
    return tuple(dict.fromkeys(name.strip().lower() for name in (config.logger or "").split(",") if name.strip()))


@contextmanager
def open_recorder(session: Session, folder: Path, callbacks: Callbacks) -> Iterator[Recorder]:
    """The recorder of a run; its log files are closed however the run ends."""
    with ExitStack() as opened:
        loggers = _open_loggers(session, folder, opened)
        recorder = Recorder(session, folder, loggers, callbacks=callbacks)
        with recorder.interrupt:
            yield recorder


def _open_loggers(session: Session, folder: Path, opened: ExitStack) -> list[Logger]:
    """The run's loggers, those of another run in its folder cleared away.

    Raises:
        ConfigError: If the folder cannot be written, or a tracker cannot begin.
    """
    target = LogTarget(
        folder,
        _columns(session),
        quiet=session.config.quiet,
        settings=session.config.values(),
        is_resumed=session.checkpoint is not None,
        epoch=session.state.epoch,
        update=session.state.updates,
    )
    results, loggers = folder / "results.csv", list[Logger]()
    try:
        (folder / WEIGHTS).mkdir(parents=True, exist_ok=True)
        if session.checkpoint is None:
            for path in (results, *(folder / name for name in ("results.json", "review.json", "report.html"))):
                path.unlink(missing_ok=True)  # only with exist_ok, or a run that starts over: this is a new run
        else:
            CsvLogger(results, target.columns).truncate_after(session.state.epoch)
            last = folder / WEIGHTS / LAST
            if session.resumed.is_last_damaged and last.exists():
                last.replace(last.with_name("damaged.pt"))  # or it would replace the good one before it
        for name in (*LOGGER_NAMES, *trackers_of(session.config)):
            loggers.append(LOGGERS[name](target))
            opened.callback(_close, loggers[-1], name)
    except OSError as error:
        raise ConfigError(
            f"{folder}: the run folder cannot be written ({error.strerror or error}); mend its rights, or choose "
            "another place with project= or save_dir="
        ) from error
    return loggers


def _close(logger: Logger, name: str) -> None:
    """A log that cannot be closed takes nothing from a run that has ended, nor from the error that has ended it."""
    try:
        logger.close()
    except OSError as error:
        print(f"warning: the log of {name} could not be closed: {error}", file=sys.stderr)


def _columns(session: Session) -> tuple[str, ...]:
    losses, metrics = session.task.loss_columns, session.task.metric_columns
    return (
        *("epoch", "time", "updates", "images"),
        *(f"train/{name}" for name in losses),
        *metrics,
        *(f"val/{name}" for name in losses),
        *("lr/weight", "lr/norm", "lr/bias", "t_data", "t_step", "t_val"),
    )
