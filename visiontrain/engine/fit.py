"""The training loop, all of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import nn

from visiontrain.engine.branches import Share
from visiontrain.engine.distributed import Group, alone
from visiontrain.engine.evaluate import unmoved
from visiontrain.engine.precision import Precision
from visiontrain.engine.prefetch import on_device
from visiontrain.engine.schedule import Rates, Schedule
from visiontrain.engine.transaction import ReplayableWindow, Transaction
from visiontrain.engine.window import GradientWindow, WindowReport
from visiontrain.plan import Plan, Window
from visiontrain.protocols import Criterion
from visiontrain.sample import Batch


class TimedWindow(ReplayableWindow, Protocol):
    """A loaded window that says how long its batches were waited for."""

    @property
    def t_data(self) -> float: ...


class AverageModel(Protocol):
    """What is validated and kept: the average of the weights, or the live weights themselves."""

    model: nn.Module
    updates: int

    def update(self, network: nn.Module) -> None: ...


@dataclass
class EpochSums:
    """What an epoch's windows add up to so far, kept as tensors so that nothing waits for the device."""

    shares: dict[str, Share] = field(default_factory=dict)
    """Of the loss, by the names of its parts."""
    rates: Rates = field(default_factory=lambda: Rates(0.0, 0.0, 0.0))
    """Of the last window."""
    t_data: float = 0.0
    """Seconds that batches were waited for."""
    seconds: float = 0.0

    def add(self, report: WindowReport, rates: Rates, t_data: float, seconds: float) -> None:
        """Count one window, which took `seconds`."""
        self.rates = rates
        self.t_data += t_data
        self.seconds += seconds
        if not report.applied:
            return
        for name, share in report.shares.items():
            self.shares[name] = self.shares[name] + share if name in self.shares else share

    def to_plain(self) -> dict[str, Any]:
        """As tensors on the CPU and plain values, from which `from_plain` makes the same."""
        shares = {name: [one.total.cpu(), one.normalizer.cpu(), one.floor] for name, one in self.shares.items()}
        return {
            "shares": shares,
            "rates": [self.rates.lr, self.rates.bias_lr, self.rates.momentum],
            "t_data": self.t_data,
            "seconds": self.seconds,
        }

    @classmethod
    def from_plain(cls, values: Mapping[str, Any], device: torch.device) -> EpochSums:
        """What `to_plain` gave, on `device`."""
        shares = {
            name: Share(total.to(device), normalizer.to(device), floor)
            for name, (total, normalizer, floor) in values["shares"].items()
        }
        return cls(shares, Rates(*values["rates"]), values["t_data"], values["seconds"])

    def losses(self) -> dict[str, float]:
        """Σ total / Σ normalizer over the epoch: independent of `batch` and `nbs`."""
        return {name: share.mean().item() for name, share in self.shares.items()}


@dataclass
class RunState:
    """Where a run stands. The one value of the engine that changes, and it goes into every checkpoint."""

    window: int = 0
    """Index of the next window."""
    epoch: int = 0
    """Epochs finished."""
    updates: int = 0
    images: int = 0
    skipped: int = 0
    """Windows that were left out, because of a loss or gradient that is not finite or of images that cannot be read."""
    calibrations: int = 0
    """Windows that were left out while the loss scale of half precision was too high; not among the skipped."""
    seconds: float = 0.0
    best: float | None = None
    best_epoch: int = 0
    """Counted from 1; 0 where nothing was ranked yet."""
    skipped_in_a_row: int = 0
    """Windows left out since one was applied."""
    halvings: int = 0
    """How often the learning rate was halved, because too many windows in a row were left out."""
    sums: EpochSums = field(default_factory=EpochSums)
    """Of the epoch under way."""

    def count(self, report: WindowReport) -> None:
        """Count a window by what became of it."""
        if report.applied:
            self.updates += 1
            self.skipped_in_a_row = 0
        elif report.is_calibration:
            self.calibrations += 1
        else:
            self.skipped += 1
            self.skipped_in_a_row += 1


@dataclass(frozen=True)
class EpochEnd:
    """What is known when an epoch's last image was trained on."""

    state: RunState
    row: Mapping[str, float | int | None]
    """One line of results.csv; None where nothing was validated."""
    metrics: Mapping[str, Any] | None
    is_best: bool


@dataclass(frozen=True)
class Training:
    """The parts of a run, made by the composition root."""

    network: nn.Module
    average: AverageModel
    gradients: GradientWindow
    transaction: Transaction
    schedule: Schedule
    criterion: Criterion
    precision: Precision
    device: torch.device
    plan: Plan
    windows: Callable[[int], Iterable[TimedWindow]]
    """All windows of the run from the one with the given index on."""
    validate: Callable[[nn.Module, int], tuple[Mapping[str, Any], dict[str, float]]] | None
    """Metrics and losses of a network after an epoch (from 1); None trains without validation."""
    validates: Callable[[int], bool]
    """Whether the epoch (from 1) is one to validate."""
    ranking: str
    patience: int
    """Epochs since the best one after which the run ends, once the next is validated; 0 never ends it early."""
    max_skips: int
    """Windows that may be left out one after the other before the run breaks off; 0: any number."""
    on_window: Callable[[TimedWindow, WindowReport, RunState, Rates], None]
    on_epoch: Callable[[EpochEnd], None]
    """Logs and saves."""
    is_to_end: Callable[[RunState], bool]
    """Asked behind every window, when nothing is open: saves where that is due, and tells whether the run ends here."""
    group: Group = field(default_factory=alone)
    clock: Callable[[], float] = field(default=time.perf_counter)


class TooManySkips(Exception):
    """So many windows in a row were left out that the run does not train any more."""

    def __init__(self, state: RunState, report: WindowReport) -> None:
        self.state = state
        self.reason = report.reason
        super().__init__(f"{state.skipped_in_a_row} windows in a row were left out, the last because {report.reason}")


class Interrupted(Exception):
    """Validation was broken off: the run is to end, and its epoch stays open."""


def fit(training: Training, state: RunState) -> RunState:
    """Train from `state` to the end of the plan, or until patience runs out or the user wants it to end.

    Returns:
        Where the run stands then.

    Raises:
        TooManySkips: If too many windows in a row are left out.
    """
    run = training
    run.network.train()
    goes_on = _close_epochs(run, state)  # one may have been left open by a run that ended while it validated
    started = run.clock()
    for window in run.windows(state.window) if goes_on else ():  # one optimizer step each
        rates = run.schedule.apply(run.gradients.optimizer, window.planned)
        report = run.transaction.run(window, lambda planned, batches: _step(run, planned, batches))
        if report.applied:
            run.average.update(run.network)
        state.count(report)
        state.window, state.images = window.planned.index + 1, window.planned.stop
        state.sums.add(report, rates, window.t_data, run.clock() - started)
        run.on_window(window, report, state, rates)
        if 0 < run.max_skips <= state.skipped_in_a_row:
            raise TooManySkips(state, report)
        if not _close_epochs(run, state) or run.is_to_end(state):
            break
        started = run.clock()
    return state


def _step(run: Training, planned: Window, batches: Iterable[Batch]) -> WindowReport:
    """One window: forward and backward of every micro-batch, then one optimizer step."""
    run.gradients.open(planned.size)
    for batch in on_device(batches, run.device, keeps_empty=run.group.size > 1):
        with run.gradients.micro_batch(last=batch.is_last), unmoved(run.network, by=batch):
            with run.precision.autocast():
                outputs = run.gradients.model(batch.images)
            run.gradients.add(run.criterion(outputs, batch), num_images=len(batch))
            del outputs  # else they are held during the next forward pass
    return run.gradients.step()


def _close_epochs(run: Training, state: RunState) -> bool:
    """Validate and report the epochs whose last image was trained on. Returns whether the run goes on."""
    last = run.plan.epochs_within(state.images)
    if last == state.epoch:
        return True
    try:
        ends = list(_finish_epochs(run, state, last))
    except Interrupted:
        run.is_to_end(state)
        return False
    for end in ends:
        run.on_epoch(end)
    is_validated = any(end.metrics is not None for end in ends)
    return not (is_validated and 0 < run.patience <= state.epoch - state.best_epoch)


def _finish_epochs(run: Training, state: RunState, last: int) -> Iterator[EpochEnd]:
    """Validate, and give the rows of the epochs up to `last` (from 1) that one window closed: they share a network."""
    started, sums = run.clock(), state.sums
    epochs = range(state.epoch + 1, last + 1)
    validated = [epoch for epoch in epochs if run.validates(epoch)] if run.validate is not None else []
    metrics: Mapping[str, Any] | None = None
    val_losses: dict[str, float] = {}
    run.group.share_buffers_(run.network, run.average.model)
    if run.validate is not None and validated:
        metrics, val_losses = run.validate(run.average.model, validated[-1])
    t_val = run.clock() - started
    state.seconds += sums.seconds + t_val
    state.sums = EpochSums()
    train_losses = sums.losses()
    for epoch in epochs:
        state.epoch = epoch
        is_validated = epoch in validated
        row: dict[str, float | int | None] = {
            "epoch": epoch,
            "time": state.seconds,
            "updates": state.updates,
            "images": epoch * run.plan.num_images,
            **{f"train/{name}": value for name, value in train_losses.items()},
            "lr/weight": sums.rates.lr,
            "lr/norm": sums.rates.lr,
            "lr/bias": sums.rates.bias_lr,
            "t_data": sums.t_data,
            "t_step": sums.seconds - sums.t_data,
            "t_val": t_val,
        }
        if metrics is not None and is_validated:
            row |= {f"val/{name}": value for name, value in val_losses.items()}
            row |= {name: float(value) for name, value in metrics.items() if name.startswith("metrics/")}
        is_best = _rank(run, state, metrics if is_validated else None, epoch)
        yield EpochEnd(replace(state), row, metrics if is_validated else None, is_best)


def _rank(run: Training, state: RunState, metrics: Mapping[str, Any] | None, epoch: int) -> bool:
    """Whether this epoch is the best so far. Without validation the last one always is."""
    if run.validate is None:
        state.best_epoch = epoch
        return True
    if metrics is None:
        return False
    score = float(metrics[run.ranking])
    if math.isnan(score):  # no ground truth to score on: the last is as good as any
        is_best = state.best is None
    else:
        is_best = state.best is None or score > state.best
        state.best = score if is_best else state.best
    if is_best:
        state.best_epoch = epoch
    return is_best
