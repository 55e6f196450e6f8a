"""Networks from YAML: rows of `[from, repeats, layer, arguments]`, scaled in depth and width.

A network is named `<file>-<scale>` after a file of the bundled `models` folder (`det-n`), or by the path of a YAML file
of one's own, whose scale is its key `scale` or else the first of its `scales`. See `cfg/models/det.yaml` for the form.
"""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from torch import nn

from visiontrain.errors import ConfigError
from visiontrain.models.blocks import CSPStage, PyramidPool
from visiontrain.models.heads import DEFAULT_BINS, HIDDEN_CHANNELS, Classify, Detect
from visiontrain.models.layers import Concat, ConvNorm, Upsample
from visiontrain.models.network import PREVIOUS, LayerGraph
from visiontrain.models.norm import set_norm_
from visiontrain.models.torchvision_stages import Remains, channels_at, take_stage

# Channels are rounded to what vector units like.
CHANNEL_MULTIPLE = 8
IMAGE_CHANNELS = 3
DESCRIPTION_KEYS = ("task", "scales", "scale", "norm", "normalize", "dropout", "multi_label", "layers")
CLASSIFIER_KEYS = ("dropout", "multi_label")
"""Those of them that only a classifier has."""
STRUCTURAL_NORMS = ("batch", "group")
"""The kinds of normalization that shape a network; the others are how BatchNorm is trained."""


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


@dataclass(frozen=True)
class Site:
    """Where a layer is put: what reaches it and how large it may be."""

    channels: tuple[int, ...]
    """Of each source."""
    strides: tuple[int, ...]
    """Of each source, pixels of the input."""
    scale: Scale
    repeats: int
    """Scaled already."""
    num_classes: int
    dropout: float = 0.0
    """Of the classifier's last features."""
    remains: Remains = field(default_factory=dict)
    """What rows before have left of networks of torchvision."""

    def one_source(self) -> tuple[int, int]:
        """Channels and stride where exactly one map is read."""
        if len(self.channels) != 1:
            raise ValueError(f"reads {len(self.channels)} layers; it takes one")
        return self.channels[0], self.strides[0]


@dataclass(frozen=True)
class Built:
    """A layer in its place."""

    module: nn.Module
    channels: int
    stride: int


def _conv(site: Site, channels: int, kernel: int = 3, stride: int = 1) -> Built:
    in_channels, in_stride = site.one_source()
    out_channels = site.scale.channels(channels)
    return Built(ConvNorm(in_channels, out_channels, kernel, stride), out_channels, in_stride * stride)


def _csp_stage(site: Site, channels: int, shortcut: bool = False) -> Built:
    in_channels, stride = site.one_source()
    out_channels = site.scale.channels(channels)
    return Built(CSPStage(in_channels, out_channels, depth=site.repeats, shortcut=shortcut), out_channels, stride)


def _pyramid_pool(site: Site, channels: int, kernel: int = 5) -> Built:
    in_channels, stride = site.one_source()
    out_channels = site.scale.channels(channels)
    return Built(PyramidPool(in_channels, out_channels, kernel), out_channels, stride)


def _upsample(site: Site) -> Built:
    channels, stride = site.one_source()
    if stride % 2:
        raise ValueError(f"would double a map of stride {stride}; only an even stride can be halved")
    return Built(Upsample(channels), channels, stride // 2)


def _concat(site: Site) -> Built:
    if len(set(site.strides)) != 1:
        raise ValueError(f"joins maps of strides {', '.join(map(str, site.strides))}; they must be equal")
    return Built(Concat(*site.channels), sum(site.channels), site.strides[0])


def _torchvision(site: Site, name: str, stride: int) -> Built:
    in_channels, in_stride = site.one_source()
    stage = take_stage(name, after=in_stride, stride=stride, remains=site.remains)
    expected = channels_at(name, in_stride)
    if in_channels != expected:
        raise ValueError(f"reads {in_channels} channels; from stride {in_stride} on {name} reads {expected}")
    return Built(stage, channels_at(name, stride), stride)


def _detect(site: Site, num_bins: int = DEFAULT_BINS) -> Built:
    if num_bins < 2:
        raise ValueError(f"has {num_bins} bins; a distance needs at least 2")
    return Built(Detect(site.channels, site.strides, site.num_classes, num_bins), 0, 0)


def _classify(site: Site, hidden_channels: int = HIDDEN_CHANNELS) -> Built:
    in_channels, _ = site.one_source()
    return Built(Classify(in_channels, site.num_classes, hidden_channels, dropout=site.dropout), 0, 0)


@dataclass(frozen=True)
class Layer:
    """An entry of `LAYERS`."""

    build: Callable[..., Built]
    """From the site and the row's arguments; a ValueError tells what is wrong with the row."""
    takes_repeats: bool = False
    task: str = ""
    """Of a head: what it is for."""

    @property
    def is_head(self) -> bool:
        return bool(self.task)


LAYERS: Mapping[str, Layer] = {
    "Conv": Layer(_conv),
    "CSPStage": Layer(_csp_stage, takes_repeats=True),
    "PyramidPool": Layer(_pyramid_pool),
    "Upsample": Layer(_upsample),
    "Concat": Layer(_concat),
    "Torchvision": Layer(_torchvision),
    "Detect": Layer(_detect, task=Detect.task),
    "Classify": Layer(_classify, task=Classify.task),
}


@dataclass(frozen=True)
class Row:
    """A row of the file, its sources made absolute (-1: the images)."""

    sources: tuple[int, ...]
    repeats: int
    name: str
    arguments: tuple[Any, ...]


def build_network(
    spec: str | Path | Mapping[str, Any],
    names: Sequence[str],
    *,
    dropout: float | None = None,
    multi_label: bool | None = None,
) -> LayerGraph:
    """Make a network with fresh weights.

    Args:
        spec: A name such as `det-n`, the path of a YAML file, or a `Network.description`.
        names: Class names by index.
        dropout: Of a classifier, in place of what `spec` says.
        multi_label: Of a classifier, in place of what `spec` says.

    Raises:
        ConfigError: If there is no such network or its rows do not fit together.
    """
    if not names:
        raise ConfigError("names: there are no class names; a network needs at least one")
    where, description = _load(spec)
    chosen = {"dropout": dropout, "multi_label": multi_label}
    description = _checked(where, {**description, **{key: value for key, value in chosen.items() if value is not None}})
    scale = _scale_of(where, description)
    rows = _read_rows(where, description.get("layers"))
    built = {PREVIOUS: Built(nn.Identity(), IMAGE_CHANNELS, 1)}
    remains: Remains = {}
    for index, row in enumerate(rows):
        place = f"{where}: layer {index} ({row.name})"
        built[index] = _build_row(place, row, built, scale, len(names), description.get("dropout", 0.0), remains)
    head = built[len(rows) - 1].module
    task = description.get("task", head.task)
    if task != head.task:
        raise ConfigError(
            f"{where}: task is {task!r}; the head {rows[-1].name} is for {head.task!r}, so change one of them"
        )
    faults = [
        f"{where}: {key} belongs to a classifier, and the head {rows[-1].name} is for {task!r}; leave it out"
        for key in CLASSIFIER_KEYS
        if key in description and task != Classify.task
    ]
    if faults:
        raise ConfigError(faults)
    network = LayerGraph(
        [built[index].module for index in range(len(rows))],
        [row.sources for row in rows],
        task=task,
        names=names,
        strides=[built[source].stride for source in rows[-1].sources],
        description=description,
    )
    if "norm" in description:
        set_norm_(network, description["norm"])
    return network


def described_task(spec: str | Path | Mapping[str, Any]) -> str:
    """What a network is for: the task of its head.

    Raises:
        ConfigError: If there is no such network, or its rows are not understood.
    """
    where, description = _load(spec)
    head = _read_rows(where, description.get("layers"))[-1].name
    return LAYERS[head].task


def network_names() -> tuple[str, ...]:
    """Names of the bundled networks at every scale, such as `det-n`."""
    return tuple(f"{stem}-{scale}" for stem, text in _bundled().items() for scale in yaml.safe_load(text)["scales"])


def _bundled() -> dict[str, str]:
    """The text of each bundled file, by its name without suffix."""
    folder = files("visiontrain.cfg") / "models"
    found = sorted((file for file in folder.iterdir() if file.name.endswith(".yaml")), key=lambda file: file.name)
    return {file.name.removesuffix(".yaml"): file.read_text(encoding="utf-8") for file in found}


def _load(spec: str | Path | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Where a description comes from, for messages, and the description, with its scale chosen."""
    if isinstance(spec, Mapping):
        return "network description", _checked("network description", spec)
    if Path(spec).suffix in {".yaml", ".yml"}:
        return str(spec), _checked(str(spec), _parse(str(spec), _read_text(Path(spec))))
    known = network_names()
    if spec not in known:
        near = difflib.get_close_matches(str(spec), known, n=2, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"choose one of {', '.join(known)}"
        raise ConfigError(
            f"model = {str(spec)!r}: there is no network of that name; {hint}; or give a YAML file's path"
        )
    stem, _, scale = str(spec).rpartition("-")
    return str(spec), _checked(str(spec), {**_parse(str(spec), _bundled()[stem]), "scale": scale})


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


def _checked(where: str, description: Mapping[str, Any]) -> dict[str, Any]:
    unknown = [str(key) for key in description if key not in DESCRIPTION_KEYS]
    if unknown:
        raise ConfigError([f"{where}: unknown key {key!r}; known are {', '.join(DESCRIPTION_KEYS)}" for key in unknown])
    norm = description.get("norm", "batch")
    if norm not in STRUCTURAL_NORMS:
        raise ConfigError(
            f"{where}: norm is {norm!r}; it should be {' or '.join(STRUCTURAL_NORMS)} (frozen and sync are ways to "
            "train BatchNorm: give them as norm= of a run)"
        )
    if "normalize" in description:
        _check_normalize(where, description["normalize"])
    check_classifier_keys(where, description)
    return dict(description)


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


def check_classifier_keys(where: str, description: Mapping[str, Any]) -> None:
    """Raises ConfigError where a classifier's dropout or kind of labels is none."""
    dropout, multi_label = description.get("dropout", 0.0), description.get("multi_label", False)
    if not (dropout == 0 or (_is_positive(dropout) and dropout < 1)) or isinstance(dropout, bool):
        raise ConfigError(f"{where}: dropout is {dropout!r}; it should be a number from 0 to below 1")
    if not isinstance(multi_label, bool):
        raise ConfigError(f"{where}: multi_label is {multi_label!r}; it should be true or false")


def _scale_of(where: str, description: Mapping[str, Any]) -> Scale:
    """The scale in use; a description that does not choose one takes its first."""
    scales = description.get("scales") or {}
    chosen = description.get("scale", next(iter(scales), None))
    if chosen is None:
        return Scale()
    if not isinstance(scales, Mapping) or chosen not in scales:
        raise ConfigError(f"{where}: scale is {chosen!r}; the key scales has {', '.join(map(str, scales)) or 'none'}")
    numbers = scales[chosen]
    if not isinstance(numbers, Sequence) or len(numbers) != 3 or not all(_is_positive(number) for number in numbers):
        raise ConfigError(f"{where}: scale {chosen} is {numbers!r}; it should be [depth, width, max_channels], above 0")
    return Scale(float(numbers[0]), float(numbers[1]), int(numbers[2]))


def _is_positive(number: Any) -> bool:
    return isinstance(number, (int, float)) and not isinstance(number, bool) and 0 < number < math.inf


def _read_rows(where: str, raw: Any) -> list[Row]:
    if not isinstance(raw, Sequence) or isinstance(raw, str) or not raw:
        raise ConfigError(f"{where}: layers is {raw!r}; it should be a list of [from, repeats, layer, arguments]")
    rows, faults = [], []
    for index, item in enumerate(raw):
        try:
            rows.append(_read_row(index, item, is_last=index == len(raw) - 1))
        except ValueError as error:
            faults.append(f"{where}: layer {index} {error}")
    if faults:
        raise ConfigError(faults)
    return rows


def _read_row(index: int, item: Any, *, is_last: bool) -> Row:
    """One row. Raises ValueError with the rest of the sentence that starts with the row's place."""
    if not isinstance(item, Sequence) or isinstance(item, str) or len(item) != 4:
        raise ValueError(f"is {item!r}; it should be [from, repeats, layer, arguments]")
    read, repeats, name, arguments = item
    if name not in LAYERS:
        near = difflib.get_close_matches(str(name), LAYERS, n=1)
        raise ValueError(
            f"is of unknown kind {name!r}; " + (f"nearest is {near[0]}" if near else f"known: {', '.join(LAYERS)}")
        )
    if LAYERS[name].is_head != is_last:
        raise ValueError(f"is {name}; the last layer, and only that, is a head")
    if not isinstance(repeats, int) or isinstance(repeats, bool) or repeats < 1:
        raise ValueError(f"repeats {repeats!r} times; it should be a positive integer")
    if repeats > 1 and not LAYERS[name].takes_repeats:
        raise ValueError(f"repeats {repeats} times; {name} stands once: write 1, or more rows")
    if not isinstance(arguments, Sequence) or isinstance(arguments, str):
        raise ValueError(f"has arguments {arguments!r}; they should be a list")
    sources = tuple(_absolute(source, index) for source in (read if isinstance(read, Sequence) else [read]))
    if not sources:
        raise ValueError("reads nothing; name the layers it reads")
    return Row(sources, repeats, name, tuple(arguments))


def _absolute(source: Any, index: int) -> int:
    """A row number as is, a negative one counted back from row `index`; the images stand before row 0."""
    if not isinstance(source, int) or isinstance(source, bool) or not -index - 1 <= source < index:
        raise ValueError(f"reads {source!r}; it should be a layer before it, -1 being the nearest")
    return source if source >= 0 else index + source


def _build_row(
    where: str,
    row: Row,
    built: Mapping[int, Built],
    scale: Scale,
    num_classes: int,
    dropout: float,
    remains: Remains,
) -> Built:
    site = Site(
        channels=tuple(built[source].channels for source in row.sources),
        strides=tuple(built[source].stride for source in row.sources),
        scale=scale,
        repeats=scale.repeats(row.repeats),
        num_classes=num_classes,
        dropout=dropout,
        remains=remains,
    )
    build = LAYERS[row.name].build
    try:
        inspect.signature(build).bind(site, *row.arguments)
    except TypeError as error:
        expected = ", ".join(list(inspect.signature(build).parameters)[1:]) or "none"
        raise ConfigError(
            f"{where}: {error}; its arguments are {expected}, and it got {list(row.arguments)}"
        ) from error
    try:
        return build(site, *row.arguments)
    except (ValueError, TypeError, RuntimeError) as error:
        raise ConfigError(f"{where}: {error}; its arguments are {list(row.arguments)}") from error
