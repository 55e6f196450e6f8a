"""`visiontrain train`: builds the parts of a run, calls `fit`, and keeps what it yields."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils import deterministic

from visiontrain.config.schema import Config
from visiontrain.data.dataset import EvalDataset, TrainDataset
from visiontrain.data.loader import EvalLoader, LoadedWindow, TrainLoader
from visiontrain.engine.checkpoint import (
    load_checkpoint,
    optimizer_state,
    restore_optimizer,
    save_checkpoint,
    weights_of,
)
from visiontrain.engine.ema import Ema, LiveWeights
from visiontrain.engine.evaluate import evaluate
from visiontrain.engine.fit import EpochEnd, RunState, Training, fit
from visiontrain.engine.optimizer import build_optimizer
from visiontrain.engine.schedule import Rates
from visiontrain.engine.transaction import Transaction
from visiontrain.engine.window import GradientWindow, WindowReport
from visiontrain.errors import DataError
from visiontrain.folders import make_run_folder
from visiontrain.loggers import LOGGERS, LogTarget
from visiontrain.loggers.csv import CsvLogger
from visiontrain.plan import Window
from visiontrain.protocols import Logger
from visiontrain.report.curves import plot_results
from visiontrain.run.banner import banner_lines
from visiontrain.run.files import write_args, write_json
from visiontrain.run.pictures import draw_predictions, draw_train_batches
from visiontrain.run.planning import plan_document
from visiontrain.run.prepare import place
from visiontrain.run.session import Session, open_session, state_values, stored_args, versions

LOGGER_NAMES = ("console", "csv", "file")
SECONDS_BETWEEN_WINDOW_LOGS = 0.1
REPRODUCED = 1e-6
"""How far the final score of best.pt may be from the one that made it the best."""
MOST_UNREADABLE = 0.01
"""Share of the training images that may turn out unreadable before training stops."""


@dataclass(frozen=True)
class TrainResult:
    """What a training run left behind."""

    metrics: Mapping[str, float]
    """Of the best weights, by their CSV names; empty where nothing was validated."""
    save_dir: Path
    best: Path
    last: Path
    best_epoch: int
    """Counted from 1."""
    updates: int


def train(config: Config) -> None:
    """The command."""
    train_run(config)


def train_run(config: Config) -> TrainResult:
    """Train as `config` asks.

    Raises:
        UserError: If the input is wrong; no folder was made then.
    """
    session = open_session(config)
    folder = _folder_of(session)
    with _global_settings(session), _loggers(session, folder) as loggers:
        return _Run(session, folder, loggers).train()


def _folder_of(session: Session) -> Path:
    config = session.config
    if session.folder is not None:
        return session.folder
    name = config.name or config.mode
    return make_run_folder(
        task=session.task.name, name=name, project=config.project, save_dir=config.save_dir, exist_ok=config.exist_ok
    ).resolve()


def _columns(session: Session) -> tuple[str, ...]:
    losses, metrics = session.task.loss_columns, session.task.metric_columns
    return (
        *("epoch", "time", "updates", "images"),
        *(f"train/{name}" for name in losses),
        *metrics,
        *(f"val/{name}" for name in losses),
        *("lr/weight", "lr/norm", "lr/bias", "t_data", "t_step", "t_val"),
    )


@contextmanager
def _global_settings(session: Session) -> Iterator[None]:
    """What torch keeps for the whole process, set for the run and put back after it."""
    threads, was_deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    fills = deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    config = session.config
    if config.deterministic:
        torch.use_deterministic_algorithms(True, warn_only=not config.is_typed("deterministic"))
        # Filling fresh memory costs a quarter of the time, and matters only to code that reads what it never wrote.
        deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(was_deterministic)
        deterministic.fill_uninitialized_memory = fills  # type: ignore[attr-defined]


@contextmanager
def _loggers(session: Session, folder: Path) -> Iterator[list[Logger]]:
    (folder / "weights").mkdir(parents=True, exist_ok=True)
    target = LogTarget(folder, _columns(session), quiet=session.config.quiet)
    results = folder / "results.csv"
    if session.checkpoint is None:
        results.unlink(missing_ok=True)  # only with exist_ok: this is a new run
    else:
        CsvLogger(results, target.columns).truncate_after(session.state.epoch)
    loggers = [LOGGERS[name](target) for name in LOGGER_NAMES]
    try:
        yield loggers
    finally:
        for logger in loggers:
            logger.close()


class _Run:
    """The parts of one run, wired."""

    def __init__(self, session: Session, folder: Path, loggers: list[Logger]) -> None:
        self.session = session
        self.folder = folder
        self.loggers = loggers
        self.network = place(session.network, session.setup)
        self.average = Ema(self.network) if session.config.ema else LiveWeights(self.network)
        self.optimizer = build_optimizer(
            self.network, session.recipe.optimizer, weight_decay=session.recipe.weight_decay
        )
        self.dataset = self._train_dataset()
        self.loader = self._train_loader()
        self.val_loader = self._val_loader()
        gradients = GradientWindow(
            self.optimizer,
            model=self.network,
            scaler=session.precision.scaler,
            clip=session.config.clip or None,
            gain=session.task.gain(session.recipe.plan),
        )
        self.transaction = Transaction(gradients, batch=session.config.batch, warn=self._warn)
        self._unreadable: set[str] = set()
        self._last_window_log = -math.inf
        if session.checkpoint is not None:
            self._restore(session.checkpoint)

    @property
    def last(self) -> Path:
        return self.folder / "weights" / "last.pt"

    @property
    def best(self) -> Path:
        return self.folder / "weights" / "best.pt"

    def train(self) -> TrainResult:
        session = self.session
        write_args(self.folder / "args.yaml", session.config)
        write_json(self.folder / "plan.json", plan_document(session.config, session.recipe))
        self._log(
            "start",
            {
                "lines": banner_lines(session, self.folder),
                "epochs": session.config.epochs,
                "images_per_epoch": len(session.train),
                "loss_columns": session.task.loss_columns,
                "metric_columns": session.task.metric_columns,
            },
        )
        if session.config.plots and session.checkpoint is None:
            draw_train_batches(session, self.dataset, self.folder)
        try:
            state = fit(self._training(), session.state)
            return self._finish(state)
        finally:
            self.loader.close()
            if self.val_loader is not None:
                self.val_loader.close()

    def _train_dataset(self) -> TrainDataset:
        session, config = self.session, self.session.config
        assert config.imgsz is not None
        transform = session.task.train_transform(config)
        return TrainDataset(session.train, transform, seed=config.seed, imgsz=config.imgsz)

    def _train_loader(self) -> TrainLoader:
        session, config = self.session, self.session.config
        return TrainLoader(
            self.dataset,
            session.recipe.plan,
            session.task.collate,
            seed=config.seed,
            workers=session.setup.workers,
            pin_memory=session.setup.device.type == "cuda",
        )

    def _val_loader(self) -> EvalLoader | None:
        session, config = self.session, self.session.config
        if session.val is None:
            return None
        dataset = EvalDataset(session.val, session.task.val_transform(config, self.network))
        return EvalLoader(dataset, session.task.collate, batch=config.batch, workers=session.setup.workers)

    def _training(self) -> Training:
        session, config = self.session, self.session.config
        return Training(
            network=self.network,
            average=self.average,
            gradients=self.transaction.gradients,
            transaction=self.transaction,
            schedule=session.recipe.schedule,
            criterion=session.task.criterion(self.network, config),
            precision=session.precision,
            device=session.setup.device,
            plan=session.recipe.plan,
            windows=self._windows,
            validate=None if self.val_loader is None else lambda network, epoch: self._validate(network),
            validates=lambda epoch: epoch % config.val_interval == 0 or epoch == config.epochs,
            ranking=session.task.ranking,
            patience=config.patience,
            on_window=self._on_window,
            on_epoch=self._on_epoch,
        )

    def _validate(self, network: nn.Module) -> tuple[Mapping[str, Any], dict[str, float]]:
        session, config = self.session, self.session.config
        assert session.val is not None
        assert self.val_loader is not None
        return evaluate(
            network,
            self.val_loader,
            criterion=session.task.criterion(self.network, config),
            decoder=session.task.scoring_decoder(self.network, config),
            evaluator=session.task.evaluator(session.val, session.data.names, config),
            precision=session.precision,
            device=session.setup.device,
        )

    def _windows(self, first_window: int) -> Iterator[LoadedWindow]:
        """The loader's windows, each looked through for unreadable images when it has been trained on."""
        for window in self.loader.windows(first_window):
            yield window
            for path in (path for batch in window for path in batch.unreadable):
                if path not in self._unreadable:
                    self._unreadable.add(path)
                    self._warn(f"{path}: cannot be read; it is left out of its window")
            if len(self._unreadable) > MOST_UNREADABLE * len(self.session.train):
                raise DataError(
                    f"{self.session.config.data}: {len(self._unreadable)} of {len(self.session.train)} training images "
                    f"cannot be read, more than {MOST_UNREADABLE:.0%}; mend them (train.log names them) and resume"
                )

    def _on_window(self, planned: Window, report: WindowReport, state: RunState, rates: Rates) -> None:
        if not report.applied:
            self._warn(f"window {planned.index} was left out: {report.reason}")
            return
        now = time.monotonic()
        if now - self._last_window_log < SECONDS_BETWEEN_WINDOW_LOGS:
            return
        self._last_window_log = now
        num_images = len(self.session.train)
        self._log(
            "window",
            {
                "epoch": planned.epoch + 1,
                "epochs": self.session.config.epochs,
                "images_done": planned.stop - planned.epoch * num_images,
                "num_images": num_images,
                "update": state.updates,
                "losses": report.losses(),
                "lr": rates.lr,
            },
        )

    def _on_epoch(self, end: EpochEnd) -> None:
        self._log("epoch", end.row)
        values = self._checkpoint(end)
        save_checkpoint(self.last, values)
        if end.is_best:
            save_checkpoint(self.best, values)
        period = self.session.config.save_period
        if period > 0 and end.state.epoch % period == 0:
            save_checkpoint(self.folder / "weights" / f"epoch{end.state.epoch}.pt", values)

    def _checkpoint(self, end: EpochEnd) -> dict[str, Any]:
        session = self.session
        scaler = session.precision.scaler
        is_averaged = isinstance(self.average, Ema)
        return {
            "task": session.task.name,
            "model": weights_of(self.network),
            "ema": weights_of(self.average.model) if is_averaged else None,
            "ema_updates": self.average.updates,
            "optimizer": optimizer_state(self.optimizer, self.network),
            "scaler": None if scaler is None else scaler.state_dict(),
            "plan": state_values(end.state),
            "micro_batch": self.transaction.batch,
            "metrics": {name: float(value) for name, value in (end.metrics or {}).items()},
            "args": stored_args(session.config),
            "names": list(session.data.names),
            "network": self.network.description,
            "versions": versions(),
            "threads": session.setup.threads,
            "random": torch.get_rng_state(),
        }

    def _restore(self, checkpoint: Mapping[str, Any]) -> None:
        restore_optimizer(self.optimizer, self.network, checkpoint["optimizer"])
        if checkpoint["ema"] is not None:
            self.average.model.load_state_dict(checkpoint["ema"])
        self.average.updates = checkpoint["ema_updates"]
        if checkpoint["args"]["values"]["batch"] == self.session.config.batch:  # else another one was typed just now
            self.transaction.batch = checkpoint["micro_batch"]
        if self.session.precision.scaler is not None and checkpoint["scaler"] is not None:
            self.session.precision.scaler.load_state_dict(checkpoint["scaler"])
        torch.set_rng_state(checkpoint["random"])

    def _finish(self, state: RunState) -> TrainResult:
        """Score best.pt as it lies on the disk, draw, and write the results."""
        session = self.session
        metrics: Mapping[str, Any] = {}
        if self.val_loader is not None:
            best = load_checkpoint(self.best)
            self.network.load_state_dict(best["ema"] or best["model"])
            metrics, _ = self._validate(self.network)
            self._compare(best["metrics"], metrics)
            if session.config.plots:
                draw_predictions(
                    self.network,
                    self.val_loader,
                    self.folder,
                    decoder=session.task.decoder(self.network, session.config),
                    names=session.data.names,
                    precision=session.precision,
                    device=session.setup.device,
                )
        if session.config.plots:
            plot_results(self.folder / "results.csv", self.folder / "results.png")
        numbers = {name: float(value) for name, value in metrics.items()}
        result = TrainResult(metrics, self.folder, self.best, self.last, state.best_epoch, state.updates)
        write_json(
            self.folder / "results.json",
            {
                "metrics": numbers,
                "best_epoch": state.best_epoch,
                "epochs": state.epoch,
                "updates": state.updates,
                "skipped_windows": state.skipped,
                "unreadable_images": sorted(self._unreadable),
                "images": state.images,
                "seconds": state.seconds,
                "best": "weights/best.pt",
                "last": "weights/last.pt",
            },
        )
        self._log(
            "end", {"lines": self._closing_lines(state), "table": session.task.table(metrics) if metrics else None}
        )
        return result

    def _closing_lines(self, state: RunState) -> list[str]:
        config = self.session.config
        lines = [f"best epoch {state.best_epoch} of {state.epoch}, {state.updates} updates in {state.seconds:.0f} s"]
        if state.epoch < config.epochs:
            lines.append(
                f"stopped before epoch {config.epochs}: {config.patience} epochs (patience) without a better one"
            )
        lines.append(f"results in {self.folder}")
        if config.plots:
            lines.append(f"pictures there: {', '.join(sorted(path.name for path in self.folder.glob('*.[jp][pn]g')))}")
        return lines

    def _compare(self, stored: Mapping[str, float], measured: Mapping[str, Any]) -> None:
        ranking = self.session.task.ranking
        before, now = stored.get(ranking, math.nan), float(measured[ranking])
        if abs(before - now) > REPRODUCED:
            self._warn(f"best.pt scores {now:.6f} now, and scored {before:.6f} when it was saved ({ranking})")

    def _warn(self, text: str) -> None:
        self._log("warning", {"text": text})

    def _log(self, event: str, values: Mapping[str, Any]) -> None:
        for logger in self.loggers:
            logger.log(event, values)
