"""`precise_bn`: the best weights' BatchNorm statistics, estimated anew over the training images."""

from __future__ import annotations

from pathlib import Path

from visiontrain.data.dataset import EvalDataset
from visiontrain.data.loader import EvalLoader
from visiontrain.engine.checkpoint import load_checkpoint, save_checkpoint, weights_of
from visiontrain.engine.running_statistics import estimate_running_statistics_
from visiontrain.run.parts import Parts
from visiontrain.run.prepare import draw_records
from visiontrain.run.session import Session

MOST_IMAGES = 4096
"""Images behind the estimate; the mean over so many is known well, and a pass over a huge set takes long."""


def rewrite_statistics(session: Session, parts: Parts, path: Path) -> str:
    """Estimate the statistics of the weights in `path` over training images as validation sees them, without
    augmentation; score them, and put statistics and score into the file.

    Returns:
        One sentence on what was done.
    """
    config, task, network = session.config, session.task, parts.network
    saved = load_checkpoint(path)
    kept = "ema" if saved["ema"] else "model"
    network.load_state_dict(saved[kept])
    records = draw_records(session.train, MOST_IMAGES, config.seed)
    dataset = EvalDataset(records, task.val_transform(config, network))
    loader = EvalLoader(dataset, task.collate, batch=config.batch, workers=session.setup.workers)
    try:
        estimate_running_statistics_(network, loader, session.precision, session.setup.device)
    finally:
        loader.close()
    sentence = f"precise_bn: BatchNorm statistics of {path.name} estimated over {len(records)} training images"
    metrics = saved["metrics"]
    if parts.scorer is not None:
        before = metrics[task.ranking]
        metrics = {name: float(value) for name, value in parts.scorer.score(network)[0].items()}
        sentence += f"; {task.ranking} {metrics[task.ranking]:.4f}, before it {before:.4f}"
    values = {key: value for key, value in saved.items() if key != "format"}
    save_checkpoint(path, {**values, kept: weights_of(network), "metrics": metrics})
    return sentence
