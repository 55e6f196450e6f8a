"""Affine and projective geometry of augmentation: matrices, and one warp per tile.

Coordinates are continuous: pixel i covers [i, i + 1), its center is i + 0.5. A matrix maps pixels of a source image to
pixels of the canvas; those of several steps are multiplied, so every output pixel is computed once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from visiontrain.boxes import Boxes, warp_boxes

Matrix = NDArray[np.float64]
Image = NDArray[np.uint8]

FILL = 114
"""The grey of padding: about the mean of natural images."""
LEVEL = 1e-12
"""A slope below this is that of a level line."""
MAX_SHRINK = 2.0
"""Bilinear interpolation reads 2 × 2 pixels: it aliases when it shrinks by more."""


class Tile(NamedTuple):
    """An image and where it goes."""

    image: Image
    """(H, W, 3)"""
    matrix: Matrix
    """(3, 3): pixels of `image` → pixels of the canvas."""


def scaling(x: float, y: float) -> Matrix:
    return np.array([[x, 0.0, 0.0], [0.0, y, 0.0], [0.0, 0.0, 1.0]])


def translation(x: float, y: float) -> Matrix:
    return np.array([[1.0, 0.0, x], [0.0, 1.0, y], [0.0, 0.0, 1.0]])


def scaling_then_moving(gain: float, x: float, y: float) -> Matrix:
    """As `translation(x, y) @ scaling(gain, gain)`."""
    return np.array([[gain, 0.0, x], [0.0, gain, y], [0.0, 0.0, 1.0]])


def rotation(degrees: float) -> Matrix:
    """Counterclockwise as seen (y points down), about the origin."""
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return np.array([[cos, sin, 0.0], [-sin, cos, 0.0], [0.0, 0.0, 1.0]])


def shearing(x_degrees: float, y_degrees: float) -> Matrix:
    x, y = math.tan(math.radians(x_degrees)), math.tan(math.radians(y_degrees))
    return np.array([[1.0, x, 0.0], [y, 1.0, 0.0], [0.0, 0.0, 1.0]])


def foreshortening(x: float, y: float) -> Matrix:
    """Perspective about the origin: a point's depth is 1 + x · its x + y · its y."""
    return np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [x, y, 1.0]])


def flipping(width: float, height: float, *, sideways: bool, upside_down: bool) -> Matrix:
    """Mirror a canvas of `width` × `height` pixels onto itself."""
    return np.array(
        [
            [-1.0 if sideways else 1.0, 0.0, width if sideways else 0.0],
            [0.0, -1.0 if upside_down else 1.0, height if upside_down else 0.0],
            [0.0, 0.0, 1.0],
        ]
    )


def warp_tiles(tiles: Sequence[Tile], canvas: Image) -> list[Matrix]:
    """Draw tiles onto a canvas, in place, later ones over earlier ones.

    A tile covers the pixels whose centers fall into its moved rectangle, so tiles that share an edge leave no gap.
    Without rotation, shear and perspective a tile is a rectangle, which is resampled several times faster; its source
    and target are then rounded to whole pixels, and the matrix that does exactly this is returned.

    Args:
        tiles: What to draw.
        canvas: (H, W, 3) uint8, written to.

    Returns:
        For each tile the (3, 3) matrix by which it really was drawn: move its boxes by this one.
    """
    return [_warp_upright(tile, canvas) if _is_upright(tile.matrix) else _warp_freely(tile, canvas) for tile in tiles]


def move_boxes(boxes: NDArray[np.floating], matrix: Matrix) -> Boxes:
    """As `warp_boxes`, several times faster where the matrix is upright."""
    return move_all_boxes([boxes], [matrix])


def move_all_boxes(boxes: Sequence[NDArray[np.floating]], matrices: Sequence[Matrix]) -> Boxes:
    """The boxes of all tiles as `move_boxes` moves those of each, one behind the other, in one batch.

    Args:
        boxes: For each tile (N, 4) xyxy, pixels of the source image.
        matrices: For each tile (3, 3), source pixels → target pixels.

    Returns:
        (all N, 4) float32 xyxy, pixels of the target, not clipped.
    """
    if not all(_is_upright(matrix) for matrix in matrices):
        return np.concatenate([_move_one(*both) for both in zip(boxes, matrices, strict=True)])
    return _move_upright(boxes, matrices)


def _move_one(boxes: NDArray[np.floating], matrix: Matrix) -> Boxes:
    return _move_upright([boxes], [matrix]) if _is_upright(matrix) else warp_boxes(boxes, matrix)


def _move_upright(boxes: Sequence[NDArray[np.floating]], matrices: Sequence[Matrix]) -> Boxes:
    steps, is_mirrored = [], False
    for matrix in matrices:
        (x_gain, _, x_offset), (_, y_gain, y_offset), _ = matrix.tolist()
        steps.append((x_gain, y_gain, x_gain, y_gain, x_offset, y_offset, x_offset, y_offset))
        is_mirrored |= x_gain < 0 or y_gain < 0
    step_of_box = np.array(steps, np.float32).repeat([len(part) for part in boxes], axis=0)  # (N, 8)
    moved = np.concatenate(boxes) * step_of_box[:, :4] + step_of_box[:, 4:]
    if is_mirrored:
        moved.reshape(-1, 2, 2).sort(axis=1)  # the ends of a mirrored axis change places
    return np.asarray(moved, np.float32)


def _is_upright(matrix: Matrix) -> bool:
    (_, x_of_y, _), (y_of_x, _, _), (depth_of_x, depth_of_y, _) = matrix.tolist()
    return bool(x_of_y == y_of_x == depth_of_x == depth_of_y == 0.0)


class _Span(NamedTuple):
    """One axis of an upright tile: source pixels [start, stop) become canvas pixels [low, high)."""

    start: int
    stop: int
    low: int
    high: int
    is_mirrored: bool

    def gain_and_offset(self) -> tuple[float, float]:
        gain = (self.high - self.low) / (self.stop - self.start)
        if self.is_mirrored:
            return -gain, self.high + gain * self.start
        return gain, self.low - gain * self.start


def _span(gain: float, offset: float, source: int, target: int) -> _Span | None:
    """Round where `source` pixels, moved by `gain · x + offset`, fall onto `target` pixels; None if nowhere."""
    end = gain * source + offset
    left, right = (end, offset) if gain < 0 else (offset, end)
    low, high = max(0, math.ceil(left - 0.5)), min(target, math.ceil(right - 0.5))
    if low >= high:
        return None
    # The image's own edge stays its edge; only a cut by the canvas is rounded to a source pixel.
    near = 0.0 if left >= 0 else -left / abs(gain)
    far = float(source) if right <= target else (target - left) / abs(gain)
    start = min(round(near), source - 1)
    stop = max(start + 1, min(round(far), source))
    if gain < 0:
        start, stop = source - stop, source - start
    return _Span(start, stop, low, high, gain < 0)


def _warp_upright(tile: Tile, canvas: Image) -> Matrix:
    (gain, _, offset), (_, down_gain, down_offset), (_, _, depth) = tile.matrix.tolist()
    x = _span(gain / depth, offset / depth, tile.image.shape[1], canvas.shape[1])
    y = _span(down_gain / depth, down_offset / depth, tile.image.shape[0], canvas.shape[0])
    if x is None or y is None:
        return tile.matrix / depth
    (x_gain, x_offset), (y_gain, y_offset) = x.gain_and_offset(), y.gain_and_offset()
    source = tile.image[y.start : y.stop, x.start : x.stop]
    target = canvas[y.low : y.high, x.low : x.high]
    is_shrunk_much = min(abs(x_gain), abs(y_gain)) < 1 / MAX_SHRINK
    interpolation = cv2.INTER_AREA if is_shrunk_much else cv2.INTER_LINEAR
    size = (x.high - x.low, y.high - y.low)
    if x.is_mirrored or y.is_mirrored:
        flip = -1 if x.is_mirrored and y.is_mirrored else int(x.is_mirrored)  # of OpenCV: 0 upside down, 1 sideways
        cv2.flip(cv2.resize(source, size, interpolation=interpolation), flip, dst=target)
    else:
        cv2.resize(source, size, dst=target, interpolation=interpolation)
    return np.array([[x_gain, 0.0, x_offset], [0.0, y_gain, y_offset], [0.0, 0.0, 1.0]])


def _warp_freely(tile: Tile, canvas: Image) -> Matrix:
    image, matrix = _reduce_to_shrink(tile)
    height, width = image.shape[:2]
    box = _hull(matrix, width, height, canvas.shape[1], canvas.shape[0])
    if box is None:
        return tile.matrix
    left, top, right, bottom = box
    from_corner = translation(-left, -top) @ matrix
    mask = _covered(from_corner, width, height, right - left, bottom - top)
    to_center = translation(-0.5, -0.5) @ from_corner @ translation(0.5, 0.5)  # OpenCV counts from pixel centers
    size, flags, border = (right - left, bottom - top), cv2.INTER_LINEAR, cv2.BORDER_REPLICATE
    if to_center[2, 0] == to_center[2, 1] == 0.0:  # no perspective
        warped = cv2.warpAffine(image, to_center[:2] / to_center[2, 2], size, flags=flags, borderMode=border)
    else:
        warped = cv2.warpPerspective(image, to_center, size, flags=flags, borderMode=border)
    cv2.copyTo(warped, mask, canvas[top:bottom, left:right])
    return tile.matrix


def _reduce_to_shrink(tile: Tile) -> Tile:
    """Reduce the image by area averaging where the warp would shrink it by more than bilinear can."""
    shrink = 1 / max(1e-6, math.sqrt(abs(float(np.linalg.det(tile.matrix[:2, :2])))) / abs(float(tile.matrix[2, 2])))
    if shrink <= MAX_SHRINK:
        return tile
    factor = math.floor(shrink)  # leaves less than 2
    height, width = tile.image.shape[:2]
    new_height, new_width = max(1, height // factor), max(1, width // factor)
    image = np.asarray(cv2.resize(tile.image, (new_width, new_height), interpolation=cv2.INTER_AREA), np.uint8)
    return Tile(image, tile.matrix @ scaling(width / new_width, height / new_height))


def _hull(matrix: Matrix, width: int, height: int, target_width: int, target_height: int) -> tuple[int, ...] | None:
    """The whole-pixel rectangle of the canvas that the moved image touches: left, top, right, bottom."""
    corners = np.array([[0, 0, 1], [width, 0, 1], [width, height, 1], [0, height, 1]]) @ matrix.T
    if (corners[:, 2] <= 1e-6).any():  # a corner lies behind the viewer: the image may reach anywhere
        return 0, 0, target_width, target_height
    points = corners[:, :2] / corners[:, 2:]
    left, top = np.maximum(np.floor(points.min(axis=0)), 0).astype(int)
    right, bottom = np.minimum(np.ceil(points.max(axis=0)), [target_width, target_height]).astype(int)
    return (int(left), int(top), int(right), int(bottom)) if left < right and top < bottom else None


def _covered(matrix: Matrix, width: int, height: int, target_width: int, target_height: int) -> Image:
    """(target_height, target_width) uint8, 1 where a pixel's center comes from inside the image.

    The moved image is convex, so it covers one stretch of each row. Its four edges are straight lines
    `a · x + b · y + c = 0`, also in perspective; two tiles that share an edge divide the pixels on it between them.
    """
    x, y, depth = np.linalg.inv(matrix)
    middles = np.arange(target_height) + 0.5
    first, last = np.zeros(target_height), np.full(target_height, float(target_width))
    for a, b, c in (x, width * depth - x, y, height * depth - y):  # each at least 0 inside
        rest = b * middles + c
        if abs(a) < LEVEL:
            last[rest < 0] = 0.0
        elif a > 0:
            first = np.maximum(first, np.ceil(-rest / a - 0.5))
        else:
            last = np.minimum(last, np.ceil(-rest / a - 0.5))
    columns = np.arange(target_width)
    inside = (columns >= first[:, None]) & (columns < last[:, None])
    return inside.view(np.uint8)
