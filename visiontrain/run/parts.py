"""The moving parts of a training run, and how they go into a checkpoint and come back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from visiontrain.data.cache import ImageCache
from visiontrain.data.dataset import TrainDataset
from visiontrain.data.loader import TrainLoader
from visiontrain.engine.checkpoint import optimizer_state, restore_optimizer, weights_of
from visiontrain.engine.ema import Ema, LiveWeights
from visiontrain.engine.fit import EpochEnd
from visiontrain.engine.noise import NoiseScale
from visiontrain.engine.optimizer import build_optimizer
from visiontrain.engine.transaction import Transaction
from visiontrain.engine.window import GradientWindow
from visiontrain.models.network import Network
from visiontrain.run.prepare import place
from visiontrain.run.samples import open_samples
from visiontrain.run.score import Scorer, open_scorer
from visiontrain.run.session import Session, state_values, stored_args, versions


@dataclass(frozen=True)
class Parts:
    """What a run trains with."""

    network: Network
    average: Ema | LiveWeights
    transaction: Transaction
    noise: NoiseScale | None
    dataset: TrainDataset
    loader: TrainLoader
    scorer: Scorer | None
    """None where nothing is validated."""

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
    gradients = GradientWindow(
        build_optimizer(network, recipe.optimizer, weight_decay=recipe.weight_decay),
        model=network,
        scaler=session.precision.scaler,
        clip=config.clip or None,
        gain=task.gain(recipe.plan),
        noise=noise,
    )
    dataset = open_samples(config, task, session.train, stride=max(network.strides), cache=cache)
    parts = Parts(
        network=network,
        average=Ema(network) if config.ema else LiveWeights(network),
        transaction=Transaction(gradients, batch=config.batch, precision=session.precision, warn=warn),
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


def checkpoint_of(parts: Parts, session: Session, end: EpochEnd) -> dict[str, Any]:
    """All that the run needs to go on from here, as tensors and plain values."""
    scaler = session.precision.chosen_scaler
    return {
        "task": session.task.name,
        "model": weights_of(parts.network),
        "ema": weights_of(parts.average.model) if isinstance(parts.average, Ema) else None,
        "ema_updates": parts.average.updates,
        "optimizer": optimizer_state(parts.transaction.gradients.optimizer, parts.network),
        "scaler": None if scaler is None else scaler.state_dict(),
        "fp32_took_over": session.precision.is_overruled,
        "plan": state_values(end.state),
        "micro_batch": parts.transaction.batch,
        "metrics": {name: float(value) for name, value in (end.metrics or {}).items()},
        "args": stored_args(session.config),
        "names": list(session.data.names),
        "network": parts.network.description,
        "versions": versions(),
        "threads": session.setup.threads,
        "random": torch.get_rng_state(),
        "noise_scale": None if parts.noise is None else parts.noise.state(),
    }


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
