"""Which layers a network has, from the images on, and which of them are its backbone.

Settings such as `freeze=10` or `lr_backbone=0.1` speak of these.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from visiontrain.models.layers import Concat, Upsample
from visiontrain.models.network import LayerGraph, has_weights
from visiontrain.models.recompute import RecomputedChain
from visiontrain.models.torchvision_models import TorchvisionNetwork, last_layer
from visiontrain.models.torchvision_stages import TorchvisionStage


@dataclass(frozen=True)
class Anatomy:
    """The layers of a network. Made by `anatomy_of`."""

    layers: tuple[str, ...]
    """Paths of modules, from the images on."""
    num_backbone: int
    """The first so many are the backbone."""

    def layer_of(self, name: str) -> int:
        """Index of the layer that holds a parameter, a buffer or a module.

        What stands in none of them, such as the class token of a vision transformer, counts to the first.
        """
        return next((index for index, path in enumerate(self.layers) if f"{name}.".startswith(f"{path}.")), 0)


def anatomy_of(network: nn.Module) -> Anatomy:
    """The layers of a network.

    Those of a YAML file are its rows, and its backbone is what stands before the first Upsample, Concat or head. Those
    of a network of torchvision are its blocks, and what stands outside of any block and has weights; its backbone is
    all but the last layer, which makes the logits. Any other network is taken apart like those. Where rows of a file
    are parts of a network of torchvision, they are opened, and they alone are the backbone: weights are had for them.
    """
    if isinstance(network, LayerGraph) and any(isinstance(layer, TorchvisionStage) for layer in network.layers):
        return _anatomy_on_torchvision(network)
    if isinstance(network, LayerGraph):
        is_neck = [isinstance(layer, Upsample | Concat) for layer in network.layers]
        is_neck[-1] = True  # the head
        return Anatomy(tuple(f"layers.{index}" for index in range(len(is_neck))), is_neck.index(True))
    if isinstance(network, TorchvisionNetwork):
        layers, last = tuple(_opened(network.network, "network.")), f"network.{last_layer(network.network)}."
    else:
        layers, last = tuple(_opened(network, "")), f"{last_layer(network)}."
    num_backbone = next(index for index, path in enumerate(layers) if last.startswith(f"{path}."))
    return Anatomy(layers, num_backbone)


def _anatomy_on_torchvision(network: LayerGraph) -> Anatomy:
    layers: list[str] = []
    num_backbone = 0
    for index, layer in enumerate(network.layers):
        if isinstance(layer, TorchvisionStage):
            layers += _opened(layer, f"layers.{index}.")
            num_backbone = len(layers)
        else:
            layers.append(f"layers.{index}")
    return Anatomy(tuple(layers), num_backbone)


def _opened(module: nn.Module, prefix: str) -> Iterator[str]:
    """Paths of the layers inside `module`; chains of layers, and what holds chains, are opened."""
    for name, child in module.named_children():
        if _is_chain(child) or any(map(_is_chain_of_blocks, child.modules())):
            yield from _opened(child, f"{prefix}{name}.")
        elif has_weights(child):
            yield f"{prefix}{name}"


def _is_chain(module: nn.Module) -> bool:
    return type(module) in (nn.Sequential, nn.ModuleList) or _is_chain_of_blocks(module)


def _is_chain_of_blocks(module: nn.Module) -> bool:
    return isinstance(module, RecomputedChain)
