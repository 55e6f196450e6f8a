"""What a network is made of: a row for each layer, by the numbers that `freeze` knows layers by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from visiontrain.models.anatomy import anatomy_of
from visiontrain.models.build import LAYERS
from visiontrain.models.description import scale_of
from visiontrain.models.network import PREVIOUS, LayerGraph, Network
from visiontrain.models.probe import pass_without_numbers

HEADER = ("", "from", "layer", "arguments", "parameters", "output")


@dataclass(frozen=True)
class LayerRow:
    """A layer."""

    index: int
    sources: tuple[int, ...]
    """Of the layers that it reads; -1: the images."""
    kind: str
    arguments: str
    parameters: int
    shapes: tuple[tuple[int, ...], ...]
    """Of its outputs for one image."""

    def cells(self) -> tuple[str, ...]:
        """As texts, in the order of `HEADER`."""
        sources = ", ".join("images" if source == PREVIOUS else str(source) for source in self.sources)
        shapes = ", ".join("×".join(map(str, shape)) for shape in self.shapes)
        return str(self.index), sources, self.kind, self.arguments, f"{self.parameters:,}", shapes


def layer_rows(network: Network, imgsz: int) -> list[LayerRow]:
    """The layers of a network, as `anatomy_of` tells them; the network is left as it was.

    What stands in none of them counts to the first, so the parameters add up to the network's.

    Args:
        network: Any.
        imgsz: Pixels, a size that the network takes.
    """
    anatomy = anatomy_of(network)
    counts = [0] * len(anatomy.layers)
    for name, parameter in network.named_parameters():
        counts[anatomy.layer_of(name)] += parameter.numel()
    shapes = _output_shapes(network, anatomy.layers, imgsz)
    sources = _sources(network, anatomy.layers)
    return [
        LayerRow(index, sources[index], *_words(network, path), counts[index], shapes.get(path, ()))
        for index, path in enumerate(anatomy.layers)
    ]


def _output_shapes(network: Network, paths: Sequence[str], imgsz: int) -> Mapping[str, tuple[tuple[int, ...], ...]]:
    """What each module gives for one image, without the batch's dimension."""
    found: dict[str, tuple[tuple[int, ...], ...]] = {}

    def note(path: str, outputs: Any) -> None:
        found[path] = tuple(tuple(tensor.shape[1:]) for tensor in _tensors(outputs) if len(tensor) == 1)

    handles = [
        network.get_submodule(path).register_forward_hook(lambda _, __, outputs, path=path: note(path, outputs))
        for path in paths
    ]
    try:
        pass_without_numbers(network, imgsz)
    finally:
        for handle in handles:
            handle.remove()
    return found


def _tensors(outputs: Any) -> Iterator[Tensor]:
    if isinstance(outputs, Tensor):
        yield outputs
    elif isinstance(outputs, tuple | list):
        for output in outputs:
            yield from _tensors(output)


def _sources(network: Network, paths: Sequence[str]) -> list[tuple[int, ...]]:
    """What each layer reads: as the rows of a graph say it, else the layer before."""
    if not isinstance(network, LayerGraph):
        return [(index - 1,) for index in range(len(paths))]
    row_of = [int(path.split(".")[1]) for path in paths]
    last_of = {PREVIOUS: PREVIOUS, **{row: index for index, row in enumerate(row_of)}}
    return [
        (index - 1,)
        if index and row_of[index - 1] == row  # inside of a part of torchvision's, which is a chain
        else tuple(last_of[source] for source in network.sources[row])
        for index, row in enumerate(row_of)
    ]


def _words(network: Network, path: str) -> tuple[str, str]:
    """The kind of a layer and its arguments: as its row has them, or else as torch's own layers do."""
    parts = path.split(".")
    if isinstance(network, LayerGraph) and len(parts) == 2:
        _, repeats, kind, arguments = network.description["layers"][int(parts[1])]
        scaled = scale_of("", network.description).repeats(repeats) if LAYERS[kind].takes_repeats else 1
        return f"{kind} × {scaled}" if scaled > 1 else kind, ", ".join(map(str, arguments))
    layer = network.get_submodule(path)
    return type(layer).__name__, _arguments(layer)


def _arguments(layer: nn.Module) -> str:
    if isinstance(layer, nn.Conv2d):
        kernel, stride = ("×".join(map(str, dict.fromkeys(sides))) for sides in (layer.kernel_size, layer.stride))
        return f"{layer.in_channels}, {layer.out_channels}, {kernel}, {stride}"
    return f"{layer.in_features}, {layer.out_features}" if isinstance(layer, nn.Linear) else ""
