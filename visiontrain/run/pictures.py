"""Pictures of what a run trains on and what it finds."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import torch
from torch import nn

from visiontrain.data.dataset import TrainDataset
from visiontrain.data.loader import EvalLoader
from visiontrain.engine.evaluate import predict_batches
from visiontrain.engine.precision import Precision
from visiontrain.protocols import Decoder, Task
from visiontrain.report.mosaic import draw_batch
from visiontrain.run.session import Session
from visiontrain.sample import Batch, Marks

NUM_PICTURES = 3
MAX_IMAGES = 16


def draw_train_batches(session: Session, dataset: TrainDataset, folder: Path) -> None:
    """`train_batch0.jpg` and on: the first images as training sees them, augmented, with their boxes.

    A sample is a function of its key, so these are the very images of the first micro-batches, made once more; where
    the size changes from window to window, all at `imgsz`, as a picture may hold several windows.
    """
    per_picture = min(MAX_IMAGES, len(dataset))
    for number in range(min(NUM_PICTURES, len(dataset) // per_picture)):
        places = range(number * per_picture, (number + 1) * per_picture)
        batch = session.task.collate([dataset[dataset.sampler.key(x, size=session.config.imgsz)] for x in places])
        if len(batch):
            draw_targets(session.task, batch, session.data.names, folder / f"train_batch{number}.jpg")


def draw_predictions(
    network: nn.Module,
    loader: EvalLoader,
    folder: Path,
    *,
    task: Task,
    decoder: Decoder,
    names: tuple[str, ...],
    precision: Precision,
    device: torch.device,
) -> None:
    """`val_batch0_labels.jpg`, `val_batch0_pred.jpg` and on: labels and predictions of the loader's images."""
    batches = (batch for batch in loader if len(batch))
    predicted = predict_batches(network, batches, decoder, precision, device)
    for number, (batch, found) in enumerate(islice(predicted, NUM_PICTURES)):
        draw_targets(task, batch, names, folder / f"val_batch{number}_labels.jpg")
        _draw(batch, task.found_marks(found, names), names, folder / f"val_batch{number}_pred.jpg")


def draw_targets(task: Task, batch: Batch, names: tuple[str, ...], path: Path) -> None:
    """The images of a batch with their labels."""
    _draw(batch, task.target_marks(batch, names), names, path)


def _draw(batch: Batch, marks: Sequence[Marks], names: tuple[str, ...], path: Path) -> None:
    titles = [Path(one).name for one in batch.paths]
    draw_batch(batch.images.cpu(), marks, names, path, titles=titles, max_images=MAX_IMAGES)
