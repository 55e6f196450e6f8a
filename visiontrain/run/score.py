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
from visiontrain.engine.distributed import Group, alone
from visiontrain.engine.evaluate import evaluate
from visiontrain.engine.fit import Interrupted
from visiontrain.engine.precision import Precision
from visiontrain.models.network import Network
from visiontrain.plan import Part
from visiontrain.protocols import Criterion, Decoder, Evaluator, Task
from visiontrain.run.interrupt import Interrupt
from visiontrain.run.pictures import MAX_IMAGES, NUM_PICTURES, draw_predictions
from visiontrain.sample import Batch, Records


@dataclass(frozen=True)
class Scorer:
    """Scores networks of one kind on one split."""

    task: Task
    loader: EvalLoader
    pictured: EvalLoader
    """Images from all over the split: it may be sorted by class."""
    criterion: Criterion
    scoring_decoder: Decoder
    decoder: Decoder
    evaluator: Evaluator
    names: tuple[str, ...]
    precision: Precision
    device: torch.device
    warn: Callable[[str], None]
    group: Group = field(default_factory=alone)
    """Each process scores its part of the split."""
    unreadable: set[str] = field(default_factory=set)
    """Images that could not be read so far: what they show counts as missed."""

    def score(
        self, network: nn.Module, interrupt: Interrupt | None = None
    ) -> tuple[Mapping[str, Any], dict[str, float]]:
        """The task's metrics and the loss parts.

        Raises:
            Interrupted: If a signal comes meanwhile, to whichever process.
        """
        found: list[str] = []
        result = evaluate(
            network,
            self._watched(found, interrupt),
            criterion=self.criterion,
            decoder=self.scoring_decoder,
            evaluator=self.evaluator,
            precision=self.precision,
            device=self.device,
            group=self.group,
        )
        self._agree(found, interrupt)
        return result

    def draw(self, network: nn.Module, folder: Path) -> None:
        """Pictures of labels and predictions of some images."""
        draw_predictions(
            network,
            self.pictured,
            folder,
            task=self.task,
            decoder=self.decoder,
            names=self.names,
            precision=self.precision,
            device=self.device,
        )

    def _watched(self, unreadable: list[str], interrupt: Interrupt | None) -> Iterator[Batch]:
        """The batches of this process, up to a signal; `unreadable` gets the images that could not be read."""
        for batch in self.loader:
            if interrupt is not None and interrupt.signum is not None:
                return
            unreadable += batch.unreadable
            yield batch

    def _agree(self, unreadable: list[str], interrupt: Interrupt | None) -> None:
        """Tell all processes of signals and of images that could not be read."""
        votes = interrupt.votes() if interrupt is not None else []
        everybody = self.group.gather((unreadable, votes))
        for path in sorted({path for paths, _ in everybody for path in paths} - self.unreadable):
            self.unreadable.add(path)
            self.warn(f"{path}: cannot be read; what it shows counts as missed")
        if interrupt is not None:
            interrupt.agree([sum(cast) for cast in zip(*(votes for _, votes in everybody), strict=True)])
            if interrupt.ending is not None:
                raise Interrupted

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
    batch: int,
    group: Group | None = None,
) -> Scorer:
    """Make the scorer of `records` for networks like `network`, which looks at `batch` images at once."""
    group = group or alone()
    part = Part(group.place.process, group.size)
    transform = task.val_transform(config, network)
    dataset = EvalDataset(records, transform, max_pixels=config.max_pixels)
    per_picture = min(batch, MAX_IMAGES)
    some = EvalDataset(_spread(records, NUM_PICTURES * per_picture), transform, max_pixels=config.max_pixels)
    return Scorer(
        task=task,
        loader=EvalLoader(dataset, task.collate, batch=batch, workers=setup.workers, part=part),
        pictured=EvalLoader(some, task.collate, batch=per_picture, workers=0),
        criterion=task.criterion(network, config),
        scoring_decoder=task.scoring_decoder(network, config),
        decoder=task.decoder(network, config),
        evaluator=task.evaluator(records, names, config),
        names=names,
        precision=precision,
        device=setup.device,
        warn=warn,
        group=group,
    )


def _spread(records: Records, count: int) -> Records:
    """So many of the records at even distances; all of them where there are no more."""
    places = range(len(records)) if len(records) <= count else (place * len(records) // count for place in range(count))
    return Records([records[place] for place in places])
