"""Score a network on a split."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import reduce
from operator import add
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from visiontrain.engine.branches import BranchSums, Share, as_branches
from visiontrain.engine.distributed import Group, alone
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
    group: Group | None = None,
) -> tuple[Mapping[str, Any], dict[str, float]]:
    """Run `model` over `batches`, which in each of several processes are others.

    Returns:
        The evaluator's metrics, and the loss parts, each Σ total / Σ normalizer over the split: what they are does
        not depend on how the split was cut into batches. In all processes but the first the metrics are the numbers
        alone.
    """
    group = group or alone()
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
    shares = sums.shares()
    if group.size > 1:
        shares = _merged(evaluator, shares, group)
    means = {name: share.mean().item() for name, share in shares.items()}
    metrics = evaluator.compute() if group.is_first else {}
    numbers = group.first_gives(lambda: dict(metrics))
    return metrics if group.is_first else numbers, means


def _merged(evaluator: Evaluator, shares: Mapping[str, Share], group: Group) -> dict[str, Share]:
    """Give the first process's evaluator what the others have added; the shares of all processes."""
    on_cpu = {name: Share(one.total.cpu(), one.normalizer.cpu(), one.floor) for name, one in shares.items()}
    states, parts = zip(*group.gather((None if group.is_first else evaluator.state(), on_cpu)), strict=True)
    if group.is_first:
        for state in states[1:]:
            evaluator.merge(state)
    filled = [part for part in parts if part]  # not of a process that had nothing to score
    return {name: reduce(add, (part[name] for part in filled)) for name in (filled[0] if filled else {})}


def unmoved(model: nn.Module, *, by: Batch) -> AbstractContextManager[None]:
    """Inside, a batch without images leaves BatchNorm's running statistics alone; one with images moves them.

    SyncBatchNorm stays as it is: there all processes exchange in every forward pass, and it counts images.
    """
    if len(by):
        return nullcontext()
    norms = [layer for layer in model.modules() if isinstance(layer, _BatchNorm)]
    return _evaluating([layer for layer in norms if not isinstance(layer, nn.SyncBatchNorm)])


def evaluating(model: nn.Module) -> AbstractContextManager[None]:
    """Evaluation mode, and afterwards each module's own: frozen parts of a network in training stay as they were."""
    return _evaluating(list(model.modules()))


@contextmanager
def _evaluating(modules: Sequence[nn.Module]) -> Iterator[None]:
    modes = [(module, module.training) for module in modules]
    for module in modules:
        module.training = False
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
