"""What cameras, software and transport do to pixels and not to geometry: gray, blur, contrast, JPEG.

Every function returns a new image and leaves the one handed in alone. Images are (H, W, 3) uint8 RGB.
"""

from __future__ import annotations

import cv2
import numpy as np

from visiontrain.data.transforms.geometry import Image

BLUR_SIGMAS = (0.5, 2.0)
"""Pixels."""
CLAHE_LIMITS = (1.0, 4.0)
"""How far a bin of a region's histogram may rise above the mean before it is cut."""
CLAHE_REGIONS = (8, 8)
"""Source: Zuiderveld 1994, Contrast limited adaptive histogram equalization, Graphics Gems IV (8 × 8 regions)."""
JPEG_QUALITIES = (30, 95)


def to_gray(image: Image) -> Image:
    """Three equal channels: the luma of ITU-R BT.601."""
    return _as_image(cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB))


def blur(image: Image, sigma: float) -> Image:
    """Gaussian blur of `sigma` pixels."""
    return _as_image(cv2.GaussianBlur(image, (0, 0), sigma))


def equalize(image: Image, limit: float) -> Image:
    """Raise the contrast of every region of the lightness (CLAHE in CIELAB), with colors left as they are."""
    lab = cv2.cvtColor(image, cv2.COLOR_RGB2LAB)
    lab[..., 0] = cv2.createCLAHE(limit, CLAHE_REGIONS).apply(np.ascontiguousarray(lab[..., 0]))
    return _as_image(cv2.cvtColor(lab, cv2.COLOR_LAB2RGB))


def through_jpeg(image: Image, quality: int) -> Image:
    """Encode as JPEG of a quality from 1 to 100, and decode."""
    is_encoded, data = cv2.imencode(".jpg", cv2.cvtColor(image, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, quality])
    assert is_encoded
    decoded = cv2.imdecode(data, cv2.IMREAD_COLOR)
    assert decoded is not None
    return _as_image(cv2.cvtColor(decoded, cv2.COLOR_BGR2RGB))


def _as_image(image: object) -> Image:
    return np.asarray(image, np.uint8)
