"""What updates did, told to the loggers no oftener than it is looked at: each time somebody waits for the device."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from visiontrain.engine.fit import RunState
from visiontrain.engine.schedule import Rates
from visiontrain.engine.window import WindowReport
from visiontrain.plan import Window

Log = Callable[[str, Mapping[str, Any]], None]

SECONDS_BETWEEN_VIEWS = 0.1
SECONDS_BETWEEN_LOGS = 10.0


class Progress:
    """Shows where the run stands, at most ten times a second, as the event `window`."""

    def __init__(self, log: Log, clock: Callable[[], float], *, epochs: int, num_images: int) -> None:
        """
        Args:
            log: Tells all loggers.
            clock: Seconds from any moment on.
            epochs: Of the run.
            num_images: Of an epoch.
        """
        self._log = log
        self._clock = clock
        self._epochs = epochs
        self._num_images = num_images
        self._last = -math.inf

    def show(self, planned: Window, report: WindowReport, state: RunState, rates: Rates) -> None:
        """Show an applied window, unless another one was shown just now."""
        now = self._clock()
        if now - self._last < SECONDS_BETWEEN_VIEWS:
            return
        self._last = now
        self._log(
            "window",
            {
                "epoch": planned.epoch + 1,
                "epochs": self._epochs,
                "images_done": planned.stop - planned.epoch * self._num_images,
                "num_images": self._num_images,
                "update": state.updates,
                "losses": report.losses(),
                "lr": rates.lr,
            },
        )


class UpdateLog:
    """Keeps the updates of some seconds, and tells them as one event: `updates`, with a row for each."""

    def __init__(self, log: Log, clock: Callable[[], float]) -> None:
        self._log = log
        self._clock = clock
        self._next = clock() + SECONDS_BETWEEN_LOGS
        self._kept: list[tuple[int, WindowReport, Rates]] = []

    def add(self, report: WindowReport, state: RunState, rates: Rates) -> None:
        """Keep an applied window, behind which the run stands at `state`."""
        self._kept.append((state.updates, report, rates))
        if self._clock() >= self._next:
            self.flush()

    def flush(self) -> None:
        """Tell what is kept: before a checkpoint, as nothing of it comes again in a run that goes on from there."""
        self._next = self._clock() + SECONDS_BETWEEN_LOGS
        rows = [{"update": update, **report.losses(), "lr": rates.lr} for update, report, rates in self._kept]
        self._kept.clear()
        if rows:
            self._log("updates", {"rows": rows})
