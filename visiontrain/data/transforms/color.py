"""Change of hue, saturation and value, without touching geometry."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

HUE_TURN = 180
"""A full turn of hue in OpenCV's 8-bit HSV."""
HUE_THIRD = HUE_TURN // 3


STRIP_BYTES = 96 * 1024
"""A strip of rows this large stays in the processor's cache through all three passes."""


def shift_hsv_(image: NDArray[np.uint8], hue_shift: int, saturation_gain: float, value_gain: float) -> None:
    """Turn the hue and multiply saturation and value of an image, in place.

    Table lookups cost more than both conversions of color, and what is to be done is linear but for the wrap of hue.
    A third of a turn is a rotation of the channels; what is left of the shift is made positive by exchanging red and
    blue, which mirrors the circle of hue; and the way back to RGB accepts hues beyond a full turn.

    Args:
        image: (H, W, 3) uint8 RGB, written to.
        hue_shift: In units of 2°.
        saturation_gain: From 0 up; saturation ends at 255.
        value_gain: From 0 up; value ends at 255.
    """
    thirds = round(hue_shift / HUE_THIRD)
    rest = hue_shift - thirds * HUE_THIRD
    if thirds % 3:
        image[:] = np.roll(image, thirds % 3, axis=2)
    there, back = (cv2.COLOR_RGB2HSV, cv2.COLOR_HSV2RGB) if rest >= 0 else (cv2.COLOR_BGR2HSV, cv2.COLOR_HSV2BGR)
    change = np.array([[1, 0, 0, abs(rest)], [0, saturation_gain, 0, 0], [0, 0, value_gain, 0]], np.float32)
    height, width = image.shape[:2]
    rows = max(1, STRIP_BYTES // (3 * width))
    hsv, changed = np.empty((2, min(rows, height), width, 3), np.uint8)
    for top in range(0, height, rows):
        strip = image[top : top + rows]
        used, result = hsv[: len(strip)], changed[: len(strip)]
        cv2.cvtColor(strip, there, dst=used)
        cv2.transform(used, change, dst=result)
        cv2.cvtColor(result, back, dst=strip)
