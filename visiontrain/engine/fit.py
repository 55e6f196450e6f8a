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
from visiontrain.engine.precision import Precision
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

    def count(self, report: WindowReport) -> None:
        """Count a window by what became of it."""
        if report.applied:
            self.updates += 1
        elif report.is_calibration:
            self.calibrations += 1
        else:
            self.skipped += 1


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
    on_window: Callable[[TimedWindow, WindowReport, RunState, Rates], None]
    on_epoch: Callable[[EpochEnd], None]
    """Logs and saves."""
    clock: Callable[[], float] = field(default=time.perf_counter)


def fit(training: Training, state: RunState) -> RunState:
    """Train from `state` to the end of the plan, or until patience runs out. Returns where the run stands then."""
    run = training
    run.network.train()
    log = _EpochLog(run.clock)
    for window in run.windows(state.window):  # one optimizer step each
        rates = run.schedule.apply(run.gradients.optimizer, window.planned)
        report = run.transaction.run(window, lambda planned, batches: _step(run, planned, batches))
        if report.applied:
            run.average.update(run.network)
        state.count(report)
        state.window, state.images = window.planned.index + 1, window.planned.stop
        log.add(report, rates, window.t_data)
        run.on_window(window, report, state, rates)
        closed = run.plan.last_epoch_closed_by(window.planned)
        if closed is not None:
            ends = list(_finish_epochs(run, state, log, closed + 1))
            for end in ends:
                run.on_epoch(end)
            log = _EpochLog(run.clock)
            if any(end.metrics is not None for end in ends) and _is_out_of_patience(run, state):
                break
    return state


def _step(run: Training, planned: Window, batches: Iterable[Batch]) -> WindowReport:
    """One window: forward and backward of every micro-batch, then one optimizer step."""
    run.gradients.open(planned.size)
    for host_batch in batches:
        if not len(host_batch):  # none of its images could be read
            continue
        batch = host_batch.to(run.device)
        with run.gradients.micro_batch(last=batch.is_last):
            with run.precision.autocast():
                outputs = run.network(batch.images)
            run.gradients.add(run.criterion(outputs, batch), num_images=len(batch))
    return run.gradients.step()


class _EpochLog:
    """Sums over an epoch's windows, kept as tensors so that nothing waits for the device."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.started = clock()
        self.t_data = 0.0
        self.rates = Rates(0.0, 0.0, 0.0)
        self._shares: dict[str, Share] = {}

    def add(self, report: WindowReport, rates: Rates, t_data: float) -> None:
        self.rates = rates
        self.t_data += t_data
        if not report.applied:
            return
        for name, share in report.shares.items():
            self._shares[name] = self._shares[name] + share if name in self._shares else share

    def seconds(self) -> float:
        return self._clock() - self.started

    def losses(self) -> dict[str, float]:
        """Σ total / Σ normalizer over the epoch: independent of `batch` and `nbs`."""
        return {name: share.mean().item() for name, share in self._shares.items()}


def _finish_epochs(run: Training, state: RunState, log: _EpochLog, last: int) -> Iterator[EpochEnd]:
    """Validate, and give the rows of the epochs up to `last` (from 1) that one window closed: they share a network."""
    t_train = log.seconds()
    epochs = range(state.epoch + 1, last + 1)
    validated = [epoch for epoch in epochs if run.validates(epoch)] if run.validate is not None else []
    metrics: Mapping[str, Any] | None = None
    val_losses: dict[str, float] = {}
    if run.validate is not None and validated:
        metrics, val_losses = run.validate(run.average.model, validated[-1])
    t_val = log.seconds() - t_train
    state.seconds += log.seconds()
    train_losses = log.losses()
    for epoch in epochs:
        state.epoch = epoch
        is_validated = epoch in validated
        row: dict[str, float | int | None] = {
            "epoch": epoch,
            "time": state.seconds,
            "updates": state.updates,
            "images": epoch * run.plan.num_images,
            **{f"train/{name}": value for name, value in train_losses.items()},
            "lr/weight": log.rates.lr,
            "lr/norm": log.rates.lr,
            "lr/bias": log.rates.bias_lr,
            "t_data": log.t_data,
            "t_step": t_train - log.t_data,
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


def _is_out_of_patience(run: Training, state: RunState) -> bool:
    return 0 < run.patience <= state.epoch - state.best_epoch
