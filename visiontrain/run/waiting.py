"""Whether a run waits for its data, and what to turn then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from visiontrain.engine.fit import TimedWindow

WORTH_SAYING = 0.25
"""Part of the training time that data take, from which it is said."""
LEAST_SECONDS = 10.0
"""That were waited: nobody minds less."""


class DataWait:
    """Sums up how long batches were waited for, validation apart.

    The first window is left out, as workers start and disks are cold in it.
    """

    def __init__(self, *, workers: int, cores: int, is_cached: bool, on_cpu: bool) -> None:
        """
        Args:
            workers: Processes that load.
            cores: That the run may use.
            is_cached: Whether images are kept decoded.
            on_cpu: Whether the processor trains, so that workers take its cores away.
        """
        self._workers = workers
        self._can_add_workers = not on_cpu and workers < cores - 1
        self._is_cached = is_cached
        self._on_cpu = on_cpu
        self._first: float | None = None
        self._waited = self._total = 0.0
        self._is_said = False

    def note_first(self, window: TimedWindow) -> None:
        """Take the start out of the account; windows after the first change nothing."""
        if self._first is None:
            self._first = window.t_data
            self._waited -= window.t_data
            self._total -= window.t_data

    def add(self, row: Mapping[str, Any]) -> str | None:
        """Count an epoch by its row of `results.csv`; returns the sentence, the first time that it is true."""
        self._waited += row["t_data"]
        self._total += row["t_data"] + row["t_step"]
        if self._is_said or self.sentence() is None:
            return None
        self._is_said = True
        return self.sentence()

    def sentence(self) -> str | None:
        """What to turn; None where the data keep up."""
        if self._waited < max(LEAST_SECONDS, WORTH_SAYING * self._total):
            return None
        return f"data took {self._waited / self._total:.0%} of the time: {self._remedy()}".replace("%", " %")

    def _remedy(self) -> str:
        remedies = []
        if self._can_add_workers:
            remedies.append(f"raise workers (now {self._workers})")
        if not self._is_cached:
            remedies.append("type cache=ram")
        if remedies:
            return ", or ".join(remedies)
        cores = "the processor that trains also makes the samples" if self._on_cpu else "all cores are at work"
        return f"{cores}, and images are cached already; use less augmentation, or a smaller imgsz"
