"""Functions of the user's that a run calls at named events, each with one value that says what has happened.

What they are given is to be read, not changed. An error of theirs ends the run, and its last checkpoint stays usable.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from visiontrain.config.schema import Config
from visiontrain.engine.fit import RunState
from visiontrain.engine.schedule import Rates
from visiontrain.engine.window import WindowReport
from visiontrain.errors import ConfigError
from visiontrain.models.network import Network
from visiontrain.plan import Plan, Window

EVENTS: Mapping[str, str] = {
    "on_train_start": "TrainStart: all is read and decided, nothing trained yet; again where a run goes back",
    "on_epoch_start": "EpochStart: before the first window of an epoch; again for one that a resumed run has begun",
    "on_window_start": "WindowStart: before a window's images are trained on",
    "on_window_end": "WindowEnd: the window was applied, or left out",
    "on_val_start": "ValStart: before the validation split is scored",
    "on_val_end": "ValEnd: its metrics and losses",
    "on_epoch_end": "EpochEnd: the epoch is validated, logged and saved",
    "on_checkpoint": "CheckpointSaved: a file of weights is whole and in its place",
    "on_warning": "Warned: what the user is warned of",
    "on_train_end": "TrainResult: everything of the run is on the disk",
    "on_predict_start": "PredictStart: before the first image",
    "on_predict_end": "PredictEnd: after the last image",
}
"""By name: what a function is given, and when."""

# Names that users bring along from elsewhere.
_KNOWN_ELSEWHERE: Mapping[str, str] = {
    "on_train_epoch_start": "on_epoch_start",
    "on_train_epoch_end": "on_epoch_end",
    "on_fit_epoch_end": "on_epoch_end",
    "on_train_batch_start": "on_window_start",
    "on_train_batch_end": "on_window_end",
    "on_model_save": "on_checkpoint",
    "on_save_checkpoint": "on_checkpoint",
    "on_validation_start": "on_val_start",
    "on_validation_end": "on_val_end",
}


@dataclass(frozen=True)
class TrainStart:
    """A run is about to train."""

    config: Config
    """Asked and decided."""
    folder: Path
    network: Network
    """The one that learns."""
    plan: Plan
    epoch: int
    """The first to be trained, from 1."""


@dataclass(frozen=True)
class EpochStart:
    """An epoch begins."""

    epoch: int
    """Counted from 1."""
    epochs: int


@dataclass(frozen=True)
class WindowStart:
    """A window is about to be trained on."""

    epoch: int
    """Counted from 1."""
    number: int
    """The window's, from 1 over the whole run."""
    num_images: int
    micro_batches: tuple[int, ...]
    """Their images, as planned."""


@dataclass(frozen=True)
class WindowEnd:
    """What became of a window. Its tensors stay on the device until somebody asks for a number."""

    epoch: int
    """Counted from 1."""
    number: int
    """The window's, from 1 over the whole run."""
    updates: int
    """Applied so far."""
    lr: float
    applied: bool
    num_images: int
    """Those that were read."""
    grad_norm: Tensor
    """() float: norm of the whole gradient before clipping."""
    reason: str
    """Why it was not applied."""
    report: WindowReport
    """All that is known of it."""

    @classmethod
    def of(cls, planned: Window, report: WindowReport, state: RunState, rates: Rates) -> WindowEnd:
        """The same in the words of the engine."""
        return cls(
            epoch=planned.epoch + 1,
            number=planned.number,
            updates=state.updates,
            lr=rates.lr,
            applied=report.applied,
            num_images=report.num_images,
            grad_norm=report.grad_norm,
            reason=report.reason,
            report=report,
        )

    def losses(self) -> dict[str, float]:
        """The mean of every part of the loss over the window; waits for the device."""
        return self.report.losses()


@dataclass(frozen=True)
class ValStart:
    """A split is about to be scored."""

    epoch: int | None
    """Counted from 1; None for the best weights at the end of training, and for `Model.val`."""


@dataclass(frozen=True)
class ValEnd:
    """A split was scored."""

    epoch: int | None
    """As in `ValStart`."""
    metrics: Mapping[str, Any]
    """By their CSV names."""
    losses: Mapping[str, float]


@dataclass(frozen=True)
class CheckpointSaved:
    """A file of weights is whole and in its place."""

    path: Path
    epoch: int
    """Epochs finished."""
    images: int
    """Seen since the start of the run."""


@dataclass(frozen=True)
class Warned:
    """A warning, in the words in which the user reads it."""

    text: str


@dataclass(frozen=True)
class PredictStart:
    """Images are about to be predicted."""

    source: Any
    """As it was given."""


@dataclass(frozen=True)
class PredictEnd:
    """All images were predicted."""

    num_images: int


class Callbacks:
    """The functions by the names of their events."""

    def __init__(self) -> None:
        self._functions: dict[str, list[Callable[[Any], object]]] = {name: [] for name in EVENTS}

    def __bool__(self) -> bool:
        """Whether there are any."""
        return any(self._functions.values())

    def add(self, event: str, function: Callable[[Any], object]) -> None:
        """Have `function` called at every `event`, behind those that were added before.

        Raises:
            ConfigError: If there is no such event, or `function` cannot be called.
        """
        if event not in self._functions:
            known = _KNOWN_ELSEWHERE.get(str(event))
            nearest = [known] if known else difflib.get_close_matches(str(event), EVENTS, n=1)
            hint = f"the nearest is {nearest[0]}" if nearest else f"they are {', '.join(EVENTS)}"
            raise ConfigError(f"callback {event!r}: is not an event; {hint}")
        if not callable(function):
            raise ConfigError(
                f"callback {event!r}: a value of type {type(function).__name__} cannot be called; give a function of "
                "one argument"
            )
        self._functions[event].append(function)

    def tell(self, event: str, value: object) -> None:
        """Call the functions of an event, in the order in which they were added. Their errors are the caller's."""
        for function in self._functions[event]:
            function(value)
