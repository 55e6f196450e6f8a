"""The size at which a window is trained, where it changes from window to window."""

from __future__ import annotations

import numpy as np

SPREAD = 0.5
"""Sizes lie within 1 ± this of `imgsz`. Source: the idea is of Redmon and Farhadi 2017, YOLO9000 (arXiv:1612.08242),
section 2, "Multi-Scale Training", there 320 to 608 in steps of the stride; the width is the customary one."""
_SIZE_STREAM = 0x517E
"""Keeps these draws apart from those of order and samples, which have streams of their own."""


def sizes_about(imgsz: int, stride: int) -> range:
    """All multiples of `stride` within `imgsz` · (1 ± SPREAD), rising; `imgsz` rounded to a multiple is always one.

    Raises:
        ValueError: If `imgsz` or `stride` is not positive.
    """
    if imgsz < 1 or stride < 1:
        raise ValueError(f"imgsz = {imgsz}, stride = {stride}: both are pixels, from 1 up")
    middle = max(1, round(imgsz / stride))
    fewest = min(middle, max(1, -int(-(1 - SPREAD) * imgsz // stride)))
    most = max(middle, int((1 + SPREAD) * imgsz // stride))
    return range(fewest * stride, (most + 1) * stride, stride)


def size_of_window(seed: int, epoch: int, window_index: int, imgsz: int, stride: int) -> int:
    """Side of the images of one window, pixels: a multiple of `stride`, all equally likely.

    A function of its arguments alone, so every micro-batch, worker and process of a window agrees, and a replayed
    window has the size it had.

    Args:
        seed: Of the run.
        epoch: In which the window opens, from 0.
        window_index: Of the window in its epoch, from 0.
        imgsz: The middle of the sizes, pixels.
        stride: The network's largest, pixels.
    """
    sizes = sizes_about(imgsz, stride)
    return sizes[int(np.random.default_rng([_SIZE_STREAM, seed, epoch, window_index]).integers(len(sizes)))]
