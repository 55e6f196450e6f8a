"""What a network makes of an image size, found by a forward pass without numbers: it costs no memory, little time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from visiontrain.models.norm import FrozenBatchNorm


def takes_size(network: nn.Module, imgsz: int) -> bool:
    """Whether a forward pass of an image of `imgsz` pixels comes to its end.

    Too small ones leave nothing of a map. Of a network that asks for the value of a number nothing can be found: it
    seems to take no size.
    """
    try:
        pass_without_numbers(network, imgsz)
    except RuntimeError:
        return False
    return True


def values_of_batch_norm(network: nn.Module, imgsz: int) -> int | None:
    """The fewest values a channel that any BatchNorm gets of one image of `imgsz` pixels.

    Where it is 1, a micro-batch of one image has no variance, and training stops with an error of torch's.

    Returns:
        None where no layer takes statistics of a micro-batch.
    """
    found: list[int] = []

    def note(_module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        found.append(inputs[0][0, 0].numel())  # (1, channels, h, w)

    layers = [
        layer for layer in network.modules() if isinstance(layer, _BatchNorm) and not isinstance(layer, FrozenBatchNorm)
    ]
    handles = [layer.register_forward_pre_hook(note) for layer in layers]
    try:
        pass_without_numbers(network, imgsz)
    finally:
        for handle in handles:
            handle.remove()
    return min(found, default=None)


def pass_without_numbers(network: nn.Module, imgsz: int) -> Any:
    """The network's outputs of one image, on the meta device; the network is left as it was."""
    state = {
        name: torch.empty_like(tensor, device="meta")
        for name, tensor in (*network.named_parameters(), *network.named_buffers())
    }
    images = torch.empty(1, 3, imgsz, imgsz, dtype=next(network.parameters()).dtype, device="meta")
    with _evaluating(network), torch.no_grad():
        return torch.func.functional_call(network, state, (images,))


@contextmanager
def _evaluating(network: nn.Module) -> Iterator[None]:
    """Evaluation mode, and afterwards each module's own."""
    modes = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        yield
    finally:
        for module, is_training in modes:
            module.training = is_training
