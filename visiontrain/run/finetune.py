"""Training that begins with trained weights: `model=best.pt`, or `pretrained=` for a named network.

Weights are all that is taken over. Epochs, schedule and optimizer are those of a new run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from visiontrain.config.schema import Config
from visiontrain.engine.checkpoint import is_checkpoint, load_checkpoint
from visiontrain.errors import ConfigError
from visiontrain.loggers.tables import align
from visiontrain.models.network import Network
from visiontrain.models.norm import set_norm_
from visiontrain.models.offered import check_at_hand
from visiontrain.models.pretrained import fetch_pretrained_, listed, load_pretrained_, read_weights
from visiontrain.models.transfer import Shapes, Transfer, transfer_, whole_transfer
from visiontrain.protocols import Task
from visiontrain.run.prepare import fresh_network, is_weights_file

MUCH = 0.5
"""Part of the parameters that should come from the weights, or else a line asks whether they are the right ones."""


def check_start(config: Config) -> None:
    """Raises ConfigError for weights that are not at hand or keys that contradict them, before anything is read."""
    if not is_weights_file(config.model):
        _check_pretrained(config)
        return
    faults = []
    if config.pretrained:
        faults.append(
            f"pretrained = {config.pretrained}: model = {config.model} are weights already; leave one of them out"
        )
    if config.data is None:
        faults.append(
            f"data: is not given; name the data set to train {config.model} on (to go on with the run that made it, "
            "resume=FOLDER)"
        )
    if faults:
        raise ConfigError(faults)


def _check_pretrained(config: Config) -> None:
    """Raises ConfigError where `pretrained` names weights that are not there and cannot be fetched."""
    if config.pretrained is True:
        check_at_hand(config.model or "", hub=Path(torch.hub.get_dir()))
    elif config.pretrained and not Path(str(config.pretrained)).is_file():
        raise ConfigError(
            f"pretrained = {str(config.pretrained)!r}: there is no such file; name a file of weights, or type "
            "pretrained=True for those that torchvision offers"
        )


def starting_network(config: Config, task: Task, names: tuple[str, ...]) -> tuple[Network, Transfer | None]:
    """The network to train, for classes of these `names`, and what became of the weights it begins with, if any.

    What no weights are found for is a function of the seed; torch's random state is left alone.

    Raises:
        UserError: If weights cannot be read or do not fit.
    """
    if is_weights_file(config.model):
        path = Path(str(config.model))
        checkpoint = load_checkpoint(path)
        _check_norm(config, checkpoint, of_network=None, where=f"model = {str(path)!r}")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            network = task.network(_description(config, checkpoint), names)
        return network, _from_checkpoint(network, checkpoint, path)
    network = fresh_network(config, task, names)
    if not config.pretrained:
        return network, None
    if config.pretrained is True:
        fresh = fetch_pretrained_(network)
        return network, whole_transfer(network, "torchvision's weights", fresh=fresh)
    if config.is_typed("norm") and config.norm == "group":
        set_norm_(network, config.norm)  # before the weights come: they have no running statistics either
    path = Path(str(config.pretrained))
    where = f"pretrained = {str(path)!r}"
    if is_checkpoint(path):
        checkpoint = load_checkpoint(path)
        _check_norm(config, checkpoint, of_network=network, where=where)
        return network, _from_checkpoint(network, checkpoint, path)
    if task.name == "classify":
        return network, whole_transfer(network, str(path), fresh=load_pretrained_(network, path))
    return network, transfer_(network, read_weights(path), names=None, source=where)


def transfer_lines(transfer: Transfer) -> Iterator[str]:
    """What became of the weights, as a table and sentences on what is not as one would think."""
    share = transfer.num_matched / max(1, transfer.num_parameters)
    yield f"weights from {transfer.source}: {share:.1%} of the network's {transfer.num_parameters:,} numbers"
    rows = {
        "matched": transfer.matched,
        "class rows": transfer.by_class,
        "shape differs": tuple(f"{name} {_shapes(shapes)}" for name, shapes in transfer.reshaped.items()),
        "missing": transfer.missing,
        "unused": transfer.unused,
    }
    table = align([("", "tensors"), *((kind, str(len(members))) for kind, members in rows.items())])
    details = {kind: listed(list(rows[kind])) for kind in ("shape differs", "missing", "unused") if rows[kind]}
    for kind, line in zip(("", *rows), table.splitlines(), strict=True):
        yield f"  {line}" + (f"  {details[kind]}" if kind in details else "")
    classes = {"kept": transfer.kept, "new": transfer.new, "dropped": transfer.dropped}
    if any(classes.values()):
        yield "  classes: " + "; ".join(
            f"{len(names)} {kind}" + (f" ({listed(list(names))})" if names else "") for kind, names in classes.items()
        )
    if share < MUCH and (transfer.reshaped or transfer.unused):  # else all that there is was taken
        yield "  warning: that is less than half of it; are these weights of such a network?"


def _from_checkpoint(network: Network, checkpoint: Mapping[str, Any], path: Path) -> Transfer:
    """Copy the weights that were validated: the average, where the run kept one."""
    weights = checkpoint["ema"] or checkpoint["model"]
    return transfer_(network, weights, names=checkpoint["names"], source=str(path))


def _description(config: Config, checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """The network of the checkpoint, with what was typed of a classifier in place of its own."""
    description = dict(checkpoint["network"])
    if checkpoint["task"] == "classify":
        if config.dropout is not None:
            description["dropout"] = config.dropout
        if config.is_typed("multi_label"):
            description["multi_label"] = config.multi_label
        if "imgsz" in description:  # a network that is built for one size
            description["imgsz"] = config.imgsz
    return description


def with_kind_of_labels(config: Config) -> Config:
    """`config` with several labels for an image where the weights are for such, unless it was typed."""
    if config.task != "classify" or not is_weights_file(config.model) or config.is_typed("multi_label"):
        return config
    network = load_checkpoint(Path(str(config.model)))["network"]
    return config.decide(multi_label=bool(network.get("multi_label", False)))


def _check_norm(config: Config, checkpoint: Mapping[str, Any], *, of_network: Network | None, where: str) -> None:
    """Raises ConfigError where weights were trained with another kind of normalization than they would be used with."""
    stored = "group" if checkpoint["network"].get("norm") == "group" else "batch"
    own = stored if of_network is None else of_network.description.get("norm", "batch")
    wanted = config.norm if config.is_typed("norm") else own
    if (wanted == "group") != (stored == "group"):
        raise ConfigError(
            f"{where}: the weights are those of a network with norm = {stored}, and this one has norm = {wanted}; "
            + (f"type norm={stored}" if of_network is not None else "leave norm out")
        )


def _shapes(shapes: Shapes) -> str:
    given, own = shapes
    return f"{given} for {own}"
