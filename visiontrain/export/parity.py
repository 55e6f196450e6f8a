"""The gate: what an exported file gives, compared on real images with what the network gives.

Letters: B images of a batch, H × W pixels of the network's input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Run = Callable[[Tensor], Mapping[str, Tensor]]
"""(B, 3, H, W) uint8 RGB → the outputs by name."""

TOLERANCE = 1e-4
"""The most that an output may be off, as a part of its largest value: of boxes the image's size, of scores the best."""
# Where a network hardly looks at colors, an error of the channels moves less than the tolerance. Outputs may therefore
# be off by no more than a tenth of what swapped channels would do, yet always by what rounding does.
OF_SWAPPED_CHANNELS = 0.1
ROUNDING = 3e-5


@dataclass(frozen=True)
class Difference:
    """How far one output of the file is off, over all images."""

    output: str
    batch: int
    """Images at once."""
    largest: float
    """In the unit of the output; inf where shapes differ or a number is not finite."""
    relative: float
    """As a part of the largest value of the network's own output."""
    limit: float
    """The most that `relative` may be."""
    is_blind: bool
    """Whether not even swapped channels would move the network's own output beyond `limit`."""

    @property
    def is_passed(self) -> bool:
        return self.relative <= self.limit


def compare_runs(reference: Run, exported: Run, batches: Sequence[Tensor]) -> list[Difference]:
    """Compare two programs, output by output.

    Args:
        reference: The network.
        exported: The file.
        batches: (B, 3, H, W) uint8 RGB each, all of one B.

    Returns:
        For each output of the reference its largest difference. One that the file lacks is off by inf.
    """
    size = len(batches[0])
    largest: dict[str, float] = {}
    scales: dict[str, float] = {}
    swapped: dict[str, float] = {}
    for images in batches:
        expected, found = reference(images), exported(images)
        other = reference(images.flip(1))
        for name, value in expected.items():
            largest[name] = max(largest.get(name, 0.0), _largest(value, found.get(name)))
            swapped[name] = max(swapped.get(name, 0.0), _largest(value, other[name]))
            scales[name] = max(scales.get(name, 0.0), value.abs().max().item() if value.numel() else 0.0)
    differences = []
    for name, off in largest.items():
        scale = scales[name] or 1.0
        limit = min(TOLERANCE, max(ROUNDING, OF_SWAPPED_CHANNELS * swapped[name] / scale))
        differences.append(Difference(name, size, off, off / scale, limit, is_blind=swapped[name] / scale <= limit))
    return differences


def compare_detections(
    expected: Sequence[Mapping[str, Tensor]], found: Tensor, *, batch: int, conf: float, imgsz: int
) -> Difference:
    """Compare what is left after suppression: how far each detection is from the nearest of the other side.

    Args:
        expected: For each image `boxes` (N, 4), `scores` (N,) and `classes` (N,), as `decode_detections` gives them.
        found: (B, max_det, 6) `DETECTIONS`.
        batch: How many images were run at once.
        conf: Where a score is as near to it as rounding goes, a detection may be missing on one side.
        imgsz: Pixels; the scale of boxes.
    """
    off = 0.0
    for one, rows in zip(expected, found, strict=True):
        rows = rows[rows[:, 4] > 0]
        columns = (one["boxes"], one["scores"][:, None], one["classes"][:, None].to(rows.dtype))
        theirs = torch.cat(columns, dim=1)  # (N, 6)
        scale = torch.tensor([imgsz, imgsz, imgsz, imgsz, 1.0, ROUNDING])  # another class is off without measure
        distances = ((theirs[:, None] - rows[None]) / scale).abs().amax(dim=2)  # (N, M)
        for side, scores in ((distances, theirs[:, 4]), (distances.T, rows[:, 4])):
            matters = scores > conf + TOLERANCE
            if matters.any():
                off = max(off, side[matters].amin(dim=1).max().item() if side.shape[1] else float("inf"))
    is_blind = not any(len(one["boxes"]) for one in expected)
    return Difference("detections", batch, off, off, TOLERANCE, is_blind)


def _largest(a: Tensor, b: Tensor | None) -> float:
    if b is None or a.shape != b.shape:
        return float("inf")
    if not a.numel():
        return 0.0
    off = (a.double() - b.double()).abs()
    return float("inf") if not torch.isfinite(off).all() else off.max().item()
