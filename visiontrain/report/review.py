"""What a split's scores say in detail, as pages and pictures read it: the document `review.json`, taken apart.

The document is made by the task and may lie on the disk for years, be edited or cut short. Each part of it is taken for
itself: one that is not what it should be is told and left out, and the others are shown.

Letters: C classes, K columns, T thresholds, R recalls.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

Part = TypeVar("Part")
Numbers = tuple[float, ...]
"""nan where there is no value."""

_WRONG = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError)
_MOST_BOXES = 1_000  # of an image; more cannot be looked at


class Box(NamedTuple):
    """A box of an image: of the ground truth, or found."""

    x1: float
    y1: float
    x2: float
    y2: float
    label: int
    """Index of the class."""
    score: float = math.nan


@dataclass(frozen=True)
class Table:
    """Scores of each class."""

    columns: tuple[str, ...]
    names: tuple[str, ...]
    rows: tuple[Numbers, ...]
    """(C, K)"""


@dataclass(frozen=True)
class Curves:
    """Of each class; None where it has no ground truth."""

    recall: Numbers
    """(R,)"""
    precision: tuple[Numbers | None, ...]
    """(C, R)"""
    thresholds: Numbers
    """(T,)"""
    f1: tuple[Numbers | None, ...]
    """(C, T)"""


@dataclass(frozen=True)
class Confusion:
    """What was taken for what."""

    counts: tuple[tuple[int, ...], ...]
    """Rows: truth; columns: what it was taken for."""
    row_names: tuple[str, ...]
    column_names: tuple[str, ...]
    threshold: float
    """Score from which a prediction counts; nan where all count."""


@dataclass(frozen=True)
class ErrorKind:
    """One kind of error."""

    kind: str
    says: str
    count: int
    gain: float
    """By how much the metric would rise if there were none."""


@dataclass(frozen=True)
class Calibration:
    """How often predictions are right that claim so much."""

    confidence: Numbers
    accuracy: Numbers
    counts: tuple[int, ...]


@dataclass(frozen=True)
class Shot:
    """An image of the gallery."""

    path: str
    width: int
    height: int
    truth: tuple[Box, ...] = ()
    ignored: tuple[Box, ...] = ()
    """What may be found or not, once."""
    crowds: tuple[Box, ...] = ()
    """Regions in which any number may be found or not."""
    found: tuple[Box, ...] = ()
    labels: tuple[str, ...] = ()
    """What the image as a whole is of."""
    probs: tuple[tuple[str, float], ...] = ()
    """What it was taken for, the most probable first."""
    misses: int = 0
    false_alarms: int = 0
    wrong_classes: int = 0

    @property
    def has_boxes(self) -> bool:
        return bool(self.truth or self.found or self.ignored or self.crowds)


@dataclass(frozen=True)
class Review:
    """Everything that is known of a split's scores; a part is None or empty where the task or the run has none."""

    task: str
    split: str
    images: int
    names: tuple[str, ...]
    instances: int | None = None
    threshold: float = math.nan
    """The score at which precision and recall are taken."""
    num_capped: int = 0
    """Images with so many candidates that some were never looked at."""
    summary: tuple[tuple[str, float], ...] = ()
    intervals: Mapping[str, tuple[float, float]] | None = None
    table: Table | None = None
    curves: Curves | None = None
    confusion: Confusion | None = None
    errors: tuple[ErrorKind, ...] = ()
    calibration: Calibration | None = None
    gallery: tuple[Shot, ...] = ()


def read_review(document: Any) -> tuple[Review | None, list[str]]:
    """The review that a document holds, and what of it is not what it should be, one line each."""
    faults: list[str] = []

    def part(name: str, read: Callable[[Any], Part], default: Part) -> Part:
        value = document.get(name)
        if value is None:
            return default
        try:
            return read(value)
        except _WRONG:
            faults.append(f"{name}: is damaged")
            return default

    try:
        task, split = str(document["task"]), str(document["split"])
        images, names = int(document["images"]), tuple(map(str, document["names"]))
    except _WRONG:
        return None, ["names neither task, split, images nor classes"]
    review = Review(
        task=task,
        split=split,
        images=images,
        names=names,
        instances=part("instances", int, None),
        threshold=part("threshold", _number, math.nan),
        num_capped=part("num_capped", int, 0),
        summary=part("summary", lambda value: tuple(zip(map(str, value), numbers(value.values()), strict=True)), ()),
        intervals=part("intervals", _intervals, None),
        table=part("rows", lambda rows: _table(document["columns"], rows), None),
        curves=part("curves", lambda value: _curves(value, len(names)), None),
        confusion=part("confusion", lambda value: _confusion(value, names), None),
        errors=part("errors", lambda value: tuple(map(_error_kind, value)), ()),
        calibration=part("calibration", _calibration, None),
        gallery=part("gallery", lambda value: tuple(_shot(one, names) for one in value), ()),
    )
    return review, faults


def numbers(values: Any) -> Numbers:
    """Plain numbers; nan for None.

    Raises:
        TypeError: If one is neither.
        ValueError: If one is not finite.
    """
    return tuple(math.nan if value is None else _number(value) for value in values)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError("not a number")
    if not math.isfinite(value):
        raise ValueError("not finite")
    return float(value)


def _counts(values: Any) -> tuple[int, ...]:
    counts = tuple(int(_number(value)) for value in values)
    _check(all(count >= 0 for count in counts))
    return counts


def _check(is_right: bool) -> None:
    if not is_right:
        raise ValueError("parts do not fit together")


def _intervals(value: Any) -> dict[str, tuple[float, float]]:
    return {str(name): (_number(low), _number(high)) for name, (low, high) in value.items()}


def _table(columns: Any, rows: Any) -> Table:
    names = tuple(map(str, columns))
    return Table(
        names, tuple(str(row["name"]) for row in rows), tuple(numbers(row[name] for name in names) for row in rows)
    )


def _curves(value: Any, num_classes: int) -> Curves:
    curves = Curves(
        numbers(value["recall"]), _each(value["precision"]), numbers(value["thresholds"]), _each(value["f1"])
    )
    for x, lines in ((curves.recall, curves.precision), (curves.thresholds, curves.f1)):
        _check(len(lines) == num_classes and all(line is None or len(line) == len(x) for line in lines))
        _check(all(map(math.isfinite, x)) and len(x) > 1)
    return curves


def _each(lines: Any) -> tuple[Numbers | None, ...]:
    return tuple(None if line is None else numbers(line) for line in lines)


def _confusion(value: Any, names: Sequence[str]) -> Confusion:
    """Beyond the classes there may be a row for background, and a column for what was missed."""
    counts = tuple(map(_counts, value["counts"]))
    widths = {len(row) for row in counts}
    _check(len(counts) in (len(names), len(names) + 1) and widths <= {len(names), len(names) + 1} and len(widths) == 1)
    return Confusion(
        counts,
        row_names=(*names, "background")[: len(counts)],
        column_names=(*names, "missed")[: widths.pop()],
        threshold=math.nan if value.get("threshold") is None else _number(value["threshold"]),
    )


def _error_kind(value: Any) -> ErrorKind:
    gain = math.nan if value["gain"] is None else _number(value["gain"])
    return ErrorKind(str(value["kind"]), str(value["says"]), int(value["count"]), gain)


def _calibration(value: Any) -> Calibration:
    parts = Calibration(numbers(value["confidence"]), numbers(value["accuracy"]), _counts(value["counts"]))
    _check(len(parts.confidence) == len(parts.accuracy) == len(parts.counts))
    return parts


def _shot(value: Any, names: Sequence[str]) -> Shot:
    shot = Shot(
        path=str(value["path"]),
        width=int(value["width"]),
        height=int(value["height"]),
        truth=_boxes(value.get("truth", ()), names),
        ignored=_boxes(value.get("ignored", ()), names),
        crowds=_boxes(value.get("crowds", ()), names),
        found=_boxes(value.get("found", ()), names, has_score=True),
        labels=tuple(map(str, value.get("labels", ()))),
        probs=tuple((str(name), _number(prob)) for name, prob in value.get("probs", ())),
        misses=int(value.get("misses", 0)),
        false_alarms=int(value.get("false_alarms", 0)),
        wrong_classes=int(value.get("wrong_classes", 0)),
    )
    _check(shot.width > 0 and shot.height > 0)
    return shot


def _boxes(value: Any, names: Sequence[str], *, has_score: bool = False) -> tuple[Box, ...]:
    boxes = []
    for row in value[:_MOST_BOXES]:
        *corners, label = row if not has_score else (*row[:4], row[5])
        x1, y1, x2, y2 = map(_number, corners)
        box = Box(x1, y1, x2, y2, int(label), _number(row[4]) if has_score else math.nan)
        _check(all(map(math.isfinite, box[:4])) and 0 <= box.label < len(names))
        boxes.append(box)
    return tuple(boxes)
