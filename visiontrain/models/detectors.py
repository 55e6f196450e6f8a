"""Detectors by any name: our own, those of a YAML file, and our neck and head on a network of torchvision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from visiontrain.errors import ConfigError
from visiontrain.models.build import build_network
from visiontrain.models.description import DETECTOR_PREFIX, backbone_of, nearest_names, network_names
from visiontrain.models.network import LayerGraph
from visiontrain.models.torchvision_models import normalization_of, torchvision_names
from visiontrain.models.torchvision_stages import links_of

NECKS = {"n": 8_000_000, "s": 30_000_000}
"""Scales of the neck for backbones of fewer parameters than this; the next one, m, is for all others."""
LARGEST_NECK = "m"
PLACEHOLDER = "NAME"


def build_detector(spec: str | Path | Mapping[str, Any], names: Sequence[str]) -> LayerGraph:
    """Make a detection network with fresh weights.

    Args:
        spec: A name such as `det-n` or `det-resnet18`, the path of a YAML file, or a `Network.description`.
        names: Class names by index.

    Raises:
        ConfigError: If there is no such network, or it is for another task.
    """
    if isinstance(spec, str):
        check_name(spec)
        if spec not in network_names() and spec in torchvision_detectors():
            spec = describe(spec.removeprefix(DETECTOR_PREFIX))
    network = build_network(spec, names)
    if network.task != "detect":
        raise ConfigError(f"model = {str(spec)!r}: is a network for {network.task!r}; name a detector such as det-n")
    return network


def torchvision_detectors() -> tuple[str, ...]:
    """The names of all detectors on networks of torchvision, such as `det-resnet18`."""
    named = (f"{DETECTOR_PREFIX}{name}" for name in torchvision_names())
    return tuple(name for name in named if backbone_of(name))


def describe(backbone: str) -> dict[str, Any]:
    """The description of the detector on a network of torchvision, which `build_network` makes it from.

    Images are normalized as the weights that torchvision offers for it expect them, whether these are loaded or not.

    Args:
        backbone: The network's name in torchvision.
    """
    file = files("visiontrain.cfg") / "models" / "torchvision" / "det.yaml"
    template = yaml.safe_load(file.read_text(encoding="utf-8"))
    mean, std = normalization_of(backbone)
    parameters = sum(link.parameters for link in links_of(backbone))
    return {
        **template,
        "scale": next((scale for scale, most in NECKS.items() if parameters < most), LARGEST_NECK),
        "normalize": {"mean": list(mean), "std": list(std)},
        "layers": [
            [*row[:3], [backbone if argument == PLACEHOLDER else argument for argument in row[3]]]
            for row in template["layers"]
        ],
    }


def check_name(spec: str) -> None:
    """Raises ConfigError for a name that begins like a detector's and is that of none."""
    is_file = Path(spec).suffix in {".yaml", ".yml"}
    if not spec.startswith(DETECTOR_PREFIX) or is_file or spec in network_names():
        return
    known = (*(name for name in network_names() if name.startswith(DETECTOR_PREFIX)), *torchvision_detectors())
    if spec in known:
        return
    backbone = spec.removeprefix(DETECTOR_PREFIX)
    if backbone in torchvision_names():
        raise ConfigError(
            f"model = {spec!r}: the features of {backbone} do not come as maps of strides 4, 8, 16 and 32; choose "
            "another network of torchvision's, such as det-resnet18"
        )
    hint = nearest_names(spec, known, "choose det-n to det-x, or one such as det-resnet18")
    raise ConfigError(f"model = {spec!r}: is neither a detector's name nor a YAML file's path; {hint}")
