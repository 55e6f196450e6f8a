"""Where the images of a sample go: alone in the middle, four around a point, nine in three rows.

Every function returns matrices from pixels of an image to pixels of a canvas; tiles touch and never overlap, so that no
tile hides the objects of another.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from visiontrain.data.transforms.geometry import Matrix, scaling_then_moving

NINE_SIDE = 2 / 3
"""Long side of one of nine tiles, of `imgsz`: three of them are as wide as two of four."""
MIDDLE_OF_NINE = 4


def place_in_middle(image: NDArray[np.uint8], imgsz: int) -> Matrix:
    """Scale an image to long side `imgsz` and center it on a canvas of `imgsz` × `imgsz`."""
    height, width = image.shape[:2]
    ratio = imgsz / max(height, width)
    return scaling_then_moving(ratio, (imgsz - width * ratio) / 2, (imgsz - height * ratio) / 2)


def place_in_mosaic(image: NDArray[np.uint8], quarter: int, center_x: float, center_y: float, imgsz: int) -> Matrix:
    """Scale an image to long side `imgsz` and put a corner of it at the mosaic's center.

    Args:
        image: (H, W, 3).
        quarter: 0 upper left, 1 upper right, 2 lower left, 3 lower right of the center.
        center_x: Where the four tiles meet, pixels of the 2·imgsz × 2·imgsz canvas.
        center_y: The same, downwards.
        imgsz: Pixels.

    Source: Bochkovskiy et al. 2020, YOLOv4, section 3.3 (mosaic).
    """
    height, width = image.shape[:2]
    ratio = imgsz / max(height, width)
    left = center_x - width * ratio * (quarter in (0, 2))
    top = center_y - height * ratio * (quarter in (0, 1))
    return scaling_then_moving(ratio, left, top)


def place_nine(images: Sequence[NDArray[np.uint8]], center_x: float, center_y: float, imgsz: int) -> list[Matrix]:
    """Scale nine images to long side 2/3 · `imgsz` and set them in three rows about the middle of the first.

    The first image is the middle one, the others follow row by row. In a row the tiles touch side by side, the middle
    one centered; a row is as high as its highest tile. Outer rows lean against the middle row, in which all tiles are
    centered.

    Args:
        images: Nine of (H, W, 3).
        center_x: Middle of the first image, pixels of the 2·imgsz × 2·imgsz canvas.
        center_y: The same, downwards.
        imgsz: Pixels.

    Returns:
        Nine (3, 3) matrices, in the order of `images`.
    """
    assert len(images) == 9
    order = [*range(1, MIDDLE_OF_NINE + 1), 0, *range(MIDDLE_OF_NINE + 1, 9)]  # reading order → index into `images`
    ratios = [NINE_SIDE * imgsz / max(images[k].shape[:2]) for k in order]
    heights, widths = np.array(
        [
            [image.shape[axis] * ratio for image, ratio in zip((images[k] for k in order), ratios, strict=True)]
            for axis in (0, 1)
        ]
    ).reshape(2, 3, 3)  # (2, row, column)
    half_of_middle = heights[1].max() / 2
    tops = (
        center_y - half_of_middle - heights[0],
        center_y - heights[1] / 2,
        np.full(3, center_y + half_of_middle),
    )
    matrices: list[Matrix] = [np.eye(3)] * 9
    for place, k in enumerate(order):
        row, column = divmod(place, 3)
        middle = widths[row, 1]
        left = center_x + (-middle / 2 - widths[row, 0], -middle / 2, middle / 2)[column]
        matrices[k] = scaling_then_moving(ratios[place], float(left), float(tops[row][column]))
    return matrices
