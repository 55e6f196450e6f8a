"""Pictures of what a run trains on and what it finds."""

from __future__ import annotations

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
from visiontrain.sample import Batch, Sample

NUM_PICTURES = 3
MAX_IMAGES = 16


def draw_train_batches(session: Session, dataset: TrainDataset, folder: Path) -> None:
    """`train_batch0.jpg` and on: the first images as training sees them, augmented, with their boxes.

    A sample is a function of its key, so these are the very images of the first micro-batches, made once more.
    """
    keys = (key for window in session.recipe.plan.all_windows() for key in dataset.sampler.keys(window))
    per_picture = min(MAX_IMAGES, len(session.train))
    for number in range(min(NUM_PICTURES, len(session.train) // per_picture)):
        samples = [sample for key in islice(keys, per_picture) if isinstance(sample := dataset[key], Sample)]
        batch = session.task.collate(samples)
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
        draw_batch(
            batch.images.cpu(),
            task.found_marks(found, names),
            names,
            folder / f"val_batch{number}_pred.jpg",
            titles=[Path(path).name for path in batch.paths],
            max_images=MAX_IMAGES,
        )


def draw_targets(task: Task, batch: Batch, names: tuple[str, ...], path: Path) -> None:
    """The images of a batch with their labels."""
    draw_batch(
        batch.images.cpu(),
        task.target_marks(batch, names),
        names,
        path,
        titles=[Path(one).name for one in batch.paths],
        max_images=MAX_IMAGES,
    )
