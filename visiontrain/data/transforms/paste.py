"""Copy boxes of another image, with their pixels, to new places of a sample.

A pasted patch is a crop of the other image: what else of it shows in the patch by half or more is labelled too. A patch
that would hide too much of an object that is there already is not pasted.

Source: Ghiasi et al. 2021, Simple Copy-Paste (arXiv:2012.07177), section 3 (a random subset of an image's objects);
there by masks, here by boxes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from visiontrain.boxes import Boxes
from visiontrain.data.transforms.crop import Window
from visiontrain.data.transforms.geometry import Image, Matrix, Tile, move_boxes, scaling, translation, warp_tiles
from visiontrain.data.transforms.keep import MIN_BOX_SIDE, Fate, fate_of_boxes

PASTED_SHARE = 0.5
"""Of the other image's boxes, rounded up, this share is tried."""
MAX_HIDDEN = 0.3
"""Share of a present box that patches may hide, all together."""
MIN_SHOWN = 0.5
"""Share of another object that must show in the patch to be labelled: a face that was cut out is no person."""
MAX_TRIES = 5
"""Places tried for one patch."""


class Labels(NamedTuple):
    """Boxes, (N, 4) xyxy, with their classes, (N,)."""

    boxes: Boxes
    classes: NDArray[np.int64]


def paste_boxes_(
    canvas: Image,
    present: Labels,
    source: Image,
    labels: Labels,
    *,
    gain: float,
    mirrored: float,
    rng: np.random.Generator,
) -> tuple[Labels, NDArray[np.bool_]]:
    """Paste a random part of the boxes of `source` onto `canvas`, in place, each wholly inside it.

    Args:
        canvas: (H, W, 3) uint8, written to.
        present: In pixels of `canvas`.
        source: (H', W', 3) uint8.
        labels: In pixels of `source`.
        gain: Pixels of `canvas` per pixel of `source`.
        mirrored: Probability that a patch is flipped sideways.
        rng: Of the sample.

    Returns:
        What was pasted, in pixels of `canvas`, and for each box whether it is mirrored.
    """
    occupied, hidden = present.boxes, np.zeros(len(present.boxes))
    pasted, flags = [Labels(occupied[:0], present.classes[:0])], [np.zeros(0, np.bool_)]
    for index in rng.permutation(len(labels.boxes))[: math.ceil(PASTED_SHARE * len(labels.boxes))]:
        if (gain * (labels.boxes[index, 2:] - labels.boxes[index, :2])).min() < MIN_BOX_SIDE:
            continue
        window = _window_of(labels.boxes[index], source)
        is_mirrored = bool(rng.random() < mirrored)
        place = _find_place(window, gain, canvas, occupied, hidden, rng)
        if place is None:
            continue
        matrix, hides = _draw_(canvas, source, window, place, gain, is_mirrored), place.hides
        shown = _labels_in(window, labels, matrix)
        occupied = np.concatenate([occupied, shown.boxes])
        hidden = np.concatenate([hidden + hides, np.zeros(len(shown.boxes))])
        pasted.append(shown)
        flags.append(np.full(len(shown.boxes), is_mirrored))
    boxes, classes = (np.concatenate(parts) for parts in zip(*pasted, strict=True))
    return Labels(boxes, classes), np.concatenate(flags)


def shares_covered(rectangle: Sequence[float], boxes: NDArray[np.floating]) -> NDArray[np.floating]:
    """The share of each of (N, 4) boxes, xyxy, that a rectangle covers: (N,) in [0, 1]."""
    corners = np.asarray(rectangle, np.float64)
    sides = np.minimum(boxes[:, 2:], corners[2:]) - np.maximum(boxes[:, :2], corners[:2])
    areas = (boxes[:, 2:] - boxes[:, :2]).astype(np.float64).prod(axis=1)
    return sides.clip(0).prod(axis=1) / np.maximum(areas, np.finfo(np.float64).tiny)


class _Place(NamedTuple):
    left: float
    top: float
    hides: NDArray[np.floating]
    """Share of each present box."""


def _window_of(box: NDArray[np.floating], image: Image) -> Window:
    """The whole pixels that a box touches."""
    left, top = np.floor(box[:2]).astype(int).clip(0, [image.shape[1] - 1, image.shape[0] - 1])
    right, bottom = np.ceil(box[2:]).astype(int).clip([left + 1, top + 1], [image.shape[1], image.shape[0]])
    return Window(int(left), int(top), int(right), int(bottom))


def _find_place(
    window: Window,
    gain: float,
    canvas: Image,
    occupied: NDArray[np.floating],
    hidden: NDArray[np.floating],
    rng: np.random.Generator,
) -> _Place | None:
    """A place where the patch hides little enough; None if none was found, or if it is larger than the canvas."""
    width, height = gain * (window.right - window.left), gain * (window.bottom - window.top)
    if width > canvas.shape[1] or height > canvas.shape[0]:
        return None
    for _ in range(MAX_TRIES):
        left = float(rng.uniform(0, canvas.shape[1] - width))
        top = float(rng.uniform(0, canvas.shape[0] - height))
        # The patch is drawn on whole pixels: at most those that its rectangle touches.
        touched = (math.floor(left), math.floor(top), math.ceil(left + width), math.ceil(top + height))
        hides = shares_covered(touched, occupied)
        if (hidden + hides <= MAX_HIDDEN).all():
            return _Place(left, top, hides)
    return None


def _draw_(canvas: Image, source: Image, window: Window, place: _Place, gain: float, is_mirrored: bool) -> Matrix:
    """Draw the patch; returns the matrix from pixels of `source` to those of `canvas`."""
    patch = source[window.top : window.bottom, window.left : window.right]
    width = gain * (window.right - window.left)
    across = scaling(-gain, gain) if is_mirrored else scaling(gain, gain)
    matrix = translation(place.left + width * is_mirrored, place.top) @ across
    (used,) = warp_tiles([Tile(patch, matrix)], canvas)
    return used @ translation(-window.left, -window.top)


def _labels_in(window: Window, labels: Labels, matrix: Matrix) -> Labels:
    """What of the other image's boxes shows in the patch, in pixels of the canvas."""
    low, high = np.array(window[:2] * 2, np.float32), np.array(window[2:] * 2, np.float32)
    cut = labels.boxes.clip(low, high)
    moved, shown = move_boxes(labels.boxes, matrix), move_boxes(cut, matrix)
    keep = (fate_of_boxes(moved, shown) == Fate.KEPT) & (shares_covered(window, labels.boxes) >= MIN_SHOWN)
    return Labels(shown[keep], labels.classes[keep])
