"""`visiontrain train`: opens a session, wires its parts, calls `fit`, and closes with the best weights' score."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from visiontrain.config.schema import Config
from visiontrain.data.cache import ImageCache
from visiontrain.engine.checkpoint import load_checkpoint
from visiontrain.engine.culprit import find_culprits
from visiontrain.engine.distributed import Place
from visiontrain.engine.fit import RunState, TooManySkips, Training, fit
from visiontrain.engine.noise import advice
from visiontrain.engine.transaction import OutOfMemoryInGroup, is_out_of_memory
from visiontrain.errors import ConfigError, Stopped
from visiontrain.loggers.packages import require_packages
from visiontrain.report.curves import plot_results
from visiontrain.report.label_plot import plot_labels
from visiontrain.run.banner import banner_lines
from visiontrain.run.caching import open_cache
from visiontrain.run.callbacks import Callbacks, TrainStart, ValEnd, ValStart
from visiontrain.run.files import write_args, write_json
from visiontrain.run.interval_lines import interval_lines
from visiontrain.run.launch import launch, processes_to_launch
from visiontrain.run.parts import Parts, build_parts
from visiontrain.run.pictures import draw_train_batches
from visiontrain.run.planning import plan_document
from visiontrain.run.precise_bn import rewrite_statistics
from visiontrain.run.prepare import device_of, make_folder
from visiontrain.run.process import own_random_state, process_settings
from visiontrain.run.record import Recorder, open_recorder, trackers_of
from visiontrain.run.report import PAGE, write_report
from visiontrain.run.resuming import LAST, PREVIOUS, WEIGHTS
from visiontrain.run.review import review_of, write_review
from visiontrain.run.score import Scorer
from visiontrain.run.session import Session, open_session
from visiontrain.run.starts import Member, Starts, joined, place_from
from visiontrain.run.time_limit import seconds_taken, why_ended

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
    is_own: bool = True
    """Whether this process has written it: of several only the first."""

    def to_plain(self) -> dict[str, Any]:
        """As plain values, from which `from_plain` makes the same."""
        paths = {name: str(getattr(self, name)) for name in ("save_dir", "best", "last")}
        return {**paths, "metrics": dict(self.metrics), "best_epoch": self.best_epoch, "updates": self.updates}

    @classmethod
    def from_plain(cls, values: Mapping[str, Any]) -> TrainResult:
        """What `to_plain` gave."""
        save_dir, best, last = (Path(values[name]) for name in ("save_dir", "best", "last"))
        return cls(values["metrics"], save_dir, best, last, values["best_epoch"], values["updates"])


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
    processes = processes_to_launch(config)
    if processes > 1:
        _check_can_launch(config, callbacks, processes)
        return TrainResult.from_plain(launch(config, processes))
    with joined(place_from(os.environ)) as member:
        return _train(config, callbacks if member.group.is_first else Callbacks(), member)


def _check_can_launch(config: Config, callbacks: Callbacks, processes: int) -> None:
    """Raises ConfigError where there are functions that only this process has, or not as many devices."""
    for process in range(processes):
        device_of(config, Place(process, processes, process, processes))
    if callbacks:
        raise ConfigError(
            "callbacks: are functions of this process, and others train; start the script itself by torchrun, in which "
            "the first process calls them, and leave out processes and the list of devices"
        )


def _train(config: Config, callbacks: Callbacks, member: Member) -> TrainResult:
    group, starts = member.group, member.starts
    begun = group.first_gives(lambda: _begun_before(starts))
    if begun is not None and starts.recall("over") is not None:
        return group.first_gives(lambda: _result_of(begun))
    session = open_session(config if begun is None else replace(config, resume=str(begun)), member=member)
    if _folder_before(starts) is not None:
        there = "from its beginning, as nothing was saved" if begun is None else f"and goes on in {begun}"
        note = f"the group was started again (start {starts.number + 1}), {there}"
        session = replace(session, changes=(*session.changes, note))
    require_packages(trackers_of(session.config))  # of the run that goes on
    with open_cache(session) as cache:
        folder = group.first_gives(lambda: session.folder or _folder_before(starts) or make_folder(session.config))
        starts.remember("folder", str(folder))
        while True:
            try:
                return _run(session, folder, cache, callbacks)
            except TooManySkips as error:
                session = _gone_back(session, folder, error, member)
            except RuntimeError as error:
                if group.size > 1 and is_out_of_memory(error):  # not in a window, but in a validation, say
                    raise OutOfMemoryInGroup(session.share.most) from error
                raise


def _folder_before(starts: Starts) -> Path | None:
    """The folder that an earlier start of the group has made."""
    folder = starts.recall("folder")
    return None if folder is None else Path(folder)


def _begun_before(starts: Starts) -> Path | None:
    """The run that an earlier start of the group has saved, and this one goes on with."""
    folder = _folder_before(starts)
    return folder if folder is not None and _is_saved(folder) else None


def _is_saved(folder: Path) -> bool:
    """Whether there is a checkpoint to go on from."""
    return any((folder / WEIGHTS / name).is_file() for name in (LAST, PREVIOUS))


def _result_of(folder: Path) -> TrainResult:
    """Of a run that an earlier start of the group has finished."""
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    best, last = (folder / results[name] for name in ("best", "last"))
    return TrainResult(results["metrics"], folder, best, last, results["best_epoch"], results["updates"])


def _gone_back(session: Session, folder: Path, error: TooManySkips, member: Member) -> Session:
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
    is_saved = member.group.first_gives(lambda: _is_saved(folder))
    config = replace(session.config, resume=str(folder)) if is_saved else session.config
    again = open_session(config, member=member)
    note = f"{error}: going back to image {again.state.images} with 1/{2**halvings} of the learning rate"
    state = replace(again.state, halvings=halvings, skipped_in_a_row=0)
    return replace(again, resumed=again.resumed._replace(folder=folder), state=state, changes=(*again.changes, note))


def _run(session: Session, folder: Path, cache: ImageCache | None, callbacks: Callbacks) -> TrainResult:
    settings = process_settings(session.setup, is_deterministic=session.config.deterministic)
    random_state = own_random_state(session.setup, session.config.seed)
    with settings, random_state, open_recorder(session, folder, callbacks) as recorder:
        parts = build_parts(session, cache=cache, warn=recorder.warn, votes=recorder.votes)
        try:
            if session.group.is_first:
                _begin(session, folder, parts, recorder)
            session.group.meet()  # what the first writes and draws may take long
            state = fit(_training(session, parts, recorder), session.state)
            _check_whole(session, folder, recorder, state)
            return _finish(session, folder, parts, recorder, state)
        finally:
            parts.close()


def _check_whole(session: Session, folder: Path, recorder: Recorder, state: RunState) -> None:
    """Raises CheckpointError if the run is not on disk, Stopped if a signal has ended it, if only in validation."""
    recorder.checkpoints.check_saved(state)
    signum = recorder.interrupt.ending
    if signum is not None and state.epoch < session.recipe.plan.epochs:
        recorder.warn(f"stopped and saved at image {state.images}; go on with resume={folder}")
        raise Stopped(signum, is_agreed=True)


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
        group=session.group,
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
    lines = []
    if session.config.precise_bn:
        lines.append(rewrite_statistics(session, parts, recorder.checkpoints.best, epochs=state.epoch))
    metrics = {} if parts.scorer is None else _score_best(session, parts, parts.scorer, recorder)
    is_own = session.group.is_first
    result = TrainResult(
        metrics, folder, recorder.checkpoints.best, recorder.checkpoints.last, state.best_epoch, state.updates, is_own
    )
    if is_own:
        _write_results(session, folder, parts, recorder, state, metrics, lines)
        recorder.callbacks.tell("on_train_end", result)
    return result


def _score_best(session: Session, parts: Parts, scorer: Scorer, recorder: Recorder) -> Mapping[str, Any]:
    """The metrics of best.pt as it lies on the disk."""
    stored: Mapping[str, float] = {}
    if session.group.is_first:
        kept = recorder.checkpoints.best
        if not kept.is_file():
            recorder.warn(f"{kept}: is gone or could not be written; the last weights are scored in its place")
            kept = recorder.checkpoints.last
        best = load_checkpoint(kept)
        parts.network.load_state_dict(best["ema"] or best["model"])
        stored = best["metrics"]
    session.group.share_weights_(parts.network)
    metrics, _ = _score(scorer, parts.network, recorder, None)
    if session.group.is_first:
        _warn_unless_reproduced(session.task.ranking, stored, metrics, recorder)
    return metrics


def _write_results(
    session: Session,
    folder: Path,
    parts: Parts,
    recorder: Recorder,
    state: RunState,
    metrics: Mapping[str, Any],
    notes: Sequence[str],
) -> None:
    """Everything that a run leaves behind beside its weights."""
    noise_scale = None if parts.noise is None else parts.noise.estimate()
    lines = [*([] if parts.noise is None else [advice(noise_scale, session.config.nbs)]), *notes]
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
    lines = [f"best epoch {state.best_epoch} of {state.epoch}, {state.updates} updates in {seconds_taken(state):.0f} s"]
    if state.epoch < config.epochs:
        lines.append(why_ended(config, state))
    lines.append(f"results in {folder}")
    if config.plots:
        lines.append(f"pictures there: {', '.join(sorted(path.name for path in folder.glob('*.[jp][pn]g')))}")
        lines += [f"report {page}" for page in (folder / PAGE,) if page.is_file()]
    return lines
