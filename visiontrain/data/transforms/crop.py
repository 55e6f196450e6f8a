"""Random crop of an image that keeps a chosen share of some object in view.

A crop is a window of whole pixels: a view of the image, which the sample's one warp then reads.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

LEAST_OVERLAPS = (None, 0.1, 0.3, 0.5, 0.7, 0.9)
"""IoU of the window with some box; None asks for nothing. Source: Liu et al. 2016, SSD (arXiv:1512.02325), section 2.2
(data augmentation), where leaving the image whole is a further choice; here that is 1 - `crop`."""
SIDES = (0.1, 1.0)
"""Area of the window, of the image's. Source: as above ("the size of each sampled patch is [0.1, 1] of the original
image size")."""
ASPECTS = (0.5, 2.0)
"""Width / height of the window, of the image's own. Source: as above."""
MAX_TRIES = 50
"""Windows drawn before the image is left whole."""


class Window(NamedTuple):
    """A rectangle of whole pixels of an image."""

    left: int
    top: int
    right: int
    bottom: int


def draw_crop(boxes: NDArray[np.floating], width: int, height: int, rng: np.random.Generator) -> Window:
    """A random window that overlaps some box by at least a randomly chosen IoU; the whole image if none is found.

    Args:
        boxes: (N, 4) xyxy, pixels of the image.
        width: Of the image, pixels.
        height: The same, downwards.
        rng: Of the sample.
    """
    least = LEAST_OVERLAPS[int(rng.integers(len(LEAST_OVERLAPS)))]
    for _ in range(MAX_TRIES):
        window = _draw_window(width, height, rng)
        if least is None or not len(boxes) or best_iou(window, boxes) >= least:
            return window
    return Window(0, 0, width, height)


def best_iou(window: Window, boxes: NDArray[np.floating]) -> float:
    """The highest IoU of the window with one of (N ≥ 1, 4) boxes, xyxy."""
    rectangle = np.array(window, np.float64)
    sides = np.minimum(boxes[:, 2:], rectangle[2:]) - np.maximum(boxes[:, :2], rectangle[:2])
    shared = sides.clip(0).prod(axis=1)
    union = (rectangle[2:] - rectangle[:2]).prod() + (boxes[:, 2:] - boxes[:, :2]).prod(axis=1) - shared
    return float((shared / union).max())


def _draw_window(width: int, height: int, rng: np.random.Generator) -> Window:
    area, log_aspect = rng.uniform(*SIDES), rng.uniform(*np.log(ASPECTS))
    # An aspect that does not fit into the image is drawn towards its own until it does.
    stretch = np.exp(np.clip(log_aspect, np.log(area), -np.log(area)) / 2)
    side = np.sqrt(area)
    wide, high = (
        max(1, min(full, round(full * share))) for full, share in ((width, side * stretch), (height, side / stretch))
    )
    left, top = int(rng.integers(width - wide + 1)), int(rng.integers(height - high + 1))
    return Window(left, top, left + wide, top + high)
