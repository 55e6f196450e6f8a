"""`Scorer`: a split, ready to be scored and drawn; training and `val` score by the same one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from visiontrain.config.schema import Config
from visiontrain.data.dataset import EvalDataset
from visiontrain.data.loader import EvalLoader
from visiontrain.engine.device import DeviceSetup
from visiontrain.engine.evaluate import evaluate
from visiontrain.engine.precision import Precision
from visiontrain.models.network import Network
from visiontrain.protocols import Criterion, Decoder, Evaluator, Task
from visiontrain.run.pictures import draw_predictions
from visiontrain.sample import Batch, Records


@dataclass(frozen=True)
class Scorer:
    """Scores networks of one kind on one split."""

    task: Task
    loader: EvalLoader
    criterion: Criterion
    scoring_decoder: Decoder
    decoder: Decoder
    evaluator: Evaluator
    names: tuple[str, ...]
    precision: Precision
    device: torch.device
    warn: Callable[[str], None]
    unreadable: set[str] = field(default_factory=set)
    """Images that could not be read so far: their boxes count as missed."""

    def score(self, network: nn.Module) -> tuple[Mapping[str, Any], dict[str, float]]:
        """The task's metrics and the loss parts."""
        return evaluate(
            network,
            self._watched(),
            criterion=self.criterion,
            decoder=self.scoring_decoder,
            evaluator=self.evaluator,
            precision=self.precision,
            device=self.device,
        )

    def draw(self, network: nn.Module, folder: Path) -> None:
        """Pictures of labels and predictions of the first images."""
        draw_predictions(
            network,
            self.loader,
            folder,
            task=self.task,
            decoder=self.decoder,
            names=self.names,
            precision=self.precision,
            device=self.device,
        )

    def _watched(self) -> Iterator[Batch]:
        for batch in self.loader:
            for path in set(batch.unreadable) - self.unreadable:
                self.unreadable.add(path)
                self.warn(f"{path}: cannot be read; its objects count as missed")
            yield batch

    def close(self) -> None:
        """End the workers."""
        self.loader.close()


def open_scorer(
    config: Config,
    task: Task,
    *,
    network: Network,
    records: Records,
    names: tuple[str, ...],
    setup: DeviceSetup,
    precision: Precision,
    warn: Callable[[str], None],
) -> Scorer:
    """Make the scorer of `records` for networks like `network`."""
    dataset = EvalDataset(records, task.val_transform(config, network), max_pixels=config.max_pixels)
    return Scorer(
        task=task,
        loader=EvalLoader(dataset, task.collate, batch=config.batch, workers=setup.workers),
        criterion=task.criterion(network, config),
        scoring_decoder=task.scoring_decoder(network, config),
        decoder=task.decoder(network, config),
        evaluator=task.evaluator(records, names, config),
        names=names,
        precision=precision,
        device=setup.device,
        warn=warn,
    )
