"""Two pictures made one, whose target is shared out between the classes of both; and parts of a picture taken away.

Letter: N labels of an image.
"""

from __future__ import annotations

import math

import cv2
import numpy as np
from numpy.typing import NDArray

from visiontrain.data.transforms.crop import Window
from visiontrain.data.transforms.geometry import Image

MIXUP_BETA = 0.2
"""Both parameters of the Beta distribution that the ratio is drawn from. Source: Zhang et al. 2018, mixup
(arXiv:1710.09412), section 3.1 ("α ∈ [0.1, 0.4] leads to improved performance" on ImageNet)."""
CUTMIX_BETA = 1.0
"""Source: Yun et al. 2019, CutMix (arXiv:1905.04899), section 3.1 (all areas are equally likely)."""
ERASED_AREA = (0.02, 0.4)
"""Share of the picture. Source: Zhong et al. 2017, Random Erasing (arXiv:1708.04896), section 4.2."""
ERASED_ASPECT = (0.3, 1 / 0.3)
"""Height / width. Source: as above."""
MAX_TRIES = 10
"""Rectangles drawn before nothing is erased."""


def mix_labels(
    first: NDArray[np.int64], second: NDArray[np.int64], ratio: float
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The labels of two images of which the first makes up `ratio` of the picture.

    Args:
        first: (N1,) classes, each once.
        second: (N2,) classes, each once.
        ratio: In [0, 1].

    Returns:
        (N,) classes, each once, and (N,) their shares, above 0: 1 for a class of both images.
    """
    classes, places = np.unique(np.concatenate([first, second]), return_inverse=True)
    weights = np.repeat([ratio, 1 - ratio], [len(first), len(second)])
    shares = np.bincount(places, weights=weights, minlength=len(classes)).astype(np.float32)
    return classes[shares > 0], shares[shares > 0]


def blend(first: Image, second: Image, ratio: float) -> Image:
    """Both pictures, the first one weighted by `ratio`."""
    return np.asarray(cv2.addWeighted(first, ratio, second, 1 - ratio, 0.0), np.uint8)


def draw_patch(height: int, width: int, rng: np.random.Generator) -> Window:
    """Where the second picture of a cut-mix is seen; it may be empty.

    Source: Yun et al. 2019, CutMix, equation 2: as wide and as high as the picture times √(1 − λ), about a uniformly
        drawn point, cut off at the picture's edge.
    """
    side = math.sqrt(1 - float(rng.beta(CUTMIX_BETA, CUTMIX_BETA)))
    x, y = int(rng.random() * width), int(rng.random() * height)
    half_width, half_height = int(width * side) // 2, int(height * side) // 2
    return Window(
        max(0, x - half_width), max(0, y - half_height), min(width, x + half_width), min(height, y + half_height)
    )


def paste_patch_(image: Image, other: Image, patch: Window) -> float:
    """Copy a window of another picture of the same size into `image`; the share of `image` that is left."""
    left, top, right, bottom = patch
    image[top:bottom, left:right] = other[top:bottom, left:right]
    return 1 - (right - left) * (bottom - top) / (image.shape[0] * image.shape[1])


def erase_(image: Image, rng: np.random.Generator) -> None:
    """Fill a random rectangle with noise, in place; nothing if none that was drawn fits.

    Source: Zhong et al. 2017, Random Erasing, algorithm 1.
    """
    height, width = image.shape[:2]
    for _ in range(MAX_TRIES):
        area = rng.uniform(*ERASED_AREA) * height * width
        stretch = math.exp(rng.uniform(*np.log(ERASED_ASPECT)) / 2)
        high, wide = round(math.sqrt(area) * stretch), round(math.sqrt(area) / stretch)
        if 0 < high <= height and 0 < wide <= width:
            top, left = int(rng.random() * (height - high + 1)), int(rng.random() * (width - wide + 1))
            # Of its own generator, so that the picture's size does not change what is drawn later.
            noise = np.random.default_rng(int(rng.integers(2**63))).integers(0, 256, (high, wide, 3), np.uint8)
            image[top : top + high, left : left + wide] = noise
            return
