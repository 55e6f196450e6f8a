"""How large a network is."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode


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
