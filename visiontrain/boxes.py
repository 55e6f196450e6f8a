"""Box geometry in numpy: what reading, warping and drawing of boxes share.

Boxes are (N, 4) float arrays, xyxy unless a name says otherwise. N boxes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Boxes = NDArray[np.float32]


def warp_boxes(boxes: NDArray[np.floating], matrix: NDArray[np.floating]) -> Boxes:
    """The upright hulls of boxes whose corners were moved by a 3×3 matrix.

    Args:
        boxes: (N, 4) xyxy, pixels of the source image.
        matrix: (3, 3), source pixels → target pixels, perspective allowed.

    Returns:
        (N, 4) float32 xyxy, pixels of the target, not clipped.
    """
    x1, y1, x2, y2 = boxes.T
    corners = np.stack([x1, y1, x2, y1, x2, y2, x1, y2], axis=1).reshape(-1, 2)  # (4N, 2)
    moved = np.concatenate([corners, np.ones((len(corners), 1))], axis=1) @ matrix.T  # (4N, 3)
    points = (moved[:, :2] / moved[:, 2:]).reshape(-1, 4, 2)
    return np.concatenate([points.min(axis=1), points.max(axis=1)], axis=1).astype(np.float32)


def clip_boxes(boxes: NDArray[np.floating], width: float, height: float) -> NDArray[np.floating]:
    """(N, 4) xyxy clipped to `[0, width] × [0, height]`."""
    return np.clip(boxes, 0, np.array([width, height, width, height], boxes.dtype))
