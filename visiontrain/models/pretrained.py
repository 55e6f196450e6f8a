"""Weights that others have trained, into a network whose classes are one's own.

A file is read without running its code. All tensors of a classifier must fit, but for those of the last layer, which
stay fresh where the number of classes differs; of a detector those of the backbone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor

from visiontrain.errors import ConfigError
from visiontrain.models.download import torchvision_weights
from visiontrain.models.matching import UNLEARNED
from visiontrain.models.network import Network
from visiontrain.models.torchvision_models import TorchvisionNetwork, fixed_size_of, last_layer
from visiontrain.models.torchvision_stages import TorchvisionStage
from visiontrain.models.weights import read_weights_file

PREFIXES = ("module.", "network.")
"""Put before all names by DistributedDataParallel, and by our checkpoints of torchvision's networks."""
AUXILIARY = ("aux1.", "aux2.", "AuxLogits.")
"""Outputs of GoogLeNet and Inception that only helped their training; ours are built without."""
MOST_NAMED = 5
_DENSENET = re.compile(r"(denselayer\d+\.(?:norm|conv))\.([12]\.)")  # as its layers were called up to 2017
_POSITIONS = "encoder.pos_embedding"


def load_pretrained_(network: Network, path: str | Path) -> tuple[str, ...]:
    """Load the weights of a file into a classifier.

    The file is any that `read_weights_file` reads: one of torchvision's, a checkpoint of this program, the
    `state_dict()` or the whole module of anybody's training of the same network. Vision transformers take weights of
    another image size, too; their position embeddings are then interpolated.

    Args:
        network: A `LayerGraph` with the head `Classify`, or a `TorchvisionNetwork`.
        path: The file.

    Returns:
        The names of the tensors that stayed fresh: the last layer's where the number of classes differs, else none.

    Raises:
        ConfigError: If the file cannot be read, holds no weights or such as do not fit.
    """
    return load_weights_(network, read_weights(Path(path)), where=f"pretrained = {str(path)!r}")


def fetch_pretrained_(network: Network) -> tuple[str, ...]:
    """Load the weights that torchvision offers for a network, or for the parts of it that are torchvision's.

    They are downloaded unless torch has them.

    Returns:
        The names of the tensors that stayed fresh.

    Raises:
        ConfigError: If nothing in it is torchvision's, or the weights cannot be had.
    """
    if isinstance(network, TorchvisionNetwork):
        return load_weights_(
            network, torchvision_weights(network.description["torchvision"]), where="pretrained = True"
        )
    if not backbone_names(network):
        raise ConfigError(
            "pretrained = True: there are weights for torchvision's networks only, such as model=resnet18 or "
            "model=det-resnet18; for another network name a file, pretrained=best.pt"
        )
    # All of them first: the network stays as it was where one cannot be had.
    fetched = {name: torchvision_weights(name) for name in backbone_names(network)}
    return load_backbone_(network, fetched, where="pretrained = True")


def backbone_names(network: Network) -> tuple[str, ...]:
    """The names in torchvision of the networks that parts of a graph of layers come from."""
    return tuple(dict.fromkeys(stage.name for _, stage in _stages(network)))


def load_backbone_(network: Network, weights: Mapping[str, Mapping[str, Tensor]], *, where: str) -> tuple[str, ...]:
    """Load weights of torchvision's networks into the parts that come from these; their heads are left out.

    Args:
        network: A graph of layers.
        weights: For each of its `backbone_names`, by torchvision's names.
        where: What they come from, for messages.

    Returns:
        The names of the tensors that stayed fresh: all of the other layers.

    Raises:
        ConfigError: If any tensor is missing or of another shape; the network is then as it was.
    """
    own, given = network.state_dict(), dict[str, Tensor]()
    for prefix, stage in _stages(network):
        theirs = _as_of_today(stage.name, weights[stage.name])
        given |= {f"{prefix}{name}": theirs[name] for name in stage.state_dict() if name in theirs}
    fresh = tuple(name for name in own if not name.startswith(tuple(prefix for prefix, _ in _stages(network))))
    _load_({name: tensor for name, tensor in own.items() if name not in fresh}, given, (), where)
    return fresh


def read_weights(path: Path) -> dict[str, Tensor]:
    """The named tensors of a file, on the CPU; runs no code from it.

    Raises:
        ConfigError: If it cannot be read, or holds no weights.
    """
    return dict(read_weights_file(path, where=f"pretrained = {str(path)!r}").tensors)


def load_weights_(network: Network, weights: Mapping[str, Tensor], *, where: str) -> tuple[str, ...]:
    """Load named tensors into a classifier, its last layer left fresh where the number of classes differs.

    Args:
        network: As for `load_pretrained_`.
        weights: By name.
        where: What they come from, for messages.

    Returns:
        The names of the tensors that stayed fresh.

    Raises:
        ConfigError: If they do not fit; the network is then as it was.
    """
    module = network.network if isinstance(network, TorchvisionNetwork) else network
    own = module.state_dict()
    given = adapted_weights(network, weights)
    fresh = _fresh(own, given, last_layer(module))
    _load_(own, given, fresh, where)
    return fresh


def _load_(own: Mapping[str, Tensor], given: Mapping[str, Tensor], fresh: tuple[str, ...], where: str) -> None:
    """Copy all but the `fresh` tensors, or raise ConfigError."""
    faults = _faults(own, given, fresh)
    if faults:
        raise ConfigError(f"{where}: the weights do not fit the network: {'; '.join(faults)}; name weights made for it")
    with torch.no_grad():
        for name, tensor in own.items():
            if name in given and name not in fresh:
                tensor.copy_(given[name])


def adapted_weights(network: Network, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights by the names that the network has for them today.

    Those of a `TorchvisionNetwork` are named as torchvision's own network names them. Where parts of a graph of layers
    come from a network of torchvision, its names become those of the parts.
    """
    given = dict(weights)
    for prefix in PREFIXES:
        if all(name.startswith(prefix) for name in given):
            given = {name.removeprefix(prefix): tensor for name, tensor in given.items()}
    if not isinstance(network, TorchvisionNetwork):
        return _in_stages(network, given)
    name, size = network.description["torchvision"], network.fixed_size
    if name in ("googlenet", "inception_v3"):
        given = {key: tensor for key, tensor in given.items() if not key.startswith(AUXILIARY)}
    given = _as_of_today(name, given)
    from torchvision.models.vision_transformer import interpolate_embeddings

    fixed = fixed_size_of(name)
    if _POSITIONS in given and fixed is not None and size is not None:
        with suppress(ValueError):  # not positions of a square image: they are told of as a tensor that does not fit
            given = dict(interpolate_embeddings(size, fixed.stride, given))
    return given


def _in_stages(network: Network, given: dict[str, Tensor]) -> dict[str, Tensor]:
    """`given`, renamed from torchvision's names to those of the parts; left alone where it has any name of ours."""
    if not set(given).isdisjoint(network.state_dict()):
        return given
    for prefix, stage in _stages(network):
        theirs = stage.state_dict()
        given = _as_of_today(stage.name, given)
        given = {f"{prefix}{name}" if name in theirs else name: tensor for name, tensor in given.items()}
    return given


def _stages(network: Network) -> Iterator[tuple[str, TorchvisionStage]]:
    """The parts that come from networks of torchvision, each with what stands before the names of its tensors."""
    for path, module in network.named_modules():
        if isinstance(module, TorchvisionStage):
            yield f"{path}.", module


def _as_of_today(name: str, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights of the network `name`, called as its tensors are today."""
    if name.startswith("densenet"):
        return {_DENSENET.sub(r"\1\2", key): tensor for key, tensor in given.items()}
    return dict(given)


def _fresh(own: Mapping[str, Tensor], given: Mapping[str, Tensor], last: str) -> tuple[str, ...]:
    """The names of the last layer's tensors if the weights have it for another number of classes; else none."""
    names = tuple(name for name in own if name.rpartition(".")[0] == last)
    is_of_others = all(name in given and given[name].shape[1:] == own[name].shape[1:] for name in names)
    return names if is_of_others and any(given[name].shape != own[name].shape for name in names) else ()


def _faults(own: Mapping[str, Tensor], given: Mapping[str, Tensor], fresh: tuple[str, ...]) -> list[str]:
    missing = [name for name in own if name not in given and not name.endswith(UNLEARNED)]
    unexpected = [name for name in given if name not in own]
    mismatching = [
        f"{name} {tuple(given[name].shape)} for {tuple(own[name].shape)}"
        for name in own
        if name in given and name not in fresh and given[name].shape != own[name].shape
    ]
    kinds = {"missing": missing, "unexpected": unexpected, "of another shape": mismatching}
    return [f"{len(names)} {kind} ({listed(names)})" for kind, names in kinds.items() if names]


def listed(names: list[str]) -> str:
    """The first few of them and how many more there are, for a message."""
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
