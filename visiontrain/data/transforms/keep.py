"""Which boxes are still objects after they were moved and cut, and how many were lost to which cause.

Letter: N boxes.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from visiontrain.sample import DroppedBoxes

MIN_BOX_SIDE = 2.0
"""Pixels; a box that is left with less is dropped."""
MIN_BOX_VISIBLE = 0.1
"""Share of a box's area that must be left inside the image."""
MAX_BOX_ASPECT = 100.0


class Fate(IntEnum):
    """What became of a box; where several causes hold, the first of them counts."""

    KEPT = 0
    OUTSIDE = 1
    """Nothing of it is in the picture."""
    TOO_SMALL = 2
    """A side is left with less than `MIN_BOX_SIDE` pixels."""
    TOO_LITTLE_LEFT = 3
    """Less than `MIN_BOX_VISIBLE` of its area is left."""
    TOO_LONG = 4
    """One side is `MAX_BOX_ASPECT` times the other, or more."""


def fate_of_boxes(
    moved: NDArray[np.floating], clipped: NDArray[np.floating], *, least_side: float = MIN_BOX_SIDE
) -> NDArray[np.intp]:
    """What became of boxes that were moved and clipped.

    Args:
        moved: (N, 4) xyxy, pixels, before clipping.
        clipped: (N, 4) the same boxes, clipped to what is visible.
        least_side: Pixels.

    Returns:
        (N,) values of `Fate`.
    """
    width, height = (moved[:, 2:] - moved[:, :2]).T
    visible_width, visible_height = (clipped[:, 2:] - clipped[:, :2]).T
    short, long = np.minimum(visible_width, visible_height), np.maximum(visible_width, visible_height)
    fate = (long >= MAX_BOX_ASPECT * short) * np.intp(Fate.TOO_LONG)
    fate[visible_width * visible_height < MIN_BOX_VISIBLE * width * height] = Fate.TOO_LITTLE_LEFT
    fate[short < least_side] = Fate.TOO_SMALL
    fate[short <= 0] = Fate.OUTSIDE
    return fate


def count_dropped(fate: NDArray[np.intp]) -> DroppedBoxes:
    """(N,) values of `Fate` → the number of each cause."""
    return DroppedBoxes(*np.bincount(fate, minlength=len(Fate))[1:].tolist())
