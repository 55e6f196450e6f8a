"""Descriptions of networks: the bundled files and their names, files of one's own, and the keys that all may have.

A description is a mapping of plain values, from which a network is made. It is named `<file>-<scale>` after a file of
the bundled `models` folder (`det-n`), or by the path of a YAML file of one's own, whose scale is its key `scale` or
else the first of its `scales`. See `cfg/models/det.yaml` for the form.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from visiontrain.errors import ConfigError

# Channels are rounded to what vector units like.
CHANNEL_MULTIPLE = 8
IMAGE_CHANNELS = 3
DESCRIPTION_KEYS = ("task", "scales", "scale", "norm", "normalize", "dropout", "multi_label", "layers")
"""Of a graph of layers."""
DETECTOR_PREFIX = "det-"
BACKBONES = (
    *("convnext", "densenet", "efficientnet", "mnasnet", "mobilenet", "regnet", "resne", "shufflenet", "vgg"),
    "wide_resnet",
)
"""How names of torchvision's networks begin that detectors can be on."""
MOST_NEAR = 3
CLASSIFIER_KEYS = ("dropout", "multi_label")
"""Those that only a classifier has."""
STRUCTURAL_NORMS = ("batch", "group")
"""The kinds of normalization that shape a network; the others are how BatchNorm is trained."""
YAML_SUFFIXES = (".yaml", ".yml")
SETTINGS_OF_RUNS = ("data", "epochs", "batch", "nbs", "imgsz", "lr0")
"""Keys by which a cfg file is told from a network's, where there are two of them."""


@dataclass(frozen=True)
class Scale:
    """How large a network is, relative to the numbers in its file."""

    depth: float = 1.0
    width: float = 1.0
    max_channels: int = 1 << 20

    def channels(self, channels: int) -> int:
        return max(1, round(min(channels, self.max_channels) * self.width / CHANNEL_MULTIPLE)) * CHANNEL_MULTIPLE

    def repeats(self, repeats: int) -> int:
        return max(1, math.ceil(repeats * self.depth - 0.5))  # halves round down: small scales stay small


def load_description(spec: str | Path | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Where a description comes from, for messages, and the description, with its scale chosen.

    Raises:
        ConfigError: If there is none of that name, or what it holds is not understood.
    """
    if isinstance(spec, Mapping):
        return "network description", checked_description("network description", spec)
    if Path(spec).suffix in YAML_SUFFIXES:
        parsed = _parse(str(spec), _read_text(Path(spec)))
        _check_is_network(Path(spec), parsed)
        return str(spec), checked_description(str(spec), parsed)
    known = network_names()
    if spec not in known:
        hint = nearest_names(str(spec), known, f"choose one of {', '.join(known)}")
        raise ConfigError(f"model = {str(spec)!r}: is neither a network's name nor a YAML file's path; {hint}")
    stem, _, scale = str(spec).rpartition("-")
    return str(spec), checked_description(str(spec), {**_parse(str(spec), _bundled()[stem]), "scale": scale})


def network_names() -> tuple[str, ...]:
    """Names of the bundled networks at every scale, such as `det-n`."""
    return tuple(f"{stem}-{scale}" for stem, text in _bundled().items() for scale in yaml.safe_load(text)["scales"])


def nearest_names(name: str, known: Iterable[str], otherwise: str) -> str:
    """What to tell whoever typed a name that is none: those most like it, or `otherwise`."""
    near = difflib.get_close_matches(name, known, n=MOST_NEAR, cutoff=0.5)
    if len(near) > 1:
        return f"the nearest are {', '.join(near[:-1])} and {near[-1]}"
    return f"the nearest is {near[0]}" if near else otherwise


def backbone_of(model: str) -> str | None:
    """The network of torchvision that a detector like `det-resnet18` would be on, if there is one of that name.

    Only families are known here whose features come as maps of strides 4, 8, 16 and 32.
    """
    backbone = model.removeprefix(DETECTOR_PREFIX)
    return backbone if backbone != model and backbone.startswith(BACKBONES) else None


def checked_description(
    where: str, description: Mapping[str, Any], known: Sequence[str] = DESCRIPTION_KEYS
) -> dict[str, Any]:
    """A copy of a description whose keys are among those `known`, and whose values are such as all networks may have.

    Raises:
        ConfigError: If a key or a value is something else.
    """
    unknown = [str(key) for key in description if key not in known]
    if unknown:
        raise ConfigError([f"{where}: unknown key {key!r}; known are {', '.join(known)}" for key in unknown])
    norm = description.get("norm", "batch")
    if norm not in STRUCTURAL_NORMS:
        raise ConfigError(
            f"{where}: norm is {norm!r}; it should be {' or '.join(STRUCTURAL_NORMS)} (frozen and sync are ways to "
            "train BatchNorm: give them as norm= of a run)"
        )
    if "normalize" in description:
        _check_normalize(where, description["normalize"])
    _check_classifier_keys(where, description)
    return dict(description)


def scale_of(where: str, description: Mapping[str, Any]) -> Scale:
    """The scale in use; a description that does not choose one takes its first."""
    scales = description.get("scales") or {}
    if not isinstance(scales, Mapping):
        raise ConfigError(f"{where}: scales is {scales!r}; it should give each name its [depth, width, max_channels]")
    chosen = description.get("scale", next(iter(scales), None))
    if chosen is None:
        return Scale()
    if chosen not in list(scales):  # what is chosen may be anything, such as a list, which is no key
        raise ConfigError(f"{where}: scale is {chosen!r}; the key scales has {', '.join(map(str, scales)) or 'none'}")
    numbers = scales[chosen]
    if not isinstance(numbers, Sequence) or len(numbers) != 3 or not all(_is_positive(number) for number in numbers):
        raise ConfigError(f"{where}: scale {chosen} is {numbers!r}; it should be [depth, width, max_channels], above 0")
    return Scale(float(numbers[0]), float(numbers[1]), int(numbers[2]))


def _bundled() -> dict[str, str]:
    """The text of each bundled file, by its name without suffix."""
    folder = files("visiontrain.cfg") / "models"
    found = sorted((file for file in folder.iterdir() if file.name.endswith(".yaml")), key=lambda file: file.name)
    return {file.name.removesuffix(".yaml"): file.read_text(encoding="utf-8") for file in found}


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        known = ", ".join(network_names())
        raise ConfigError(
            f"model = {str(path)!r}: the file cannot be read ({error}); give the path of a network's YAML file, "
            f"or one of {known}"
        ) from error


def _parse(where: str, text: str) -> Mapping[str, Any]:
    try:
        parsed = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{where}: not YAML ({' '.join(str(error).split())}); mend the file") from error
    if not isinstance(parsed, Mapping):
        raise ConfigError(f"{where}: holds a {type(parsed).__name__}; it should be a mapping with the key layers")
    return parsed


def _check_is_network(path: Path, parsed: Mapping[str, Any]) -> None:
    """Raises ConfigError for another kind of file that users have at hand: a run's settings, a data set."""
    if "layers" in parsed:
        return
    where = f"model = {str(path)!r}"
    if sum(key in parsed for key in SETTINGS_OF_RUNS) > 1:
        best = path.parent / "weights" / "best.pt"
        weights = best if best.is_file() else Path("RUN", "weights", "best.pt")
        raise ConfigError(
            f"{where}: holds the settings of a run, not a network; type cfg={path} to use these settings, or "
            f"model={weights} to use what a run has trained"
        )
    if "names" in parsed and ("train" in parsed or "val" in parsed):
        raise ConfigError(f"{where}: describes a data set, not a network; type data={path} and name a network as model")


def _check_normalize(where: str, value: Any) -> None:
    """Raises ConfigError unless `value` has a mean and a standard deviation for each channel."""
    is_complete = isinstance(value, Mapping) and set(value) == {"mean", "std"}
    rows = [value["mean"], value["std"]] if is_complete else []
    is_good = is_complete and all(isinstance(row, Sequence) and len(row) == IMAGE_CHANNELS for row in rows)
    if not is_good or not all(map(_is_positive, [*rows[1], *(number for number in rows[0] if number != 0)])):
        raise ConfigError(
            f"{where}: normalize is {value!r}; it should be mean: and std: of images in [0, 1], each with "
            f"{IMAGE_CHANNELS} numbers from 0 on, red first, and std above 0"
        )


def _check_classifier_keys(where: str, description: Mapping[str, Any]) -> None:
    """Raises ConfigError where a classifier's dropout or kind of labels is none."""
    dropout, multi_label = description.get("dropout", 0.0), description.get("multi_label", False)
    if not (dropout == 0 or (_is_positive(dropout) and dropout < 1)) or isinstance(dropout, bool):
        raise ConfigError(f"{where}: dropout is {dropout!r}; it should be a number from 0 to below 1")
    if not isinstance(multi_label, bool):
        raise ConfigError(f"{where}: multi_label is {multi_label!r}; it should be true or false")


def _is_positive(number: Any) -> bool:
    return isinstance(number, (int, float)) and not isinstance(number, bool) and 0 < number < math.inf
