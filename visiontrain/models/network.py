"""`Network`, what the program knows of any network, and `LayerGraph`, a graph of layers that ends in a head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from visiontrain.errors import ConfigError
from visiontrain.models.recompute import recompute

PREVIOUS = -1
SIZE_OF_NONE = 224
"""Least side that images are given of which there are none, pixels: no network's last maps are left without a cell."""


class Network(nn.Module):
    """A network with all that is known of it; `forward` takes (B, 3, H, W) RGB, uint8 or float in [0, 1].

    Attributes:
        task: What the head is for, such as `detect`.
        names: Class names by index.
        strides: Pixels of the input to a cell of each level that the head reads; image sizes are multiples of the
            largest.
        description: Plain values from which the same network is made again.
        multi_label: Whether an image may be of several classes, each of which then has a probability of its own.
        fixed_size: The only image size that the network takes, pixels; None where it takes others.
        checkpoint_activations: Whether training keeps only what stages hand to each other and computes the rest again
            in the backward pass: less memory for more time.
    """

    def __init__(
        self,
        *,
        task: str,
        names: Sequence[str],
        strides: Sequence[int],
        description: Mapping[str, Any],
        fixed_size: int | None = None,
    ) -> None:
        super().__init__()
        self.task = task
        self.names = tuple(names)
        self.strides = tuple(strides)
        self.description = dict(description)
        self.multi_label = bool(description.get("multi_label", False))
        self.fixed_size = fixed_size
        self.checkpoint_activations = False

    @property
    def stages(self) -> Sequence[nn.Module]:
        """What is recomputed one by one where activations are checkpointed, in the order of the forward pass."""
        raise NotImplementedError

    def prepare(self, images: Tensor) -> Tensor:
        """Images in the type of the weights, in [0, 1]. Bytes travel to the device; they become numbers here.

        No images at all have no size: they are given one that the network takes.
        """
        dtype = next(self.parameters()).dtype
        if not images.shape[-1]:
            largest = max(self.strides)
            size = self.fixed_size or -(-SIZE_OF_NONE // largest) * largest
            images = images.new_zeros(0, 3, size, size)
        return images.to(dtype) / 255 if images.dtype == torch.uint8 else images.to(dtype)

    def check_size(self, imgsz: int) -> None:
        """Raises ConfigError unless the network takes square images of `imgsz` pixels."""
        check_multiple(imgsz, max(self.strides), "of the network's largest stride")


class LayerGraph(Network):
    """Layers in order, each fed by the layers that its sources name; the last is the head.

    Images are normalized first where the description says by what (`normalize`).
    """

    mean: Tensor | None
    std: Tensor | None

    def __init__(
        self,
        layers: Sequence[nn.Module],
        sources: Sequence[tuple[int, ...]],
        *,
        task: str,
        names: Sequence[str],
        strides: Sequence[int],
        description: Mapping[str, Any],
    ) -> None:
        super().__init__(task=task, names=names, strides=strides, description=description)
        self.layers = nn.ModuleList(layers)
        self.sources = tuple(sources)
        normalize = description.get("normalize") or {}
        for name in ("mean", "std"):
            values = torch.tensor(normalize[name]).view(-1, 1, 1) if normalize else None
            # Of the description, not of the weights: they are in no checkpoint.
            self.register_buffer(name, values, persistent=False)
        self._last_reader = {source: reader for reader, read in enumerate(self.sources) for source in read}

    @property
    def stages(self) -> Sequence[nn.Module]:
        return list(self.layers)

    def prepare(self, images: Tensor) -> Tensor:
        """Images in the type of the weights, normalized where the description asks for it."""
        prepared = super().prepare(images)
        return prepared if self.mean is None or self.std is None else (prepared - self.mean) / self.std

    def forward(self, images: Tensor) -> Any:
        """Raw outputs of the head.

        Args:
            images: (B, 3, H, W) RGB, uint8 or float in [0, 1].
        """
        maps: dict[int, Tensor] = {PREVIOUS: self.prepare(images)}
        recomputes = self.checkpoint_activations and self.training and torch.is_grad_enabled()
        outputs: Any = None
        for index, (layer, read) in enumerate(zip(self.layers, self.sources, strict=True)):
            inputs = [maps[source] for source in read]
            outputs = recompute(layer, *inputs) if recomputes and has_weights(layer) else layer(*inputs)
            for source in read:
                if self._last_reader[source] == index:
                    maps.pop(source, None)  # evaluation then holds no map longer than it is needed
            maps[index] = outputs
        return outputs


def check_multiple(imgsz: int, of: int, what: str) -> None:
    """Raises ConfigError, naming the two nearest, unless `imgsz` is a multiple of a number that is `what`."""
    if imgsz % of:
        below, above = imgsz // of * of, -(-imgsz // of) * of
        near = f"{below} or {above}" if below else f"{above}"
        raise ConfigError(f"imgsz = {imgsz} is not a multiple {what}, {of}; use {near}")


def has_weights(layer: nn.Module) -> bool:
    """Whether a layer is worth a second pass; those without weights (Upsample, Concat) keep nothing."""
    return next(layer.parameters(), None) is not None
