"""Draw boxes and class names into images: what prediction and reports share.

Images are (H, W, 3) uint8 BGR, as OpenCV reads and writes them. N boxes.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from visiontrain.boxes import clip_boxes

Color = tuple[int, int, int]
"""Blue, green, red, 0 to 255."""
Names = Sequence[str] | Mapping[int, str]

# Source: Okabe & Ito 2008, "Color Universal Design": hues that color-blind readers tell apart; here as RGB.
_HUES = (
    (230, 159, 0),  # orange
    (86, 180, 233),  # sky blue
    (0, 158, 115),  # bluish green
    (240, 228, 66),  # yellow
    (0, 114, 178),  # blue
    (213, 94, 0),  # vermilion
    (204, 121, 167),  # reddish purple
)
_BLACK: Color = (0, 0, 0)
_WHITE: Color = (255, 255, 255)
_FONT = cv2.FONT_HERSHEY_SIMPLEX
_LEAST_TEXT_HEIGHT = 9  # pixels of a capital letter, the least that is read without zooming
_LEAST_SIDE_FOR_LINES = 256  # pixels: about 35 such letters, and five lines of them leave most of the image free


def class_color(index: int) -> Color:
    """The color of a class: seven hues, then the same darker, then the same lighter; it repeats after 21."""
    hue = np.array(_HUES[index % len(_HUES)], np.float64)
    shade = index // len(_HUES) % 3
    rgb = (hue, hue * 0.6, 255 - (255 - hue) * 0.5)[shade]
    red, green, blue = (int(channel) for channel in rgb)
    return blue, green, red


def text_color(background: Color) -> Color:
    """Black or white, whichever stands out more from `background`.

    Source: WCAG 2.2, "contrast ratio" and "relative luminance".
    """
    luminance = _relative_luminance(background)
    contrast_with_black = (luminance + 0.05) / 0.05
    contrast_with_white = 1.05 / (luminance + 0.05)
    return _BLACK if contrast_with_black >= contrast_with_white else _WHITE


def draw_boxes(
    image: NDArray[np.uint8],
    boxes: ArrayLike,
    classes: ArrayLike,
    names: Names,
    scores: ArrayLike | None = None,
    line_width: int | None = None,
    labels: bool = True,
) -> NDArray[np.uint8]:
    """Draw boxes with their class names, and scores where given, into a copy of an image.

    Args:
        image: (H, W, 3) uint8 BGR; not written into.
        boxes: (N, 4) xyxy, pixels; parts outside the image are not seen.
        classes: (N,) indices into `names`; an index without a name is written as a number.
        names: Class names. Letters that the font lacks are written without their accents or as the class's number.
        scores: (N,) in [0, 1]; the boxes with the highest lie on top.
        line_width: Pixels; by default it grows with the image.
        labels: Whether names and scores are written.

    Returns:
        (H, W, 3) uint8 BGR.

    Raises:
        ValueError: If `image` is not (H, W, 3) uint8, or the numbers of boxes, classes and scores differ.
    """
    _check_image(image)
    corners = np.asarray(boxes, np.float64).reshape(-1, 4)
    indices = np.asarray(classes, np.int64).reshape(-1)
    confidences = None if scores is None else np.asarray(scores, np.float64).reshape(-1)
    if len(indices) != len(corners) or (confidences is not None and len(confidences) != len(corners)):
        raise ValueError(f"{len(corners)} boxes do not go with {len(indices)} classes and the scores given")

    canvas = image.copy()
    height, width = canvas.shape[:2]
    thickness = max(1, round((height + width) / 2 * 0.003)) if line_width is None else max(1, line_width)
    order = np.arange(len(corners)) if confidences is None else np.argsort(confidences, kind="stable")
    pixels = clip_boxes(np.nan_to_num(corners), width - 1, height - 1).round().astype(int)
    for i in order:
        x1, y1, x2, y2 = map(int, pixels[i])
        cv2.rectangle(canvas, (x1, y1), (x2, y2), class_color(int(indices[i])), thickness)
    if labels:  # after all boxes, so that no line crosses a text
        for i in order:
            text = label_text(int(indices[i]), names, None if confidences is None else float(confidences[i]))
            x1, y1 = map(int, pixels[i, :2])
            _draw_label(canvas, text, x1, y1, class_color(int(indices[i])), thickness)
    return canvas


def draw_lines(image: NDArray[np.uint8], lines: Sequence[str]) -> NDArray[np.uint8]:
    """Write lines of text below each other into the upper left corner of a copy of an image.

    An image whose long side has fewer than 256 pixels is enlarged first, by the least whole factor that suffices. Lines
    that are too long are cut, and those for which there is no room below are left out; the first is always written.

    Args:
        image: (H, W, 3) uint8 BGR; not written into.
        lines: ASCII, the most important first; at least one.

    Returns:
        (kH, kW, 3) uint8 BGR, k = 1 unless it was enlarged.

    Raises:
        ValueError: If `image` is not (H, W, 3) uint8.
    """
    _check_image(image)
    enlarge = max(1, -(-_LEAST_SIDE_FOR_LINES // max(image.shape[:2])))
    canvas = np.ascontiguousarray(image.repeat(enlarge, axis=0).repeat(enlarge, axis=1))
    height = _text_height(canvas)
    scale, stroke, pad = _text_style(height)
    texts = [_cut_to_width(line, canvas.shape[1] - 2 * pad, scale, stroke) for line in lines]
    sizes = [cv2.getTextSize(text, _FONT, scale, stroke) for text in texts]
    # One height for all: lines whose letters reach below the baseline would lie farther apart than others.
    ascent = max(text_height for (_, text_height), _ in sizes)
    line_height = ascent + max(baseline for _, baseline in sizes) + pad
    width = max(text_width for (text_width, _), _ in sizes) + 2 * pad
    texts = texts[: max(1, canvas.shape[0] // line_height)]
    cv2.rectangle(canvas, (0, 0), (width - 1, len(texts) * line_height - 1), _BLACK, cv2.FILLED)
    for place, text in enumerate(texts):
        baseline_y = place * line_height + ascent + pad // 2
        cv2.putText(canvas, text, (pad, baseline_y), _FONT, scale, _WHITE, stroke, cv2.LINE_AA)
    return canvas


def label_text(index: int, names: Names, score: float | None = None) -> str:
    """What is written at a box: the class's name, or its number, and the score with two decimals."""
    known = index in names if isinstance(names, Mapping) else 0 <= index < len(names)
    name = _writable(names[index], index) if known else str(index)
    # Two spaces: in a proportional font one is too narrow to keep "class 3" and "0.29" apart.
    return name if score is None else f"{name}  {score:.2f}"


def draw_text(
    image: NDArray[np.uint8],
    text: str,
    x: int,
    y: int,
    *,
    color: Color = _WHITE,
    background: Color | None = None,
    height: int = 12,
) -> tuple[int, int]:
    """Write one line of text into `image`, moved and shrunk so that all of it is inside.

    Args:
        image: (H, W, 3) uint8 BGR, written into.
        text: ASCII.
        x: Left edge of the background, pixels.
        y: Top edge of the background, pixels.
        color: Of the letters.
        background: Of a filled rectangle behind them; None for none.
        height: Of a capital letter, pixels.

    Returns:
        Width and height taken up, margins included, pixels.
    """
    image_height, image_width = image.shape[:2]
    scale, stroke, pad = _text_style(height)
    (text_width, text_height), baseline = cv2.getTextSize(text, _FONT, scale, stroke)
    if text_width + 2 * pad > image_width:
        scale *= max(image_width - 2 * pad, 1) / text_width
        (text_width, text_height), baseline = cv2.getTextSize(text, _FONT, scale, stroke)
    box_width, box_height = text_width + 2 * pad, text_height + baseline + pad
    x = min(max(x, 0), max(image_width - box_width, 0))
    y = min(max(y, 0), max(image_height - box_height, 0))
    if background is not None:
        cv2.rectangle(image, (x, y), (x + box_width - 1, y + box_height - 1), background, cv2.FILLED)
    cv2.putText(image, text, (x + pad, y + text_height + pad // 2), _FONT, scale, color, stroke, cv2.LINE_AA)
    return box_width, box_height


def _check_image(image: NDArray[np.uint8]) -> None:
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
        raise ValueError(f"image is {image.shape} {image.dtype}; it should be (H, W, 3) uint8")


def _draw_label(canvas: NDArray[np.uint8], text: str, x1: int, y1: int, color: Color, thickness: int) -> None:
    """Write a label above the box's upper left corner, or inside the box where there is no room above."""
    height = _text_height(canvas)
    scale, stroke, pad = _text_style(height)
    (_, text_height), baseline = cv2.getTextSize(text, _FONT, scale, stroke)
    left = x1 - thickness // 2
    above = y1 - (text_height + baseline + pad)
    draw_text(canvas, text, left, above if above >= 0 else y1, color=text_color(color), background=color, height=height)


def _cut_to_width(text: str, width: int, scale: float, stroke: int) -> str:
    """The text, or as much of its beginning as fits with three dots behind it."""
    kept, shown = len(text), text
    while kept > 1 and cv2.getTextSize(shown, _FONT, scale, stroke)[0][0] > width:
        kept -= 1
        shown = text[:kept].rstrip() + "..."
    return shown


def _text_height(canvas: NDArray[np.uint8]) -> int:
    """Pixels of a capital letter that suit an image."""
    return max(_LEAST_TEXT_HEIGHT, round(sum(canvas.shape[:2]) / 2 * 0.017))


def _text_style(height: int) -> tuple[float, int, int]:
    """Font scale, stroke and margin for capital letters of `height` pixels."""
    stroke = max(1, round(height / 12))
    return cv2.getFontScaleFromHeight(_FONT, height, stroke), stroke, max(2, height // 4)


def _writable(name: Any, index: int) -> str:
    # OpenCV's own font has ASCII only; other letters would come out as question marks.
    text = unicodedata.normalize("NFKD", str(name))
    bare = "".join(letter for letter in text if not unicodedata.combining(letter))
    return bare if bare.isascii() and bare.isprintable() else f"class {index}"


def _relative_luminance(color: Color) -> float:
    blue, green, red = (
        channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4
        for channel in (value / 255 for value in color)
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
