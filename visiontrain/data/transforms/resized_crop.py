"""The part of an image that a classifier sees: a random window in training, the middle square in validation."""

from __future__ import annotations

import math

import numpy as np

from visiontrain.data.transforms.crop import Window

ASPECTS = (3 / 4, 4 / 3)
"""Width / height of the window. Source: Szegedy et al. 2015, Going Deeper with Convolutions (arXiv:1409.4842), section
6, where its area is 8 % to 100 % of the image's."""
MAX_TRIES = 10
"""Windows drawn before the middle is taken."""


def draw_window(height: int, width: int, least_area: float, rng: np.random.Generator) -> Window:
    """A random window of the image.

    Args:
        height: Of the image, pixels.
        width: The same, sideways.
        least_area: The window's area is drawn from this to 1, as a share of the image's.
        rng: Of the sample.

    Returns:
        A window of whole pixels inside the image; the largest one in the middle whose aspect is allowed, if none that
        was drawn fits.
    """
    for _ in range(MAX_TRIES):
        area = rng.uniform(least_area, 1.0) * height * width
        stretch = math.exp(rng.uniform(*np.log(ASPECTS)) / 2)
        wide, high = round(math.sqrt(area) * stretch), round(math.sqrt(area) / stretch)
        if 0 < wide <= width and 0 < high <= height:
            left, top = int(rng.integers(width - wide + 1)), int(rng.integers(height - high + 1))
            return Window(left, top, left + wide, top + high)
    least, most = ASPECTS
    return _in_the_middle(height, width, min(height, round(width / least)), min(width, round(height * most)))


def middle_square(height: int, width: int) -> Window:
    """The largest square in the middle of an image of `height` × `width` pixels."""
    side = min(height, width)
    return _in_the_middle(height, width, side, side)


def _in_the_middle(height: int, width: int, high: int, wide: int) -> Window:
    high, wide = max(1, high), max(1, wide)
    left, top = (width - wide) // 2, (height - high) // 2
    return Window(left, top, left + wide, top + high)
