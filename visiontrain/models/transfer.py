"""Weights of a network into another one, of other classes: by name and shape, and class by class.

What fits is copied, what does not stays fresh, and all of it is told. A tensor fits where name and shape are the same.
Of the layers that make a logit for each class, the rows of classes that both have by name are copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from visiontrain.errors import ConfigError
from visiontrain.models.heads import Classify, Detect
from visiontrain.models.matching import UNLEARNED
from visiontrain.models.network import Network
from visiontrain.models.pretrained import adapted_weights, listed
from visiontrain.models.torchvision_models import TorchvisionNetwork, last_layer

Shapes = tuple[tuple[int, ...], tuple[int, ...]]
"""In the weights, in the network."""


@dataclass(frozen=True)
class Transfer:
    """What became of weights and of the network they were for."""

    source: str
    """Where the weights come from."""
    num_parameters: int
    """Numbers in the network's tensors."""
    num_matched: int
    """How many of them were copied."""
    matched: tuple[str, ...]
    by_class: tuple[str, ...]
    """Tensors of which the rows of `kept` classes were copied."""
    kept: tuple[str, ...]
    new: tuple[str, ...]
    """Classes that start fresh."""
    dropped: tuple[str, ...]
    """Classes of the weights that the network does not have."""
    reshaped: Mapping[str, Shapes]
    """Of the same name, but of another shape."""
    missing: tuple[str, ...]
    """Tensors of the network that the weights do not have."""
    unused: tuple[str, ...]
    """Tensors of the weights that the network does not have."""

    def document(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "source": self.source,
            "parameters": self.num_parameters,
            "matched_parameters": self.num_matched,
            "matched": list(self.matched),
            "by_class": list(self.by_class),
            "classes": {"kept": list(self.kept), "new": list(self.new), "dropped": list(self.dropped)},
            "shape_differs": {
                name: {"weights": list(given), "network": list(own)} for name, (given, own) in self.reshaped.items()
            },
            "missing": list(self.missing),
            "unused": list(self.unused),
        }


def transfer_(network: Network, weights: Mapping[str, Tensor], *, names: Sequence[str] | None, source: str) -> Transfer:
    """Copy what fits into `network`.

    Args:
        network: Its other tensors stay as they are.
        weights: By name, as in a checkpoint or a file of torchvision's.
        names: Class names of the weights, by index. None where nobody knows them: rows of classes are then copied
            where there are as many, in their order.
        source: What the weights come from, for messages.

    Raises:
        ConfigError: If nothing fits; the network is then as it was.
    """
    module = network.network if isinstance(network, TorchvisionNetwork) else network
    own, given = module.state_dict(), adapted_weights(network, weights)
    of_classes = set(_class_tensors(module, own))
    rows = _rows(names, network.names)
    copies: dict[str, Tensor] = {}
    by_class: list[str] = []
    reshaped: dict[str, Shapes] = {}
    for name in (name for name in own if name in given):
        if names is not None and name in of_classes and _has_rows(given[name], own[name], len(names)):
            copies[name] = _with_rows(own[name], given[name], rows)
            by_class.append(name)
        elif given[name].shape == own[name].shape and not (names is not None and name in of_classes):
            copies[name] = given[name]
        else:
            reshaped[name] = (tuple(given[name].shape), tuple(own[name].shape))
    matched = [name for name in copies if name not in by_class]
    if not any(not name.endswith(UNLEARNED) for name in matched) and not (rows and by_class):
        raise ConfigError(
            f"{source}: none of its tensors fits the network; it holds {len(given)} ({listed(list(given))}), and the "
            f"network has {len(own)} ({listed(list(own))}); name weights of such a network"
        )
    with torch.no_grad():
        for name, tensor in copies.items():
            own[name].copy_(tensor)
    kept = tuple(network.names[ours] for ours, _ in rows) if by_class else ()
    shares = [own[name].numel() for name in matched]
    shares += [own[name].numel() * len(kept) // max(1, len(network.names)) for name in by_class]
    return Transfer(
        source=source,
        num_parameters=sum(tensor.numel() for tensor in own.values()),
        num_matched=sum(shares),
        matched=tuple(matched),
        by_class=tuple(by_class),
        kept=kept,
        new=tuple(name for name in network.names if name not in kept) if names is not None else (),
        dropped=tuple(name for name in names or () if name not in kept),
        reshaped=reshaped,
        missing=tuple(name for name in own if name not in given and not name.endswith(UNLEARNED)),
        unused=tuple(name for name in given if name not in own),
    )


def whole_transfer(network: Network, source: str, *, fresh: Sequence[str]) -> Transfer:
    """What `load_pretrained_` and `fetch_pretrained_` did: all tensors were copied but those that stayed `fresh`."""
    module = network.network if isinstance(network, TorchvisionNetwork) else network
    own = module.state_dict()
    return Transfer(
        source=source,
        num_parameters=sum(tensor.numel() for tensor in own.values()),
        num_matched=sum(tensor.numel() for name, tensor in own.items() if name not in fresh),
        matched=tuple(name for name in own if name not in fresh),
        by_class=(),
        kept=(),
        new=network.names if fresh else (),
        dropped=(),
        reshaped={},
        missing=tuple(fresh),
        unused=(),
    )


def _class_tensors(module: nn.Module, state: Mapping[str, Tensor]) -> Iterator[str]:
    """Names of the tensors that hold one row for each class."""
    layers = list(_class_layers(module)) or [last_layer(module)]
    return (name for name in state if name.rpartition(".")[0] in layers)


def _class_layers(module: nn.Module) -> Iterator[str]:
    for path, layer in module.named_modules():
        if isinstance(layer, Detect):
            for level, branch in enumerate(layer.class_branches):
                yield f"{path}.class_branches.{level}.{last_layer(branch)}"
        elif isinstance(layer, Classify):
            yield f"{path}.linear"


def _rows(names: Sequence[str] | None, own_names: Sequence[str]) -> list[tuple[int, int]]:
    """Indices of the classes that both have: in the network, in the weights."""
    theirs = {name: index for index, name in enumerate(names or ())}
    return [(ours, theirs[name]) for ours, name in enumerate(own_names) if name in theirs]


def _has_rows(given: Tensor, own: Tensor, num_classes: int) -> bool:
    return given.ndim > 0 and len(given) == num_classes and given.shape[1:] == own.shape[1:]


def _with_rows(own: Tensor, given: Tensor, rows: Sequence[tuple[int, int]]) -> Tensor:
    """`own` with the rows of some classes in place of its own."""
    mixed = own.clone()
    for ours, theirs in rows:
        mixed[ours] = given[theirs]
    return mixed
