"""Whether a typed `model` can be one, told without loading torch.

That takes seconds, and all of the answer may be that a name is misspelled. What a network's own file or weights hold is
looked at by whoever reads them.
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

from visiontrain.errors import ConfigError
from visiontrain.models.description import (
    DETECTOR_PREFIX,
    YAML_SUFFIXES,
    backbone_of,
    load_description,
    nearest_names,
    network_names,
)

WEIGHTS_SUFFIXES = (".pt", ".pth", ".pkl", ".safetensors", ".onnx")
"""Of files that hold weights, alone or with their network."""
BEST = Path("weights", "best.pt")
"""Where a run keeps its best weights."""
_REGISTERED = re.compile(r"^@register_model\(\)\n(?:@.*\n)*def (\w+)\(", re.MULTILINE)


def check_model(model: str, *, key: str = "model") -> None:
    """Raise an error where `model` is no network's name, and no path either.

    Of a file's contents only those of a network's YAML are looked at.

    Args:
        model: What was typed.
        key: It was typed for.

    Raises:
        ConfigError: If there is no network of that name, or a YAML file describes none.
    """
    suffix = Path(model).suffix
    if suffix in YAML_SUFFIXES:
        load_description(model)
        return
    if suffix in WEIGHTS_SUFFIXES or model in network_names():
        return
    others = registered_names()
    is_on_other = model.startswith(DETECTOR_PREFIX) and model.removeprefix(DETECTOR_PREFIX) in others
    if not others or model in others or is_on_other:  # whether a detector can be on it is told with the reason later
        return
    best = Path(model) / BEST
    if is_file(best):
        raise ConfigError(f"{key} = {model!r}: is the folder of a run; name its weights, {key}={best}")
    detectors = (f"{DETECTOR_PREFIX}{name}" for name in others)
    known = (*network_names(), *others, *filter(backbone_of, detectors))
    hint = nearest_names(model.lower(), known, f"choose one of {', '.join(network_names())}, or one of torchvision's")
    raise ConfigError(
        f"{key} = {model!r}: is neither a network's name nor the path of a YAML file or of weights; {hint}"
    )


def is_file(path: Path) -> bool:
    """Whether a file lies there; of a place that may not be looked into, or that no path can name, none does."""
    try:
        return path.is_file()
    except OSError:
        return False


def registered_names() -> tuple[str, ...]:
    """The names of torchvision's classification networks, as its source says; none where that is written otherwise."""
    package = find_spec("torchvision")
    roots = (package.submodule_search_locations or ()) if package is not None else ()
    files = (path for root in roots for path in sorted((Path(root) / "models").glob("*.py")))
    return tuple(name for path in files for name in _REGISTERED.findall(path.read_text(encoding="utf-8")))
