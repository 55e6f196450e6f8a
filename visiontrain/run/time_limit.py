"""The hours that a run may take, counted over all its starts."""

from __future__ import annotations

import math
from collections.abc import Callable

from visiontrain.config.schema import Config
from visiontrain.engine.fit import RunState
from visiontrain.errors import ConfigError

HOUR_SECONDS = 3600


class TimeLimit:
    """Tells when a run's hours have run out.

    What earlier starts took of them is that which their checkpoint knows of: windows and validation. This start takes
    all from when the limit is made, the time for checkpoints and pictures included.
    """

    def __init__(self, hours: float | None, state: RunState, clock: Callable[[], float]) -> None:
        """
        Args:
            hours: That the run may take; None: any number.
            state: Where the run stands.
            clock: Seconds, from any time on.
        """
        self._clock = clock
        self._ends_at = math.inf if hours is None else clock() + HOUR_SECONDS * hours - seconds_taken(state)

    def has_run_out(self) -> bool:
        return self._clock() >= self._ends_at


def seconds_taken(state: RunState) -> float:
    """What a run has taken so far, the epoch that is open included."""
    return state.seconds + state.sums.seconds


def check_time_left(config: Config, state: RunState) -> None:
    """Raises ConfigError where a run that goes on has taken all its hours already."""
    if config.time is not None and seconds_taken(state) >= HOUR_SECONDS * config.time:
        raise ConfigError(
            f"time = {config.time:g}: the run has taken {_hours(state)} hours already; type a larger time= to train it "
            "further, or time=None"
        )


def why_ended(config: Config, state: RunState) -> str:
    """The sentence on a run that has ended in good order before its last epoch."""
    if config.time is None or 0 < config.patience <= state.epoch - state.best_epoch:
        why = f"{config.patience} epochs (patience) without a better one"
    else:
        why = f"its {config.time:g} hours (time) have run out in epoch {state.epoch + 1}"
    return f"stopped before epoch {config.epochs}: {why}"


def _hours(state: RunState) -> str:
    return f"{seconds_taken(state) / HOUR_SECONDS:.3g}"
