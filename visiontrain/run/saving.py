"""`Checkpoints`: which of a run's checkpoints are written when, and what becomes of one that cannot be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from visiontrain.engine.checkpoint import SaveError, save_checkpoint
from visiontrain.engine.fit import EpochEnd, RunState
from visiontrain.errors import CheckpointError
from visiontrain.run.resuming import LAST, PREVIOUS, WEIGHTS
from visiontrain.run.session import Session

RETRY_MINUTES = 1.0
"""After which a checkpoint that could not be written is tried again."""

Values = Callable[[RunState, Mapping[str, Any] | None], Mapping[str, Any]]
"""All that a run needs to go on from where it stands, with the metrics of its weights if they were just validated."""


class Checkpoints:
    """Writes the checkpoints of a run: of several processes the first alone, the others take it as done."""

    def __init__(
        self,
        session: Session,
        folder: Path,
        *,
        clock: Callable[[], float],
        warn: Callable[[str], None],
        on_saved: Callable[[Path, RunState], None],
    ) -> None:
        """
        Args:
            session: The run.
            folder: Of the run.
            clock: Seconds, from any time on.
            warn: Told of what could not be written.
            on_saved: Told of what was.
        """
        self._folder = folder
        self._is_writer = session.group.is_first
        self._save_period = session.config.save_period
        self._save_minutes = session.config.save_minutes
        self._clock = clock
        self._warn = warn
        self._on_saved = on_saved
        self._saved = session.state.window if session.checkpoint is not None else -1  # window of the last checkpoint
        self._next_save = clock() + 60 * self._save_minutes

    @property
    def last(self) -> Path:
        return self._folder / WEIGHTS / LAST

    @property
    def best(self) -> Path:
        return self._folder / WEIGHTS / "best.pt"

    def epoch(self, end: EpochEnd, values: Values) -> None:
        """Write those of an epoch."""
        if not self._is_writer:
            return
        kept = values(end.state, end.metrics)
        if end.is_best:
            self._save(self.best, kept, end.state)
        if self._save_period > 0 and end.state.epoch % self._save_period == 0:
            self._save(self.last.with_name(f"epoch{end.state.epoch}.pt"), kept, end.state)
        self._save_last(kept, end.state)  # last of all: a run that is killed before goes on from the one before

    def between_windows(self, state: RunState, values: Values, *, is_ending: bool) -> None:
        """Write one inside an epoch, where it is due or the run ends here."""
        is_due = is_ending or self._clock() >= self._next_save
        if self._is_writer and is_due and self._saved != state.window:
            self._save_last(values(state, None), state)

    def save_best(self, state: RunState, values: Values) -> None:
        """Write the weights of a run that ends before any were ranked."""
        if self._is_writer:
            self._save(self.best, values(state, None), state)

    def check_saved(self, state: RunState) -> None:
        """Raises CheckpointError if the run has ended and is not on disk."""
        if self._is_writer and self._saved != state.window:
            raise CheckpointError(
                f"{self.last}: the run has ended and could not be saved; make room and go on with "
                f"resume={self._folder}, from its last checkpoint"
            )

    def _save_last(self, values: Mapping[str, Any], state: RunState) -> None:
        is_saved = self._save(self.last, values, state, previous=self.last.with_name(PREVIOUS))
        self._saved = state.window if is_saved else -1
        minutes = self._save_minutes if is_saved else min(self._save_minutes, RETRY_MINUTES)
        self._next_save = self._clock() + 60 * minutes

    def _save(self, path: Path, values: Mapping[str, Any], state: RunState, *, previous: Path | None = None) -> bool:
        """Whether the checkpoint could be written; if not, it is told, and training goes on."""
        try:
            save_checkpoint(path, values, previous=previous)
        except SaveError as error:
            self._warn(f"{error}; training goes on and tries again in {RETRY_MINUTES:g} minute at the latest")
            return False
        self._on_saved(path, state)
        return True
