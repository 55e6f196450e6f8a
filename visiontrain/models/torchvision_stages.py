"""Parts of torchvision's networks, for a graph of layers that reads more than their last map.

A part is called by the strides between which it lies, and its tensors keep the names that torchvision gives them.
Only networks qualify whose features are a chain of modules that hand square maps to each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn

from visiontrain.models.torchvision_models import CONVERTED, torchvision_names

HEADS = ("avgpool", "fc", "classifier", "head", "heads")
"""Names of what torchvision puts behind the features."""
OF_IMAGES = 1
"""The stride of the images."""
PROBED_SIZE = 32
"""Pixels; the largest stride of all networks that qualify."""

Remains = MutableMapping[tuple[str, int], nn.Module]
"""Networks of which a part was taken already, by name and the stride where that ended."""


@dataclass(frozen=True)
class Link:
    """A module of a chain of features."""

    path: str
    stride: int
    """Pixels of the input to a cell of its output."""
    channels: int
    """Of its output."""
    parameters: int


class TorchvisionStage(nn.Module):
    """Some links of the features of one of torchvision's networks, in order; their names are torchvision's.

    Attributes:
        name: Of that network.
        paths: Of the links.
    """

    def __init__(self, name: str, links: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.name = name
        self.paths = tuple(links)
        for path, link in links.items():
            parent: nn.Module = self
            *parents, last = path.split(".")
            for part in parents:
                if part not in parent._modules:
                    parent.add_module(part, nn.Sequential())
                parent = parent.get_submodule(part)
            parent.add_module(last, link)

    def forward(self, features: Tensor) -> Tensor:
        # By path, since normalization layers may have been replaced.
        for path in self.paths:
            features = self.get_submodule(path)(features)
        return features

    def extra_repr(self) -> str:
        return self.name


def take_stage(name: str, *, after: int, stride: int, remains: Remains) -> TorchvisionStage:
    """The part of a network from stride `after` (1: the images) to `stride`, with fresh weights.

    Args:
        name: Of the network in torchvision.
        after: Pixels; where the part before has ended.
        stride: Pixels.
        remains: What earlier calls left over; it is continued from and written into, so that the parts of a network
            are made at once, and no two calls ever get the same module.

    Raises:
        ValueError: If there is no such network, or it has no such part.
    """
    import torchvision

    links = [
        link.path for link in links_of(name) if (after == OF_IMAGES or link.stride > after) and link.stride <= stride
    ]
    strides = sorted({link.stride for link in links_of(name)})
    if stride not in strides or stride <= after:
        raise ValueError(f"has no map of stride {stride!r} behind stride {after}; {name} has {strides}")
    network = remains.pop((name, after), None) or torchvision.models.get_model(name, weights=None)
    remains[name, stride] = network
    return TorchvisionStage(name, {path: network.get_submodule(path) for path in links})


def channels_at(name: str, stride: int) -> int:
    """Channels of the network's last map of a stride that it has; 3 of the images, whose stride is 1."""
    found = [link.channels for link in links_of(name) if link.stride == stride]
    return 3 if stride == OF_IMAGES or not found else found[-1]


@cache
def links_of(name: str) -> tuple[Link, ...]:
    """The features of one of torchvision's networks, from the images on; torch's random state is left alone.

    Raises:
        ValueError: If there is no such network, or its features are no such chain.
    """
    import torchvision  # loads torch's compiler, 150 MB: not for networks of our own

    if name not in torchvision_names():
        raise ValueError(f"names {name!r}, and torchvision has no classification network of that name")
    no_chain = f"names {name}, whose features are no chain of square maps"
    if name in CONVERTED:  # they change the images before their first module
        raise ValueError(no_chain)
    links: list[Link] = []
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            features = torch.zeros(1, 3, PROBED_SIZE, PROBED_SIZE)
            network = torchvision.models.get_model(name, weights=None).eval()
            for path, link in _chain(network):
                features = link(features)
                parameters = sum(parameter.numel() for parameter in link.parameters())
                links.append(Link(path, _stride_of(features), features.shape[1], parameters))
    except (RuntimeError, AssertionError, TypeError, ValueError) as error:  # what layers make of no map
        raise ValueError(no_chain) from error
    return tuple(links)


def _stride_of(features: Tensor) -> int:
    """Raises ValueError unless `features` are maps with sides of `PROBED_SIZE` over a whole number."""
    sides = set(features.shape[2:]) if features.ndim == 4 else set()
    if len(sides) != 1 or PROBED_SIZE % max(sides):
        raise ValueError(f"{tuple(features.shape)} are no maps")
    return PROBED_SIZE // max(sides)


def _chain(network: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The modules that make the features, in order, with their paths; those that hold blocks are opened."""
    for name, child in network.named_children():
        if name in HEADS:
            return
        yield from _opened(name, child, is_outermost=True)


def _opened(path: str, module: nn.Module, *, is_outermost: bool = False) -> Iterator[tuple[str, nn.Module]]:
    # Classes derived from nn.Sequential may have a forward pass of their own.
    is_sequential = isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward
    if is_sequential and (is_outermost or any(any(member.children()) for member in module.children())):
        for name, member in module.named_children():
            yield from _opened(f"{path}.{name}", member)
    else:
        yield path, module
