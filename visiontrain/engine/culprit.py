"""Which image of a window, and which layer, made a number that is not finite."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from visiontrain.engine.branches import as_branches
from visiontrain.engine.evaluate import evaluating
from visiontrain.engine.precision import Precision
from visiontrain.protocols import Criterion
from visiontrain.sample import Batch


@torch.no_grad()
def find_culprits(
    network: nn.Module, criterion: Criterion, batches: Iterable[Batch], precision: Precision, device: torch.device
) -> list[str]:
    """Run a window's images one by one, in evaluation mode, which moves nothing.

    Args:
        network: With the weights that the window was trained from.
        criterion: Of the run.
        batches: Of the window.
        precision: As in training.
        device: Where the network lies.

    Returns:
        For each image whose loss is not finite by itself: its path, and the first layer whose output is not finite.
        Nothing where no image is to blame alone.
    """
    culprits = []
    with evaluating(network), torch.compiler.set_stance("force_eager"):  # compiled code passes hooks by
        for batch in batches:
            for image in batch.split(1) if len(batch) else ():
                single = image.to(device)
                with _first_not_finite(network) as found, precision.autocast():
                    outputs = network(single.images)
                branches = as_branches(criterion(outputs, single))
                if found or any(_is_not_finite(branch.total) for branch in branches):
                    where = f"the output of {found[0]}" if found else "the loss"
                    culprits.append(f"{image.paths[0]} ({where} is not finite)")
    return culprits


@contextmanager
def _first_not_finite(network: nn.Module) -> Iterator[list[str]]:
    """A list that gets the name of the first module whose output is not finite, inner ones first."""
    found: list[str] = []

    def note(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            if not found and _is_not_finite(output):
                found.append(name or type(network).__name__)

        return hook

    handles = [module.register_forward_hook(note(name)) for name, module in network.named_modules()]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def _is_not_finite(output: Any) -> bool:
    if isinstance(output, Tensor):
        return output.is_floating_point() and not bool(torch.isfinite(output).all())
    if isinstance(output, (list, tuple)):
        return any(map(_is_not_finite, output))
    return False
