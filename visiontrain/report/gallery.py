"""The worst images of a split, as figures of a page: what they show, what was found there, and which of it is wrong.

Boxes lie over the picture as SVG, in pixels of the source image; the page's script judges them at any score.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import PurePath

from visiontrain.report.html import image_tag
from visiontrain.report.review import Box, Review, Shot

LONG_SIDE = 480
"""Most pixels of a picture in the page."""
MOST_SHOTS = 24
_LETTER = 12  # pixels of a letter where the picture is LONG_SIDE wide
_LEAST_SCORE = 0.05

_KINDS = (
    ("missed", "missed", True),
    ("false", "false alarm", True),
    ("wrong", "wrong class", True),
    ("hit", "found", True),
    ("seen", "labels of what was found", False),
)


def gallery(review: Review, pictures: Sequence[bytes | None]) -> str:
    """The figures, and what the boxes on them are judged by.

    Args:
        review: Whose gallery it is, worst first.
        pictures: A JPEG of each image; None where it cannot be read.
    """
    shots = list(zip(review.gallery, pictures, strict=True))[:MOST_SHOTS]
    figures = "".join(_figure(shot, jpeg, review.names) for shot, jpeg in shots)
    controls = _controls(review) if any(shot.has_boxes for shot, _ in shots) else ""
    return f'{controls}<div class="gallery">{figures}</div>'


def _controls(review: Review) -> str:
    best = review.threshold if math.isfinite(review.threshold) else 0.25
    least = min(_LEAST_SCORE, best)
    boxes = "".join(
        f'<label><input type="checkbox" value="{kind}"{" checked" if is_shown else ""}>'
        f'<span class="swatch {kind}"></span>{says}</label>'
        for kind, says, is_shown in _KINDS
    )
    return (
        '<div class="controls"><label>least score '
        f'<input type="range" id="score" min="{least:.3f}" max="1" step="0.005" value="{best:.3f}" '
        f'data-best="{best!r}" aria-describedby="score-shown"></label>'
        f'<output id="score-shown" for="score">{best:.3f}</output>'
        f'<button type="button" id="score-reset">at {best:.3f}, as in the tables</button>{boxes}</div>'
    )


def _figure(shot: Shot, jpeg: bytes | None, names: Sequence[str]) -> str:
    name = escape(PurePath(shot.path).name)
    if jpeg is None:
        picture = '<div class="unreadable">cannot be read any more</div>'
    else:
        overlay = _overlay(shot, names) if shot.has_boxes else ""
        picture = f'<div class="canvas">{image_tag(jpeg, PurePath(shot.path).name)}{overlay}</div>'
    if shot.has_boxes or not shot.probs:
        said = (
            f'<span class="tally">{shot.misses} missed, {shot.false_alarms} false '
            f"alarm{'' if shot.false_alarms == 1 else 's'}, {shot.wrong_classes} wrong class</span>"
        )
        is_boxes = jpeg is not None
    else:
        said, is_boxes = f"is {escape(', '.join(shot.labels) or 'of no class')}", False
    probs = "".join(_probability(name, prob, name in shot.labels) for name, prob in shot.probs)
    kind = ' class="boxes"' if is_boxes and shot.has_boxes else ""
    return (
        f"<figure{kind}>{picture}<figcaption><code>{name}</code><br>{said}</figcaption>"
        + (f'<ol class="probs">{probs}</ol>' if probs else "")
        + "</figure>"
    )


def _probability(name: str, prob: float, is_right: bool) -> str:
    kind = ' class="right"' if is_right else ""
    return (
        f'<li{kind} style="background-size: {min(max(prob, 0), 1):.1%} 100%"><span>{escape(name)}</span>'
        f"<span>{prob:.3f}</span></li>"
    )


def _overlay(shot: Shot, names: Sequence[str]) -> str:
    letter = _LETTER * max(shot.width, shot.height) / LONG_SIDE
    parts = [
        *_boxes(shot.crowds, "ignored crowd", names, letter),
        *_boxes(shot.ignored, "ignored once", names, letter),
        *_boxes(shot.truth, "truth", names, letter),
        *_boxes(shot.found, "found", names, letter),
    ]
    return (
        f'<svg viewBox="0 0 {shot.width} {shot.height}" preserveAspectRatio="none" aria-hidden="true" '
        f'font-size="{letter:.1f}">{"".join(parts)}</svg>'
    )


def _boxes(boxes: Iterable[Box], kind: str, names: Sequence[str], letter: float) -> Iterable[str]:
    is_truth = kind == "truth"
    for box in boxes:
        x1, y1, x2, y2 = (f"{side:.2f}".rstrip("0").rstrip(".") for side in box[:4])
        place = f'x="{x1}" y="{y1}" width="{box.x2 - box.x1:.2f}" height="{box.y2 - box.y1:.2f}"'
        score = "" if math.isnan(box.score) else f' data-score="{box.score!r}"'
        said = escape(names[box.label] + ("" if math.isnan(box.score) else f" {box.score:.2f}"))
        # What was found is named above its box and what is there below, so that both can be read.
        y = box.y2 - letter / 3 if is_truth else max(box.y1 - letter / 4, letter)
        yield (
            f'<g class="{kind}" data-label="{box.label}" data-box="{x1} {y1} {x2} {y2}"{score}>'
            f'<rect class="halo" {place}/><rect class="edge" {place}><title>{said}</title></rect>'
            f'<text x="{x1}" y="{y:.1f}">{said}</text></g>'
        )
