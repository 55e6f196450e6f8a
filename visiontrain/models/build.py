"""Networks from descriptions: rows of `[from, repeats, layer, arguments]`, scaled in depth and width.

See `cfg/models/det.yaml` for the form.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from visiontrain.errors import ConfigError
from visiontrain.models.blocks import CSPStage, PyramidPool
from visiontrain.models.description import (
    CLASSIFIER_KEYS,
    IMAGE_CHANNELS,
    Scale,
    checked_description,
    load_description,
    scale_of,
)
from visiontrain.models.heads import DEFAULT_BINS, HIDDEN_CHANNELS, Classify, Detect
from visiontrain.models.layers import Concat, ConvNorm, Upsample
from visiontrain.models.network import PREVIOUS, LayerGraph
from visiontrain.models.norm import set_norm_
from visiontrain.models.torchvision_stages import Remains, channels_at, take_stage


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
    where, description = load_description(spec)
    asked = {"dropout": dropout, "multi_label": multi_label}
    chosen = {key: value for key, value in asked.items() if value is not None}
    description = checked_description(where, {**description, **chosen})
    scale = scale_of(where, description)
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
    where, description = load_description(spec)
    head = _read_rows(where, description.get("layers"))[-1].name
    return LAYERS[head].task


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
    if not isinstance(name, str) or name not in LAYERS:
        near = difflib.get_close_matches(str(name), LAYERS, n=1)
        raise ValueError(
            f"is of unknown kind {name!r}; " + (f"the nearest is {near[0]}" if near else f"known: {', '.join(LAYERS)}")
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
