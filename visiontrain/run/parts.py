"""The moving parts of a training run, and how they go into a checkpoint and come back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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
from visiontrain.engine.noise import NoiseScale
from visiontrain.engine.optimizer import build_optimizer, regroup_
from visiontrain.engine.transaction import Transaction
from visiontrain.engine.window import GradientWindow
from visiontrain.models.network import Network
from visiontrain.run.compiling import compile_
from visiontrain.run.freezing import rates_of
from visiontrain.run.prepare import place
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

    def windows(self, first_window: int) -> Iterator[LoadedWindow]:
        """All windows of the run from that one on; what is frozen thaws before the first of its epoch."""
        windows = self.loader.windows(first_window)
        return windows if self.thaw is None else self.thaw.watch(windows)

    def close(self) -> None:
        """End the workers."""
        self.loader.close()
        if self.scorer is not None:
            self.scorer.close()


def build_parts(session: Session, *, warn: Callable[[str], None], cache: ImageCache | None = None) -> Parts:
    """Make the parts, as they were in the checkpoint where the run goes on."""
    config, task, recipe, setup = session.config, session.task, session.recipe, session.setup
    network = place(session.network, setup)
    noise = NoiseScale() if config.noise_scale else None
    rates = rates_of(network, config)
    optimizer = build_optimizer(network, recipe.optimizer, weight_decay=recipe.weight_decay, parts=rates)
    gradients = GradientWindow(
        optimizer,
        model=network,
        scaler=session.precision.scaler,
        clip=config.clip or None,
        gain=task.gain(recipe.plan),
        noise=noise,
    )
    average = Ema(network) if config.ema else LiveWeights(network)
    if config.compile:
        compile_(network)  # behind the average, which is a copy that only evaluates
    dataset = open_samples(config, task, session.train, stride=max(network.strides), cache=cache)
    parts = Parts(
        network=network,
        average=average,
        transaction=Transaction(gradients, batch=config.batch, precision=session.precision, warn=warn),
        thaw=_thaw_of(session, partial(regroup_, optimizer, network, weight_decay=recipe.weight_decay, parts=rates)),
        noise=noise,
        dataset=dataset,
        loader=TrainLoader(
            dataset,
            recipe.plan,
            task.collate,
            workers=setup.workers,
            pin_memory=setup.device.type == "cuda",
        ),
        scorer=None if session.val is None else _scorer_of(session, network, warn),
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
        "micro_batch": parts.transaction.batch,
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
    )


def _restore(parts: Parts, session: Session, checkpoint: Mapping[str, Any]) -> None:
    """Put back what `checkpoint_of` kept (the weights are in the session's network already)."""
    restore_optimizer(parts.transaction.gradients.optimizer, parts.network, checkpoint["optimizer"])
    if checkpoint["ema"] is not None:
        parts.average.model.load_state_dict(checkpoint["ema"])
    parts.average.updates = checkpoint["ema_updates"]
    if checkpoint["args"]["values"]["batch"] == session.config.batch:  # else another one was typed just now
        parts.transaction.batch = checkpoint["micro_batch"]
    scaler = session.precision.chosen_scaler
    if scaler is not None and checkpoint["scaler"] is not None:
        scaler.load_state_dict(checkpoint["scaler"])
    if parts.noise is not None and checkpoint.get("noise_scale") is not None:
        parts.noise.restore(checkpoint["noise_scale"])
    torch.set_rng_state(checkpoint["random"])
