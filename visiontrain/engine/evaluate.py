"""Score a network on a split."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from visiontrain.engine.branches import BranchSums, as_branches
from visiontrain.engine.precision import Precision
from visiontrain.protocols import Criterion, Decoder, Evaluator
from visiontrain.sample import Batch


@torch.inference_mode()
def evaluate(
    model: nn.Module,
    batches: Iterable[Batch],
    *,
    criterion: Criterion,
    decoder: Decoder,
    evaluator: Evaluator,
    precision: Precision,
    device: torch.device,
) -> tuple[Mapping[str, Any], dict[str, float]]:
    """Run `model` over `batches`.

    Returns:
        The evaluator's metrics, and the loss parts, each Σ total / Σ normalizer over the split: what they are does
        not depend on how the split was cut into batches.
    """
    sums = BranchSums()
    with evaluating(model):
        for host_batch in batches:
            if not len(host_batch):
                continue
            batch = host_batch.to(device)
            with precision.autocast():
                outputs = model(batch.images)
            losses = criterion(outputs, batch)
            branches = as_branches(losses) if losses else []  # an exported network's are not known
            sums.check(branches)
            sums.add(branches, len(batch))
            evaluator.add(decoder(outputs), batch)
    return evaluator.compute(), {name: share.mean().item() for name, share in sums.shares().items()}


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, and afterwards each module's own: frozen parts of a network in training stay as they were."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, is_training in modes:
            module.training = is_training


@torch.inference_mode()
def predict_batches(
    model: nn.Module, batches: Iterable[Batch], decoder: Decoder, precision: Precision, device: torch.device
) -> Iterator[tuple[Batch, list[dict[str, Tensor]]]]:
    """Each batch with the predictions for its images; `model` is in evaluation mode afterwards."""
    model.eval()
    for host_batch in batches:
        batch = host_batch.to(device)
        with precision.autocast():
            outputs = model(batch.images)
        yield batch, decoder(outputs)
