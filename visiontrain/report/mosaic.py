"""Draw a batch as a picture of tiles: what the network saw, and what it should find or found.

Letters: B images, N boxes of an image, H × W pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from visiontrain.drawing import Color, Names, draw_boxes, draw_text
from visiontrain.sample import Marks

_LEAST_TILE = 320  # pixels of a tile's long side below which names cannot be read; smaller images are enlarged
_MOST_TILE = 640
_GAP = 4
_PAGE: Color = (255, 255, 255)
_TITLE_BACKGROUND: Color = (40, 40, 40)
_JPEG_QUALITY = 92


def draw_batch(
    images: ArrayLike,
    marks: Sequence[Marks],
    names: Names,
    path: Path,
    *,
    titles: Sequence[str] | None = None,
    columns: int = 4,
    max_images: int = 16,
) -> None:
    """Draw the first images of a batch with their labels, side by side, into one JPEG.

    Args:
        images: (B, 3, H, W) uint8 RGB, a tensor on the CPU or an array.
        marks: Of each image.
        names: Class names.
        path: Written over if it exists.
        titles: Of each image, such as its file's name.
        columns: Most tiles side by side.
        max_images: Most tiles.

    Raises:
        ValueError: If `images` is not (B, 3, H, W) uint8, or B is 0.
    """
    pixels = np.asarray(images)
    if pixels.ndim != 4 or pixels.shape[1] != 3 or pixels.dtype != np.uint8 or not len(pixels):
        raise ValueError(f"images are {pixels.shape} {pixels.dtype}; they should be (B, 3, H, W) uint8, B at least 1")
    count = min(len(pixels), max_images)
    tiles = [_tile(pixels[i], marks[i], names, None if titles is None else titles[i]) for i in range(count)]
    is_encoded, data = cv2.imencode(".jpg", _arrange(tiles, columns), [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY])
    assert is_encoded
    path.write_bytes(data.tobytes())  # OpenCV's own writer fails on non-ASCII paths on Windows


def _tile(image: NDArray[np.uint8], marks: Marks, names: Names, title: str | None) -> NDArray[np.uint8]:
    bgr = np.ascontiguousarray(image.transpose(1, 2, 0)[..., ::-1])  # (H, W, 3)
    long_side = max(bgr.shape[:2])
    scale = min(max(long_side, _LEAST_TILE), _MOST_TILE) / long_side
    if scale != 1:
        way = cv2.INTER_CUBIC if scale > 1 else cv2.INTER_AREA
        bgr = _as_bytes(cv2.resize(bgr, None, fx=scale, fy=scale, interpolation=way))
    tile = draw_boxes(bgr, marks.boxes * scale, marks.classes, names, scores=marks.scores)
    text = ": ".join(filter(None, (title, marks.caption)))
    if text:
        text = "".join(letter if letter.isascii() and letter.isprintable() else "?" for letter in text)
        draw_text(tile, text, 0, tile.shape[0], background=_TITLE_BACKGROUND, height=9)
    return tile


def _arrange(tiles: Sequence[NDArray[np.uint8]], columns: int) -> NDArray[np.uint8]:
    """Tiles of one size on a white page, row by row."""
    height, width = tiles[0].shape[:2]
    across = min(columns, len(tiles))
    down = -(-len(tiles) // across)
    page = np.full((down * (height + _GAP) + _GAP, across * (width + _GAP) + _GAP, 3), _PAGE, np.uint8)
    for place, tile in enumerate(tiles):
        y, x = (_GAP + place // across * (height + _GAP)), (_GAP + place % across * (width + _GAP))
        page[y : y + height, x : x + width] = tile
    return page


def _as_bytes(image: Any) -> NDArray[np.uint8]:
    return np.asarray(image, np.uint8)
