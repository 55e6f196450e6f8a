"""Weights that others have trained, into a classifier whose classes are one's own.

A file is read by torch's safe loader: tensors and plain values, no code. All tensors must fit, but for those of the
last layer, which stay fresh where the number of classes differs.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any

import torch
import torchvision
from torch import Tensor
from torchvision.models.vision_transformer import interpolate_embeddings

from visiontrain.errors import ConfigError
from visiontrain.models.network import Network
from visiontrain.models.torchvision_models import TorchvisionNetwork, fixed_size_of, last_layer

WRAPPING_KEYS = ("ema", "model", "state_dict", "model_state_dict")
"""Under which a file may hold its weights, the best ones first; also more than one deep."""
PREFIXES = ("module.", "network.")
"""Put before all names by DistributedDataParallel, and by our checkpoints of torchvision's networks."""
AUXILIARY = ("aux1.", "aux2.", "AuxLogits.")
"""Outputs of GoogLeNet and Inception that only helped their training; ours are built without."""
DAMAGED = (pickle.UnpicklingError, EOFError, ValueError, KeyError)
"""What torch's safe loader makes of files that are no weights, besides RuntimeError."""
MOST_NAMED = 5
_DENSENET = re.compile(r"(denselayer\d+\.(?:norm|conv))\.([12]\.)")  # as its layers were called up to 2017
_POSITIONS = "encoder.pos_embedding"


def load_pretrained_(network: Network, path: str | Path) -> tuple[str, ...]:
    """Load the weights of a file into a classifier.

    The file holds named tensors, plain or under one of `WRAPPING_KEYS`: a file of torchvision's, a checkpoint of this
    program, the `state_dict()` of anybody's training of the same network. Vision transformers take weights of another
    image size, too; their position embeddings are then interpolated.

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
    """Load the weights that torchvision offers for a network into it; they are downloaded unless torch has them.

    Returns:
        The names of the tensors that stayed fresh.

    Raises:
        ConfigError: If it is no network of torchvision's, or the weights cannot be had.
    """
    if not isinstance(network, TorchvisionNetwork):
        raise ConfigError(
            "pretrained = True: there are weights for torchvision's networks only, such as model=resnet18; for another "
            "network name a file, pretrained=best.pt"
        )
    name = network.description["torchvision"]
    weights = torchvision.models.get_model_weights(name).DEFAULT
    try:
        state = weights.get_state_dict(progress=True, check_hash=True, map_location="cpu", weights_only=True)
    except (OSError, HTTPException, RuntimeError, *DAMAGED) as error:  # RuntimeError: a digest that does not fit
        raise ConfigError(
            f"pretrained = True: the weights of {name} could not be fetched ({_first_line(error)}); download "
            f"{weights.url} on another machine and give pretrained=file.pth"
        ) from error
    return load_weights_(network, state, where="pretrained = True")


def read_weights(path: Path) -> dict[str, Tensor]:
    """The named tensors of a file, on the CPU; runs no code from it.

    Raises:
        ConfigError: If it cannot be read, or holds something else.
    """
    where = f"pretrained = {str(path)!r}"
    try:
        found: Any = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise ConfigError(f"{where}: cannot be read ({error.strerror}); name a file of weights") from error
    except (RuntimeError, *DAMAGED) as error:
        raise ConfigError(
            f"{where}: is not a file of tensors and plain values ({_first_line(error)}); files that carry code are "
            "refused: save the state_dict() of the network instead"
        ) from error
    while isinstance(found, Mapping):
        inner = next((found[key] for key in WRAPPING_KEYS if isinstance(found.get(key), Mapping)), None)
        if inner is None:
            break
        found = inner
    if not isinstance(found, Mapping) or not found or not all(isinstance(value, Tensor) for value in found.values()):
        raise ConfigError(
            f"{where}: holds no weights; they should be named tensors, plain or under {', '.join(WRAPPING_KEYS)}"
        )
    return {str(name): tensor for name, tensor in found.items()}


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
    given = _adapted(network, weights)
    fresh = _fresh(own, given, last_layer(module))
    faults = _faults(own, given, fresh)
    if faults:
        raise ConfigError(f"{where}: the weights do not fit the network: {'; '.join(faults)}; name weights made for it")
    with torch.no_grad():
        for name, tensor in own.items():
            if name in given and name not in fresh:
                tensor.copy_(given[name])
    return fresh


def _adapted(network: Network, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights by the names that the network has for them today."""
    given = dict(weights)
    for prefix in PREFIXES:
        if all(name.startswith(prefix) for name in given):
            given = {name.removeprefix(prefix): tensor for name, tensor in given.items()}
    if not isinstance(network, TorchvisionNetwork):
        return given
    name, size = network.description["torchvision"], network.fixed_size
    if name in ("googlenet", "inception_v3"):
        given = {key: tensor for key, tensor in given.items() if not key.startswith(AUXILIARY)}
    if name.startswith("densenet"):
        given = {_DENSENET.sub(r"\1\2", key): tensor for key, tensor in given.items()}
    fixed = fixed_size_of(name)
    if _POSITIONS in given and fixed is not None and size is not None:
        with suppress(ValueError):  # not positions of a square image: they are told of as a tensor that does not fit
            given = dict(interpolate_embeddings(size, fixed.stride, given))
    return given


def _fresh(own: Mapping[str, Tensor], given: Mapping[str, Tensor], last: str) -> tuple[str, ...]:
    """The names of the last layer's tensors if the weights have it for another number of classes; else none."""
    names = tuple(name for name in own if name.rpartition(".")[0] == last)
    is_of_others = all(name in given and given[name].shape[1:] == own[name].shape[1:] for name in names)
    return names if is_of_others and any(given[name].shape != own[name].shape for name in names) else ()


def _faults(own: Mapping[str, Tensor], given: Mapping[str, Tensor], fresh: tuple[str, ...]) -> list[str]:
    # Counts of batches are missing in old files, and matter only to averages without momentum.
    missing = [name for name in own if name not in given and not name.endswith("num_batches_tracked")]
    unexpected = [name for name in given if name not in own]
    mismatching = [
        f"{name} {tuple(given[name].shape)} for {tuple(own[name].shape)}"
        for name in own
        if name in given and name not in fresh and given[name].shape != own[name].shape
    ]
    kinds = {"missing": missing, "unexpected": unexpected, "of another shape": mismatching}
    return [f"{len(names)} {kind} ({_listed(names)})" for kind, names in kinds.items() if names]


def _listed(names: list[str]) -> str:
    return ", ".join(names[:MOST_NAMED]) + (", …" if len(names) > MOST_NAMED else "")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
