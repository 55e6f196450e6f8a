"""The moving parts of a training run, and how they go into a checkpoint and come back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from visiontrain.data.cache import ImageCache
from visiontrain.data.dataset import TrainDataset
from visiontrain.data.loader import LoadedWindow, TrainLoader
from visiontrain.engine.checkpoint import optimizer_state, restore_optimizer, weights_of
from visiontrain.engine.ema import Ema, LiveWeights
from visiontrain.engine.fit import RunState
from visiontrain.engine.freeze import Thaw
from visiontrain.engine.heap import giving_back, heap_trimmer
from visiontrain.engine.noise import NoiseScale
from visiontrain.engine.optimizer import build_optimizer, regroup_
from visiontrain.engine.transaction import Transaction
from visiontrain.engine.window import GradientWindow
from visiontrain.models.network import Network
from visiontrain.plan import Part
from visiontrain.run.compiling import compile_
from visiontrain.run.freezing import rates_of
from visiontrain.run.prepare import place
from visiontrain.run.process import seed_
from visiontrain.run.resuming import fingerprint_of, state_values, stored_args, versions
from visiontrain.run.samples import open_samples
from visiontrain.run.score import Scorer, open_scorer
from visiontrain.run.session import Session


@dataclass(frozen=True)
class Parts:
    """What a run trains with."""

    network: Network
    average: Ema | LiveWeights
    transaction: Transaction
    thaw: Thaw | None
    """Where parameters are frozen for the first epochs."""
    noise: NoiseScale | None
    dataset: TrainDataset
    loader: TrainLoader
    scorer: Scorer | None
    """None where nothing is validated."""
    reseed: Callable[[int], None] | None = None
    """What each of several processes does before the window of an index."""

    def windows(self, first_window: int) -> Iterator[LoadedWindow]:
        """All windows of the run from that one on; what is frozen thaws before the first of its epoch."""
        windows = self.loader.windows(first_window)
        if next(self.network.parameters()).device.type == "cpu":
            windows = giving_back(windows, heap_trimmer())
        for window in windows if self.thaw is None else self.thaw.watch(windows):
            if self.reseed is not None:
                self.reseed(window.planned.index)
            yield window

    def close(self) -> None:
        """End the workers."""
        self.loader.close()
        if self.scorer is not None:
            self.scorer.close()


def build_parts(
    session: Session,
    *,
    warn: Callable[[str], None],
    votes: Callable[[], Sequence[float]] = tuple,
    cache: ImageCache | None = None,
) -> Parts:
    """Make the parts, as they were in the checkpoint where the run goes on.

    Args:
        session: The run.
        warn: Told what the user should know.
        votes: What this process tells all when a window closes; see `GradientWindow`.
        cache: Of the training images.
    """
    config, task, recipe, setup, group = session.config, session.task, session.recipe, session.setup, session.group
    network = place(session.network, setup)
    noise = NoiseScale() if config.noise_scale else None
    rates = rates_of(network, config)
    optimizer = build_optimizer(network, recipe.optimizer, weight_decay=recipe.weight_decay, parts=rates)
    gradients = GradientWindow(
        optimizer,
        model=group.replicate(network),
        scaler=session.precision.scaler,
        clip=config.clip or None,
        gain=task.gain(recipe.plan),
        noise=noise,
        votes=votes,
    )
    average = Ema(network) if config.ema else LiveWeights(network)
    if config.compile:
        compile_(network)  # behind the average, which is a copy that only evaluates
    dataset = open_samples(config, task, session.train, stride=max(network.strides), cache=cache)

    def regroup() -> None:
        """Give the optimizer, and the exchange between processes, the parameters that learn from here on."""
        regroup_(optimizer, network, weight_decay=recipe.weight_decay, parts=rates)
        gradients.use(group.replicate(network))

    parts = Parts(
        network=network,
        average=average,
        transaction=Transaction(
            gradients, batch=session.share.most, precision=session.precision, warn=warn, group=group
        ),
        thaw=_thaw_of(session, regroup),
        noise=noise,
        dataset=dataset,
        loader=TrainLoader(
            dataset,
            recipe.plan,
            task.collate,
            workers=setup.workers,
            pin_memory=setup.device.type == "cuda",
            part=Part(group.place.process, group.size, session.share.most),
        ),
        scorer=None if session.val is None else _scorer_of(session, network, warn),
        reseed=None if group.size == 1 else partial(seed_, setup, config.seed, group.place.process),
    )
    if session.checkpoint is not None:
        _restore(parts, session, session.checkpoint)
    return parts


def checkpoint_of(
    parts: Parts, session: Session, state: RunState, metrics: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """All that the run needs to go on from here, as tensors and plain values.

    Args:
        parts: Of the run, between two windows.
        session: The run.
        state: Where it stands.
        metrics: Of the weights, where they were just validated.
    """
    scaler = session.precision.chosen_scaler
    return {
        "task": session.task.name,
        "model": weights_of(parts.network),
        "ema": weights_of(parts.average.model) if isinstance(parts.average, Ema) else None,
        "ema_updates": parts.average.updates,
        "optimizer": optimizer_state(parts.transaction.gradients.optimizer, parts.network),
        "scaler": None if scaler is None else scaler.state_dict(),
        "fp32_took_over": session.precision.is_overruled,
        "plan": state_values(state),
        "micro_batch": session.share.limit_by(parts.transaction.batch),
        "metrics": dict(session.task.stored(metrics)) if metrics else {},
        "args": stored_args(session.config),
        "names": list(session.data.names),
        "data": fingerprint_of(session.data),
        "network": parts.network.description,
        "versions": versions(),
        "threads": session.setup.threads,
        "random": torch.get_rng_state(),
        "noise_scale": None if parts.noise is None else parts.noise.state(),
    }


def _thaw_of(session: Session, regroup: Callable[[], None]) -> Thaw | None:
    """What ends the freezing, if anything does; it is over already where the run has trained behind its end."""
    config, windows = session.config, session.recipe.plan.all_windows(max(0, session.state.window - 1))
    if session.frozen is None or config.unfreeze_epoch is None:
        return None
    thaw = Thaw(session.network, session.frozen, epoch=config.unfreeze_epoch, regroup=regroup)
    last = next(windows, None)
    if session.state.window and last is not None:
        thaw.reach(last)
    return thaw


def _scorer_of(session: Session, network: Network, warn: Callable[[str], None]) -> Scorer:
    assert session.val is not None
    return open_scorer(
        session.config,
        session.task,
        network=network,
        records=session.val,
        names=session.data.names,
        setup=session.setup,
        precision=session.precision,
        warn=warn,
        batch=-(-session.share.most // session.group.size),
        group=session.group,
    )


def _restore(parts: Parts, session: Session, checkpoint: Mapping[str, Any]) -> None:
    """Put back what `checkpoint_of` kept (the weights are in the session's network already)."""
    restore_optimizer(parts.transaction.gradients.optimizer, parts.network, checkpoint["optimizer"])
    if checkpoint["ema"] is not None:
        parts.average.model.load_state_dict(checkpoint["ema"])
    parts.average.updates = checkpoint["ema_updates"]
    scaler = session.precision.chosen_scaler
    if scaler is not None and checkpoint["scaler"] is not None:
        scaler.load_state_dict(checkpoint["scaler"])
    if parts.noise is not None and checkpoint.get("noise_scale") is not None:
        parts.noise.restore(checkpoint["noise_scale"])
    torch.set_rng_state(checkpoint["random"])
