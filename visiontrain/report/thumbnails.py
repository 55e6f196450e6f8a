"""Small pictures of single images with their boxes, as JPEG, to be held in a page.

Letters: N boxes, M marked boxes.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from visiontrain.drawing import Color, Names, draw_boxes

LONG_SIDE = 320
"""Pixels of a thumbnail."""
MOST_MARGIN = 0.25
"""Of the image's side: how much is shown of what reaches beyond the image, on each side."""
MOST_NAMED = 8
"""Boxes up to which class names are written; more would hide the picture."""
_JPEG_QUALITY = 80
_OUTSIDE: Color = (128, 128, 128)
_MARK: Color = (255, 0, 255)
_MARK_EDGE: Color = (255, 255, 255)


def thumbnail(
    image: NDArray[np.uint8],
    boxes: ArrayLike,
    classes: ArrayLike,
    names: Names,
    *,
    marked: ArrayLike = (),
) -> bytes:
    """Draw one image with its boxes.

    Args:
        image: (H, W, 3) uint8 RGB.
        boxes: (N, 4) xyxy, fractions of the image.
        classes: (N,) indices into `names`.
        names: Class names.
        marked: (M, 4) xyxy, fractions of the image: boxes that stand out. What reaches beyond the image is seen.

    Returns:
        A JPEG whose long side is `LONG_SIDE` pixels, but for the margin around the image.
    """
    height, width = image.shape[:2]
    scale = LONG_SIDE / max(height, width)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    way = cv2.INTER_AREA if scale < 1 else cv2.INTER_NEAREST
    small = np.ascontiguousarray(cv2.resize(image, size, interpolation=way)[..., ::-1])  # (H, W, 3) BGR
    factors = np.array([*size, *size], np.float64)
    corners = np.asarray(boxes, np.float64).reshape(-1, 4) * factors
    small = draw_boxes(small.astype(np.uint8), corners, classes, names, line_width=1, labels=len(corners) <= MOST_NAMED)
    outliers = _visible(np.asarray(marked, np.float64).reshape(-1, 4)) * factors
    canvas, (left, top) = _with_margin(small, outliers)
    for x1, y1, x2, y2 in (outliers + np.array([left, top, left, top])).round().astype(int).tolist():
        cv2.rectangle(canvas, (x1, y1), (x2, y2), _MARK_EDGE, 4)
        cv2.rectangle(canvas, (x1, y1), (x2, y2), _MARK, 2)
    return encoded(canvas)


def as_jpeg(image: NDArray[np.uint8]) -> bytes:
    """An image as it is, (H, W, 3) uint8 RGB, as a JPEG."""
    return encoded(np.ascontiguousarray(image[..., ::-1]))


def encoded(image: NDArray[np.uint8]) -> bytes:
    """An image, (H, W, 3) uint8 BGR, as a JPEG."""
    is_encoded, data = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY])
    assert is_encoded
    return data.tobytes()


def _visible(boxes: NDArray[np.float64]) -> NDArray[np.float64]:
    """What the margin shows of boxes, in fractions of the image; those of which it shows nothing are left out."""
    low, high = -MOST_MARGIN, 1 + MOST_MARGIN
    is_seen = (boxes[:, :2] <= high).all(axis=1) & (boxes[:, 2:] >= low).all(axis=1)
    return np.clip(boxes[is_seen], low, high)


def _with_margin(image: NDArray[np.uint8], outliers: NDArray[np.float64]) -> tuple[NDArray[np.uint8], tuple[int, int]]:
    """The image with room for the boxes that reach beyond it, and how far it moved right and down, pixels."""
    if not len(outliers):
        return image, (0, 0)
    height, width = image.shape[:2]
    x1, y1 = np.minimum(outliers[:, :2].min(axis=0), 0)
    x2, y2 = np.maximum(outliers[:, 2:].max(axis=0), (width, height))
    left, top, right, bottom = (int(np.ceil(side)) for side in (-x1, -y1, x2 - width, y2 - height))
    room = 3 if max(left, top, right, bottom) else 0  # pixels, so that the line itself is seen
    sides = top + room, bottom + room, left + room, right + room
    canvas = cv2.copyMakeBorder(image, *sides, cv2.BORDER_CONSTANT, value=_OUTSIDE)
    return np.asarray(canvas, np.uint8), (left + room, top + room)
