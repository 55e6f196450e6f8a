"""`precise_bn`: the best weights' BatchNorm statistics, estimated anew over the training images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from visiontrain.engine.checkpoint import load_checkpoint, save_checkpoint, weights_of
from visiontrain.engine.running_statistics import estimate_running_statistics_
from visiontrain.models.norm import set_norm_
from visiontrain.run.parts import Parts
from visiontrain.run.session import Session
from visiontrain.sample import Batch

MOST_IMAGES = 4096
"""Images behind the estimate; the mean over so many is known well, and a pass over a huge set takes long."""


def rewrite_statistics(session: Session, parts: Parts, path: Path, *, epochs: int) -> str:
    """Estimate the statistics of the weights in `path`, score them, and put statistics and score into the file.

    The images are the micro-batches of the last epoch that was trained, with its augmentation: weights have adapted to
    it. (On blood cells plain images moved mAP50-95 from 0.615 to 0.594, the last epoch's to 0.612.)

    Args:
        session: The run.
        parts: Its parts.
        path: The checkpoint.
        epochs: How many were trained.

    Returns:
        One sentence on what was done.
    """
    task, network, group = session.task, parts.network, session.group
    saved: Mapping[str, Any] = load_checkpoint(path) if group.is_first else {}
    kept = "ema" if saved.get("ema") else "model"
    if group.is_first:
        network.load_state_dict(saved[kept])
    group.share_weights_(network)
    if session.config.norm == "sync":
        set_norm_(network, "batch")  # processes may have different numbers of batches; training is over
    batches = _LastBatches(session, parts, epoch=epochs - 1)
    estimate_running_statistics_(network, batches, session.precision, session.setup.device)
    group.share_buffers_(network)
    scored = None if parts.scorer is None else parts.scorer.score(network)[0]
    sentence = f"precise_bn: BatchNorm statistics of {path.name} estimated over {batches.num_images} training images"
    if not group.is_first:
        return sentence
    metrics = saved["metrics"]
    if scored is not None:
        before = metrics[task.ranking]
        metrics = dict(task.stored(scored))
        sentence += f"; {task.ranking} {metrics[task.ranking]:.4f}, before it {before:.4f}"
    values = {key: value for key, value in saved.items() if key != "format"}
    save_checkpoint(path, {**values, kept: weights_of(network), "metrics": metrics})
    return sentence


class _LastBatches:
    """The micro-batches from an epoch's first on, as many as are needed, one by one; counts their images.

    Of several processes each gets its part.
    """

    def __init__(self, session: Session, parts: Parts, *, epoch: int) -> None:
        self.num_images = 0
        self._most = MOST_IMAGES // session.group.size
        plan, self._loader = session.recipe.plan, parts.loader
        start = epoch * plan.num_images
        # With tail=carry an epoch may open no window of its own.
        self._first = next(window.index for window in plan.all_windows() if window.stop > start)
        self._stop = start + plan.num_images

    def __iter__(self) -> Iterator[Batch]:
        for window in self._loader.windows(self._first):
            if window.planned.start >= self._stop:
                return
            for batch in window:
                if self.num_images >= self._most:
                    return
                self.num_images += len(batch)
                yield batch
