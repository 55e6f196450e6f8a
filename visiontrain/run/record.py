"""`Recorder`: what a training run tells and keeps while it goes on."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from visiontrain.config.schema import Config
from visiontrain.data.loader import LoadedWindow
from visiontrain.engine.device import available_cores
from visiontrain.engine.fit import EpochEnd, RunState, TimedWindow
from visiontrain.engine.noise import advice
from visiontrain.engine.schedule import Rates
from visiontrain.engine.window import WindowReport
from visiontrain.errors import ConfigError, DataError
from visiontrain.loggers import LOGGERS, LogTarget
from visiontrain.loggers.csv import CsvLogger
from visiontrain.protocols import Logger
from visiontrain.run.callbacks import Callbacks, CheckpointSaved, EpochStart, Warned, WindowEnd, WindowStart
from visiontrain.run.interrupt import Interrupt
from visiontrain.run.parts import Parts, checkpoint_of
from visiontrain.run.prepare import check_readable
from visiontrain.run.resuming import LAST, WEIGHTS
from visiontrain.run.saving import Checkpoints
from visiontrain.run.session import Session
from visiontrain.run.time_limit import TimeLimit
from visiontrain.run.update_log import Progress, UpdateLog
from visiontrain.run.waiting import DataWait
from visiontrain.sample import DroppedBoxes

CALIBRATION = "such windows only find the scale: they are counted as calibration_windows, and no image is at fault"
LOGGER_NAMES = ("console", "csv", "file")
"""Of every run; the trackers that the user asks for come behind them."""


class Recorder:
    """Logs windows and epochs, and writes the checkpoints: of several processes the first alone."""

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
        self.interrupt = Interrupt(self.warn, is_alone=session.group.size == 1)
        self._group = session.group
        self._clock = clock
        self.unreadable: set[str] = set()
        """Training images that could not be read so far."""
        self._session = session
        self._folder = folder
        self._loggers = loggers
        self._complaints: set[str] = set()
        self.checkpoints = Checkpoints(session, folder, clock=clock, warn=self.warn, on_saved=self._tell_saved)
        self._limit = TimeLimit(session.config.time, session.state, clock)
        self._has_run_out = False  # as all processes know it
        self._dropped = DroppedBoxes()  # since the last epoch ended
        self._sizes: list[int] = []  # images of each window since the last epoch ended
        self._num_trained_on = 0  # images of the last window
        self._epoch = session.state.epoch  # the last that was told to begin, from 1
        self._progress = Progress(self.log, clock, epochs=session.config.epochs, num_images=len(session.train))
        self._updates = UpdateLog(self.log, clock)
        self.data_wait = DataWait(
            workers=session.setup.workers,
            cores=available_cores(),
            is_cached=bool(session.config.cache),
            on_cpu=session.setup.device.type == "cpu",
        )

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
            for path in self._unreadable_of(window):
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
        self._num_trained_on = report.num_images
        self._learn(report.votes)
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
            paths = [path for batch in window for path in batch.paths]
            culprits = find_culprits(window) if report.num_images and not report.is_forward_finite else []
            images, found = (_joined(self._group.gather(mine)) for mine in (paths, culprits))
            blame = f"; by itself it is {found}" if found else ""
            self.warn(f"window {window.planned.number} was left out: {report.reason}{blame}; its images: {images}")
        self.callbacks.tell("on_window_end", WindowEnd.of(window.planned, report, state, rates))

    def votes(self) -> list[float]:
        """What this process wants all to know when a window closes: of signals, and of hours that have run out."""
        return [*self.interrupt.votes(), float(self._group.is_first and self._limit.has_run_out())]

    def _learn(self, votes: Sequence[float]) -> None:
        """Take note of the votes of all processes."""
        if votes:
            *signals, hours = votes
            self.interrupt.agree(signals)
            self._has_run_out = bool(hours)

    def _unreadable_of(self, window: LoadedWindow) -> list[str]:
        """Images that could not be read, in whichever process; from its sums all know whether there are any."""
        unreadable = [path for batch in window for path in batch.unreadable]
        if self._group.size == 1 or self._num_trained_on == window.planned.size:
            return unreadable
        return [path for paths in self._group.gather(unreadable) for path in paths]

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
        self.checkpoints.epoch(end, partial(self._values, parts))
        advice_on_data = self.data_wait.add(end.row)
        if advice_on_data:
            self.warn(advice_on_data)
        self.callbacks.tell("on_epoch_end", end)

    def is_to_end(self, state: RunState, parts: Parts) -> bool:
        """Save where that is due, and tell whether the run ends here: the user wants it to, or its hours are over."""
        has_run_out = self._limit.has_run_out() if self._group.size == 1 else self._has_run_out
        is_over = has_run_out and state.images < self._session.recipe.plan.total_images
        wants_end = self.interrupt.ending is not None or is_over
        values = partial(self._values, parts)
        if is_over and state.best_epoch == 0:  # what was trained is the best there is
            self.checkpoints.save_best(state, values)
        self.checkpoints.between_windows(state, values, is_ending=wants_end)
        if is_over:
            self.warn(self._over(state))
        return wants_end

    def _values(self, parts: Parts, state: RunState, metrics: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """What a checkpoint holds; updates that are before it are told before it."""
        self._updates.flush()
        return checkpoint_of(parts, self._session, state, metrics)

    def _tell_saved(self, path: Path, state: RunState) -> None:
        self.callbacks.tell("on_checkpoint", CheckpointSaved(path, state.epoch, state.images))

    def _over(self, state: RunState) -> str:
        """The sentence on hours that have run out."""
        hours, total = self._session.config.time, self._session.recipe.plan.total_images
        return (
            f"time = {hours:g}: the hours have run out at image {state.images} of {total}; the run is saved, and goes "
            f"on from there with resume={self._folder} and a larger time"
        )


def _joined(parts: Iterable[Iterable[str]]) -> str:
    return ", ".join(text for part in parts for text in part)


def trackers_of(config: Config) -> tuple[str, ...]:
    """The trackers that `logger` names, each once."""
    return tuple(dict.fromkeys(name.strip().lower() for name in (config.logger or "").split(",") if name.strip()))


@contextmanager
def open_recorder(session: Session, folder: Path, callbacks: Callbacks) -> Iterator[Recorder]:
    """The recorder of a run; its log files are closed however the run ends."""
    with ExitStack() as opened:
        loggers = _open_loggers(session, folder, opened) if session.group.is_first else []
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
