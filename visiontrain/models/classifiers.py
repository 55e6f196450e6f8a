"""Classifiers by any name: our own, those of a YAML file, torchvision's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from visiontrain.errors import ConfigError
from visiontrain.models.build import build_network, described_task
from visiontrain.models.description import nearest_names, network_names
from visiontrain.models.detectors import check_name, torchvision_detectors
from visiontrain.models.network import Network
from visiontrain.models.torchvision_models import build_torchvision, torchvision_names

OWN = "cls-"


def build_classifier(
    spec: str | Path | Mapping[str, Any],
    names: Sequence[str],
    *,
    imgsz: int | None = None,
    dropout: float | None = None,
    multi_label: bool | None = None,
) -> Network:
    """Make a classification network with fresh weights.

    Args:
        spec: A name such as `cls-n` or `resnet18`, the path of a YAML file, or a `Network.description`.
        names: Class names by index.
        imgsz: The image size that it will see, pixels: it is checked, and vision transformers are built for it. None
            takes what `spec` says.
        dropout: Before the last layer; None takes what `spec` says, or the network's own.
        multi_label: Whether an image may be of several classes; None takes what `spec` says, or not.

    Raises:
        ConfigError: If there is no such network, it is for another task, or does not take such images.
    """
    is_torchvision = "torchvision" in spec if isinstance(spec, Mapping) else _is_torchvisions(str(spec))
    network: Network
    if is_torchvision:
        name = spec if isinstance(spec, Mapping) else str(spec)
        network = build_torchvision(name, names, imgsz=imgsz, dropout=dropout, multi_label=multi_label)
    else:
        _check_name(spec)
        network = build_network(spec, names, dropout=dropout, multi_label=multi_label)
    if network.task != "classify":
        raise ConfigError(
            f"model = {str(spec)!r}: is a network for {network.task!r}; name a classifier such as cls-n or resnet18"
        )
    if imgsz is not None:
        network.check_size(imgsz)
    return network


def classifier_names() -> tuple[str, ...]:
    """The names of all classification networks, our own first."""
    return (*(name for name in network_names() if name.startswith(OWN)), *torchvision_names())


def task_of_network(spec: str) -> str:
    """What a network is for: `detect` or `classify`.

    Args:
        spec: Its name, or the path of a YAML file.

    Raises:
        ConfigError: If there is no such network.
    """
    check_name(spec)
    if spec in network_names():
        return described_task(spec)
    if spec in torchvision_names():
        return "classify"
    if spec in torchvision_detectors():
        return "detect"
    if Path(spec).suffix not in {".yaml", ".yml"}:
        known = (*network_names(), *torchvision_names())
        hint = nearest_names(spec, known, f"choose one of {', '.join(network_names())}, or one of torchvision's")
        raise ConfigError(f"model = {spec!r}: is neither a network's name nor a YAML file's path; {hint}")
    return described_task(spec)


def _is_torchvisions(name: str) -> bool:
    # Ours are asked first: to ask torchvision is to import it, which takes seconds and 150 MB.
    return name not in network_names() and name in torchvision_names()


def _check_name(spec: str | Path | Mapping[str, Any]) -> None:
    """Raises ConfigError for a name that is neither a network's nor a file's."""
    if isinstance(spec, Mapping) or Path(spec).suffix in {".yaml", ".yml"}:
        return
    if spec in network_names() or spec in torchvision_detectors():
        if not str(spec).startswith(OWN):
            raise ConfigError(f"model = {spec!r}: is no classifier; name one such as cls-n or resnet18")
        return
    hint = nearest_names(str(spec), classifier_names(), "choose cls-n to cls-x or a name of torchvision's")
    raise ConfigError(f"model = {str(spec)!r}: is neither a classifier's name nor a YAML file's path; {hint}")
