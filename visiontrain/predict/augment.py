"""Test-time augmentation: a network looks at each image several times, and what it finds is joined.

Each look transforms the network's input, and takes the finished outputs back to it. Boxes of all looks are candidates
of one suppression, which keeps the best of those that overlap; probabilities are averaged.

Letters: B images of H × W pixels, A anchor points, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, pad

from visiontrain.models.network import Network

Finish: TypeAlias = Callable[[Any], Mapping[str, Tensor]]
"""Raw outputs of the network → `boxes` and `scores`, or `probs`; `Task.finish` of the network."""

LARGER = 1.25
"""The second size at which a detector looks. Measured: docs/predict.md, "Looking several times"."""
FILL = 114
"""The gray that the letterbox pads with, too."""


@dataclass(frozen=True)
class Look:
    """How an image is shown to the network."""

    scale: float = 1.0
    is_mirrored: bool = False


class DetectorLooks(nn.Module):
    """A detector that looks at each image at two sizes, if it takes two, and mirrored, if it may; outputs are finished.

    Attributes:
        looks: What it looks at; a single one is what the detector sees by itself.
    """

    def __init__(
        self, network: Network, finish: Finish, *, may_mirror: bool, swap: Sequence[tuple[int, int]] = ()
    ) -> None:
        """
        Args:
            network: The detector.
            finish: Makes `boxes` (B, A, 4) xyxy pixels and `scores` (B, A, C) of its outputs.
            may_mirror: Whether images were mirrored in training; a detector that never saw it is not shown it.
            swap: Pairs of classes that mirroring exchanges.
        """
        super().__init__()
        self.network = network
        self.looks = _looks((1.0, LARGER) if network.fixed_size is None else (1.0,), may_mirror=may_mirror)
        self._finish = finish
        self._swap = tuple(swap)

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        """(B, 3, H, W) uint8 RGB → `boxes` (B, ΣA, 4) xyxy pixels of `images`, and `scores` (B, ΣA, C)."""
        found = [self._see(images, look) for look in self.looks]
        return {name: torch.cat([one[name] for one in found], dim=1) for name in ("boxes", "scores")}

    def _see(self, images: Tensor, look: Look) -> dict[str, Tensor]:
        shown, scale_x, scale_y = self._scaled(images, look.scale)
        finished = self._finish(self.network(shown.flip(3) if look.is_mirrored else shown))
        boxes, scores = finished["boxes"].float(), finished["scores"]
        if look.is_mirrored:
            x1, y1, x2, y2 = boxes.unbind(-1)
            width = shown.shape[3]
            boxes = torch.stack([width - x2, y1, width - x1, y2], dim=-1)
            scores = swap_columns(scores, self._swap)
        return {"boxes": boxes / boxes.new_tensor([scale_x, scale_y, scale_x, scale_y]), "scores": scores}

    def _scaled(self, images: Tensor, scale: float) -> tuple[Tensor, float, float]:
        """The images scaled, padded to what the network takes, and the scales along x and y: sides are whole pixels."""
        if scale == 1:
            return images, 1.0, 1.0
        height, width = images.shape[2:]
        new_height, new_width = round(height * scale), round(width * scale)
        scaled = interpolate(images.float(), (new_height, new_width), mode="bilinear", align_corners=False)
        stride = max(self.network.strides)
        padded = pad(scaled.round().to(images.dtype), (0, -new_width % stride, 0, -new_height % stride), value=FILL)
        return padded, new_width / width, new_height / height


class ClassifierLooks(nn.Module):
    """A classifier that looks at each image as it is and mirrored; the probabilities are averaged."""

    def __init__(self, network: Network, finish: Finish, *, swap: Sequence[tuple[int, int]] = ()) -> None:
        """
        Args:
            network: The classifier.
            finish: Makes `probs` (B, C) of its outputs.
            swap: Pairs of classes that mirroring exchanges.
        """
        super().__init__()
        self.network = network
        self._finish = finish
        self._swap = tuple(swap)

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        """(B, 3, H, W) uint8 RGB → `probs` (B, C)."""
        plain = self._finish(self.network(images))["probs"]
        mirrored = swap_columns(self._finish(self.network(images.flip(3)))["probs"], self._swap)
        return {"probs": (plain + mirrored) / 2}


def swap_columns(values: Tensor, pairs: Sequence[tuple[int, int]]) -> Tensor:
    """(..., C) values, in which the classes of each pair have changed places."""
    order = list(range(values.shape[-1]))
    for one, other in pairs:
        order[one], order[other] = other, one
    return values[..., order]


def _looks(scales: Sequence[float], *, may_mirror: bool) -> tuple[Look, ...]:
    mirrored = (False, True) if may_mirror else (False,)
    return tuple(Look(scale, is_mirrored) for scale in scales for is_mirrored in mirrored)
