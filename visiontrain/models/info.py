"""How large a network is."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

PEAK_OVER_KEPT = 1.6
"""Peak memory per image over what the forward pass keeps; measured on a CPU at 320 and 640 pixels, batch 2 to 16."""
PROBED_SIZE = 256
"""Pixels; a multiple of any usual stride."""
STATE_COPIES = 5  # weights, gradients, two of the optimizer, their average


@dataclass(frozen=True)
class ModelInfo:
    """Size and cost of a network."""

    layers: int
    """Modules that hold no other module."""
    parameters: int
    gflops: float
    """Billions of floating-point operations for one image; a multiplication with its addition counts as two."""
    imgsz: int
    """Pixels of the square image that `gflops` is for."""

    def __str__(self) -> str:
        return f"{self.layers} layers, {self.parameters:,} parameters, {self.gflops:.1f} GFLOPs at {self.imgsz} pixels"


def model_info(network: nn.Module, imgsz: int) -> ModelInfo:
    """Count layers, parameters and floating-point operations; the network is left as it was.

    Args:
        network: Takes (1, 3, imgsz, imgsz) images.
        imgsz: Pixels, a multiple of the network's largest stride.
    """
    modes = {module: module.training for module in network.modules()}
    images = torch.zeros(1, 3, imgsz, imgsz, dtype=torch.uint8, device=next(network.parameters()).device)
    network.eval()  # one image must not reach BatchNorm's statistics
    try:
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            network(images)
    finally:
        for module, training in modes.items():
            module.training = training
    return ModelInfo(
        layers=sum(1 for module in network.modules() if not any(module.children())),
        parameters=sum(parameter.numel() for parameter in network.parameters()),
        gflops=counter.get_total_flops() / 1e9,
        imgsz=imgsz,
    )


def training_bytes(network: nn.Module, imgsz: int, batch: int) -> int:
    """An estimate of the memory that training takes for tensors; the program and its libraries come on top.

    What an image takes grows with its area, to a percent; so it is found at a small size, whatever `imgsz` is.
    """
    state = STATE_COPIES * sum(parameter.nbytes for parameter in network.parameters())
    kept = kept_bytes(network, PROBED_SIZE) * (imgsz / PROBED_SIZE) ** 2
    return round(state + PEAK_OVER_KEPT * batch * kept)


def kept_bytes(network: nn.Module, imgsz: int) -> int:
    """Bytes that a training forward pass of one image keeps for its backward pass, found by running one."""
    copy = deepcopy(network).train()  # a pass moves BatchNorm's statistics
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        kept[tensor.data_ptr()] = tensor.nbytes
        return tensor

    # Two images: a single one leaves BatchNorm one value a channel where the coarsest map has one cell.
    images = torch.zeros(2, 3, imgsz, imgsz, device=next(copy.parameters()).device)
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        outputs = copy(images)
    weights = {param.data_ptr() for param in copy.parameters()}
    del outputs
    return sum(size for pointer, size in kept.items() if pointer not in weights) // 2
