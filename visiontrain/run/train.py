"""`visiontrain train`: opens a session, wires its parts, calls `fit`, and closes with the best weights' score."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from visiontrain.config.schema import Config
from visiontrain.data.cache import ImageCache
from visiontrain.engine.checkpoint import load_checkpoint
from visiontrain.engine.culprit import find_culprits
from visiontrain.engine.fit import RunState, TooManySkips, Training, fit
from visiontrain.engine.noise import advice
from visiontrain.errors import ConfigError, Stopped
from visiontrain.loggers.packages import require_packages
from visiontrain.report.curves import plot_results
from visiontrain.report.label_plot import plot_labels
from visiontrain.run.banner import banner_lines
from visiontrain.run.caching import open_cache
from visiontrain.run.callbacks import Callbacks, TrainStart, ValEnd, ValStart
from visiontrain.run.files import write_args, write_json
from visiontrain.run.interval_lines import interval_lines
from visiontrain.run.parts import Parts, build_parts
from visiontrain.run.pictures import draw_train_batches
from visiontrain.run.planning import plan_document
from visiontrain.run.precise_bn import rewrite_statistics
from visiontrain.run.prepare import make_folder
from visiontrain.run.process import own_random_state, process_settings
from visiontrain.run.record import Recorder, open_recorder, trackers_of
from visiontrain.run.report import PAGE, write_report
from visiontrain.run.resuming import LAST, PREVIOUS, WEIGHTS
from visiontrain.run.review import review_of, write_review
from visiontrain.run.score import Scorer
from visiontrain.run.session import Session, open_session

MOST_HALVINGS = 2
"""Of the learning rate, for windows that are left out one after the other."""
REPRODUCED = 1e-6
"""How far the final score of best.pt may be from the one that made it the best."""


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


def train_run(config: Config, *, callbacks: Callbacks | None = None) -> TrainResult:
    """Train as `config` asks.

    Args:
        config: What was asked.
        callbacks: The user's own functions.

    Raises:
        UserError: If the input is wrong; no folder was made then.
    """
    callbacks = callbacks or Callbacks()
    require_packages(trackers_of(config))
    session = open_session(config)
    require_packages(trackers_of(session.config))  # of the run that goes on
    with open_cache(session) as cache:
        folder = session.folder or make_folder(session.config)
        while True:
            try:
                return _run(session, folder, cache, callbacks)
            except TooManySkips as error:
                session = _gone_back(session, folder, error)


def _gone_back(session: Session, folder: Path, error: TooManySkips) -> Session:
    """The run at its last checkpoint, or at its start where it has none, with half the learning rate.

    Raises:
        ConfigError: If that was done often enough.
    """
    halvings = error.state.halvings + 1
    if halvings > MOST_HALVINGS:
        raise ConfigError(
            f"{error}; going back to the last checkpoint with half the learning rate has not helped "
            f"{MOST_HALVINGS} times. Look at the images that {folder / 'train.log'} names; lower lr0 (now "
            f"{session.config.lr0:g}) or clip, or type amp=False"
        )
    is_saved = any((folder / WEIGHTS / name).is_file() for name in (LAST, PREVIOUS))
    again = open_session(replace(session.config, resume=str(folder)) if is_saved else session.config)
    note = f"{error}: going back to image {again.state.images} with 1/{2**halvings} of the learning rate"
    state = replace(again.state, halvings=halvings, skipped_in_a_row=0)
    return replace(again, resumed=again.resumed._replace(folder=folder), state=state, changes=(*again.changes, note))


def _run(session: Session, folder: Path, cache: ImageCache | None, callbacks: Callbacks) -> TrainResult:
    settings = process_settings(session.setup, is_deterministic=session.config.deterministic)
    random_state = own_random_state(session.setup, session.config.seed)
    with settings, random_state, open_recorder(session, folder, callbacks) as recorder:
        parts = build_parts(session, cache=cache, warn=recorder.warn)
        try:
            _begin(session, folder, parts, recorder)
            state = fit(_training(session, parts, recorder), session.state)
            _check_whole(session, folder, recorder, state)
            return _finish(session, folder, parts, recorder, state)
        finally:
            parts.close()


def _check_whole(session: Session, folder: Path, recorder: Recorder, state: RunState) -> None:
    """Raises CheckpointError if the run is not on disk, Stopped if a signal has ended it, if only in validation."""
    recorder.check_saved(state)
    signum = recorder.interrupt.signum
    if signum is not None and state.epoch < session.recipe.plan.epochs:
        recorder.warn(f"stopped and saved at image {state.images}; go on with resume={folder}")
        raise Stopped(signum)


def _begin(session: Session, folder: Path, parts: Parts, recorder: Recorder) -> None:
    """Write and say what is about to be done."""
    write_args(folder / "args.yaml", session.config)
    write_json(folder / "plan.json", plan_document(session))
    if session.transfer is not None:
        write_json(folder / "transfer.json", session.transfer.document())
    recorder.log(
        "start",
        {
            "lines": banner_lines(session, folder, cache=parts.dataset.cache),
            "epochs": session.config.epochs,
            "images_per_epoch": len(session.train),
            "loss_columns": session.task.loss_columns,
            "metric_columns": session.task.metric_columns,
        },
    )
    if session.config.plots and session.checkpoint is None:
        with recorder.drawing():
            draw_train_batches(session, parts.dataset, folder)
            plot_labels(session.train, session.data.names, folder / "labels.png")
    start = TrainStart(session.config, folder, parts.network, session.recipe.plan, session.state.epoch + 1)
    recorder.callbacks.tell("on_train_start", start)


def _score(
    scorer: Scorer, network: nn.Module, recorder: Recorder, epoch: int | None
) -> tuple[Mapping[str, Any], dict[str, float]]:
    """Score and tell; while the run still trains, a signal breaks it off."""
    recorder.callbacks.tell("on_val_start", ValStart(epoch))
    metrics, losses = scorer.score(network, None if epoch is None else recorder.interrupt)
    recorder.callbacks.tell("on_val_end", ValEnd(epoch, metrics, losses))
    return metrics, losses


def _training(session: Session, parts: Parts, recorder: Recorder) -> Training:
    config, scorer, device = session.config, parts.scorer, session.setup.device
    criterion, schedule = session.task.criterion(parts.network, config), session.recipe.schedule
    return Training(
        network=parts.network,
        average=parts.average,
        gradients=parts.transaction.gradients,
        transaction=parts.transaction,
        schedule=replace(schedule, lr0=schedule.lr0 * 0.5**session.state.halvings),
        criterion=criterion,
        precision=session.precision,
        device=device,
        plan=session.recipe.plan,
        windows=lambda first_window: recorder.watch(parts.windows(first_window)),
        validate=None if scorer is None else lambda network, epoch: _score(scorer, network, recorder, epoch),
        validates=lambda epoch: epoch % config.val_interval == 0 or epoch == config.epochs,
        ranking=session.task.ranking,
        patience=config.patience,
        max_skips=config.max_skips,
        on_window=lambda window, report, state, rates: recorder.window(
            window,
            report,
            state,
            rates,
            lambda window: find_culprits(parts.network, criterion, window, session.precision, device),
        ),
        on_epoch=lambda end: recorder.epoch(end, parts),
        is_to_end=lambda state: recorder.is_to_end(state, parts),
    )


def _finish(session: Session, folder: Path, parts: Parts, recorder: Recorder, state: RunState) -> TrainResult:
    """Score best.pt as it lies on the disk, draw, and write the results."""
    metrics: Mapping[str, Any] = {}
    noise_scale = None if parts.noise is None else parts.noise.estimate()
    lines = [] if parts.noise is None else [advice(noise_scale, session.config.nbs)]
    if session.config.precise_bn:
        lines.append(rewrite_statistics(session, parts, recorder.best, epochs=state.epoch))
    if parts.scorer is not None:
        kept = recorder.best
        if not kept.is_file():
            kept = recorder.last
            recorder.warn(f"{recorder.best}: is gone or could not be written; the last weights are scored in its place")
        best = load_checkpoint(kept)
        parts.network.load_state_dict(best["ema"] or best["model"])
        metrics, _ = _score(parts.scorer, parts.network, recorder, None)
        _warn_unless_reproduced(session.task.ranking, best["metrics"], metrics, recorder)
    if session.config.plots:
        with recorder.drawing():
            if parts.scorer is not None:
                parts.scorer.draw(parts.network, folder)
            plot_results(folder / "results.csv", folder / "results.png")
    write_json(
        folder / "results.json",
        {
            "metrics": {name: float(value) for name, value in metrics.items()},
            "best_epoch": state.best_epoch,
            "epochs": state.epoch,
            "updates": state.updates,
            "skipped_windows": state.skipped,
            "calibration_windows": state.calibrations,
            "noise_scale": noise_scale,
            "notes": lines,
            "unreadable_images": sorted(recorder.unreadable),
            "images": state.images,
            "seconds": state.seconds,
            "best": "weights/best.pt",
            "last": "weights/last.pt",
        },
    )
    _keep_review(session, folder, metrics, recorder)
    table = session.task.table(metrics) if metrics else None
    closing = [*interval_lines(metrics), *lines, *_closing_lines(session.config, folder, state)]
    waiting = recorder.data_wait.sentence()
    recorder.log("end", {"lines": [*closing, *([waiting] if waiting else [])], "table": table, "metrics": metrics})
    result = TrainResult(metrics, folder, recorder.best, recorder.last, state.best_epoch, state.updates)
    recorder.callbacks.tell("on_train_end", result)
    return result


def _keep_review(session: Session, folder: Path, metrics: Mapping[str, Any], recorder: Recorder) -> None:
    """The scores in detail, their pictures, and the page of the run."""
    config = session.config
    try:
        with recorder.drawing():
            if metrics:
                assert session.val is not None
                document = review_of(session.task, metrics, session.val, config, split="val")
                write_review(document, folder, plots=config.plots)
            if config.plots:
                write_report(folder)
    except ConfigError as error:
        recorder.warn(f"{error}; the run is on disk, and visiontrain report makes its page")


def _warn_unless_reproduced(
    ranking: str, stored: Mapping[str, float], measured: Mapping[str, Any], recorder: Recorder
) -> None:
    before, now = stored.get(ranking, math.nan), float(measured[ranking])
    if abs(before - now) > REPRODUCED:
        recorder.warn(f"best.pt scores {now:.6f} now, and scored {before:.6f} when it was saved ({ranking})")


def _closing_lines(config: Config, folder: Path, state: RunState) -> list[str]:
    lines = [f"best epoch {state.best_epoch} of {state.epoch}, {state.updates} updates in {state.seconds:.0f} s"]
    if state.epoch < config.epochs:
        lines.append(f"stopped before epoch {config.epochs}: {config.patience} epochs (patience) without a better one")
    lines.append(f"results in {folder}")
    if config.plots:
        lines.append(f"pictures there: {', '.join(sorted(path.name for path in folder.glob('*.[jp][pn]g')))}")
        lines += [f"report {page}" for page in (folder / PAGE,) if page.is_file()]
    return lines
