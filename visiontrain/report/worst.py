"""Draw the worst images of a split side by side, with what was missed there and what is wrong.

Letters: H × W pixels of a tile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path, PurePath
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from visiontrain.drawing import Color, draw_text, label_text
from visiontrain.metrics.detections import Detections, Truth
from visiontrain.metrics.pairing import pair
from visiontrain.report.review import Box, Review, Shot
from visiontrain.report.thumbnails import encoded

TILE = 400
"""Pixels of a tile's sides."""
MOST_TILES = 16
_COLUMNS = 4
_GAP, _FOOT, _HEAD = 6, 24, 30
_LETTER = 9
_PAGE: Color = (255, 255, 255)
_DARK: Color = (30, 30, 30)
_BLACK: Color = (0, 0, 0)

# Source: Okabe & Ito 2008, "Color Universal Design"; as BGR. Dashes tell missed boxes apart as well.
_MISSED: Color = (66, 228, 240)
_FALSE: Color = (0, 120, 240)
_WRONG: Color = (167, 121, 204)
_FOUND: Color = (233, 180, 86)
_LEGEND = (("missed (dashed)", _MISSED), ("false alarm", _FALSE), ("wrong class", _WRONG), ("found", _FOUND))


class Verdict(NamedTuple):
    """A box with what became of it."""

    box: Box
    color: Color
    text: str
    is_dashed: bool = False


def draw_worst(review: Review, read: Callable[[str, int], NDArray[np.uint8] | None], path: Path) -> bool:
    """Draw the first images of the gallery into one JPEG.

    Args:
        review: Whose gallery it is.
        read: Gives an image, (H, W, 3) uint8 RGB with a long side of at most so many pixels; None: cannot be read.
        path: Written over if it exists.

    Returns:
        Whether there was anything to draw.
    """
    shots = review.gallery[:MOST_TILES]
    if not shots:
        return False
    tiles = [_tile(shot, read(shot.path, TILE), review) for shot in shots]
    across = min(_COLUMNS, len(tiles))
    down = -(-len(tiles) // across)
    head = _HEAD if any(shot.has_boxes for shot in shots) else 0
    height, width = TILE + _FOOT + _GAP, TILE + _GAP
    page = np.full((head + down * height + _GAP, across * width + _GAP, 3), _PAGE, np.uint8)
    if head:
        _draw_legend(page, review.threshold)
    for place, tile in enumerate(tiles):
        y, x = head + _GAP + place // across * height, _GAP + place % across * width
        page[y : y + tile.shape[0], x : x + TILE] = tile
    path.write_bytes(encoded(page))
    return True


def verdicts(shot: Shot, threshold: float, names: tuple[str, ...]) -> Iterator[Verdict]:
    """What is drawn of an image: what was found first, so that what is wrong lies on it."""
    pairing = pair(_found(shot), _truth(shot), threshold=threshold)
    found = [
        Box(x1, y1, x2, y2, label, score)
        for (x1, y1, x2, y2), score, label in zip(
            pairing.found.boxes.tolist(), pairing.found.scores.tolist(), pairing.found.classes.tolist(), strict=True
        )
    ]
    for one, is_hit in zip(found, pairing.is_hit, strict=True):
        if is_hit:
            yield Verdict(one, _FOUND, "")
    for one, is_hit, other in zip(found, pairing.is_hit, pairing.wrong.tolist(), strict=True):
        if not is_hit:
            is_on = other >= 0
            text = label_text(one.label, names, one.score)
            told = f"{text}, is {label_text(shot.truth[other].label, names)}" if is_on else text
            yield Verdict(one, _WRONG if is_on else _FALSE, told)
    for box, is_taken in zip(shot.truth, pairing.is_found | pairing.is_taken_for_another, strict=True):
        if not is_taken:
            yield Verdict(box, _MISSED, label_text(box.label, names), is_dashed=True)


def _found(shot: Shot) -> Detections:
    return Detections(
        _corners(shot.found),
        np.array([box.score for box in shot.found], np.float64),
        np.array([box.label for box in shot.found], np.int64),
    )


def _truth(shot: Shot) -> Truth:
    boxes = (*shot.truth, *shot.ignored, *shot.crowds)  # those to be found first: their places are those of the pairing
    num_found, num_once = len(shot.truth), len(shot.ignored)
    corners, places = _corners(boxes), np.arange(len(boxes))
    return Truth(
        boxes=corners,
        classes=np.array([box.label for box in boxes], np.int64),
        is_crowd=places >= num_found + num_once,
        is_ignored=places >= num_found,
        areas=(corners[:, 2:] - corners[:, :2]).prod(axis=1),
    )


def _corners(boxes: tuple[Box, ...]) -> NDArray[np.float64]:
    return np.array([box[:4] for box in boxes], np.float64).reshape(-1, 4)


def _tile(shot: Shot, image: NDArray[np.uint8] | None, review: Review) -> NDArray[np.uint8]:
    """(H + foot, W, 3) BGR, the image in the middle."""
    tile = np.full((TILE + _FOOT, TILE, 3), _DARK, np.uint8)
    canvas = tile[:TILE]
    if image is None:
        draw_text(canvas, "cannot be read", TILE // 3, TILE // 2, height=_LETTER)
    else:
        scale = TILE / max(image.shape[:2])
        height, width = (max(1, round(side * scale)) for side in image.shape[:2])
        way = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
        y, x = (TILE - height) // 2, (TILE - width) // 2
        canvas[y : y + height, x : x + width] = cv2.resize(image, (width, height), interpolation=way)[..., ::-1]
        if shot.has_boxes:
            factors = np.array([width / shot.width, height / shot.height] * 2)
            _draw(canvas, list(verdicts(shot, review.threshold, review.names)), factors, np.array([x, y, x, y]))
    draw_text(tile, _caption(shot), 0, TILE + 2, height=_LETTER)
    return tile


def _draw(
    canvas: NDArray[np.uint8], judged: list[Verdict], factors: NDArray[np.float64], shift: NDArray[np.int64]
) -> None:
    places = [tuple((np.array(one.box[:4]) * factors + shift).round().astype(int).tolist()) for one in judged]
    for one, (x1, y1, x2, y2) in zip(judged, places, strict=True):
        if one.is_dashed:
            _dashed(canvas, (x1, y1, x2, y2), one.color)
        else:
            cv2.rectangle(canvas, (x1, y1), (x2, y2), _BLACK, 4)
            cv2.rectangle(canvas, (x1, y1), (x2, y2), one.color, 2)
    for one, (x1, y1, _, y2) in zip(judged, places, strict=True):  # after all boxes: no line crosses a text
        if one.text:
            # What was found is named above its box and what was missed below, so that both can be read.
            draw_text(
                canvas, one.text, x1, y2 + 2 if one.is_dashed else y1 - 15, color=_BLACK, background=one.color, height=8
            )


def _dashed(canvas: NDArray[np.uint8], box: tuple[int, int, int, int], color: Color, dash: int = 7) -> None:
    x1, y1, x2, y2 = box
    for color_of_line, thickness in ((_BLACK, 4), (color, 2)):
        for x in range(x1, x2, 2 * dash):
            for y in (y1, y2):
                cv2.line(canvas, (x, y), (min(x + dash, x2), y), color_of_line, thickness)
        for y in range(y1, y2, 2 * dash):
            for x in (x1, x2):
                cv2.line(canvas, (x, y), (x, min(y + dash, y2)), color_of_line, thickness)


def _caption(shot: Shot) -> str:
    name = PurePath(shot.path).name
    if shot.has_boxes or not shot.probs:
        said = f"{shot.misses} missed, {shot.false_alarms} false, {shot.wrong_classes} wrong"
    else:
        best, prob = shot.probs[0]
        said = f"is {', '.join(shot.labels)}, taken for {best} {prob:.2f}"
    return "".join(letter if letter.isascii() and letter.isprintable() else "?" for letter in f"{said}: {name}")


def _draw_legend(page: NDArray[np.uint8], threshold: float) -> None:
    x = _GAP
    for text, color in (*_LEGEND, (f"at score {threshold:.3f}", _PAGE)):
        width, _ = draw_text(page, text, x, _GAP, color=_BLACK, background=color, height=10)
        x += width + 2 * _GAP
