"""What `check` found: as a document, in words, and as what its page shows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visiontrain.config.schema import Config
from visiontrain.data.check.labels import tiny_boxes
from visiontrain.data.check.rows import box_of_row
from visiontrain.data.check.statistics import SplitStatistics, statistics_document
from visiontrain.data.images import IMAGE_SUFFIXES, read_reduced
from visiontrain.errors import DataError
from visiontrain.findings import CODES, MOST_EXAMPLES, Finding, Findings, Tally
from visiontrain.loggers.tables import align
from visiontrain.report.check_page import Page, Picture, Place, Section
from visiontrain.report.thumbnails import LONG_SIDE, thumbnail
from visiontrain.sample import DataSet, Record

MOST_CLASSES = 40
"""Rows of the table on the terminal; the page has all."""


def check_document(
    data: DataSet, findings: Findings, statistics: Mapping[str, SplitStatistics], *, passed: bool, page: Path
) -> dict[str, Any]:
    """The document of `json=True`."""
    told = [(code, _finding_document(code, split, tally)) for code, split, tally in findings]
    return {
        "passed": passed,
        "data": str(data.source),
        "page": str(page),
        "names": list(data.names),
        "faults": list(data.faults),
        "notes": list(data.notes),
        "errors": [found for code, found in told if CODES[code].severity == "error"],
        "warnings": [found for code, found in told if CODES[code].severity == "warning"],
        "splits": {split: statistics_document(one, data.names) for split, one in statistics.items()},
    }


def check_lines(
    data: DataSet,
    findings: Findings,
    statistics: Mapping[str, SplitStatistics],
    document: Mapping[str, Any],
    *,
    is_short: bool = False,
) -> list[str]:
    """A table of splits and classes, every finding with its first places, and the verdict.

    Args:
        data: The data set.
        findings: Everything found.
        statistics: Of each split.
        document: `check_document` of the same.
        is_short: Whether the table and the notes are left out.
    """
    lines = [] if is_short else [str(data.source), *data.notes, "", *_table(data.names, statistics), ""]
    for code, split, tally in findings:
        where = f"{split}: " if split else ""
        lines.append(f"{CODES[code].severity}: {where}{tally.count} {CODES[code].says} [{code}]")
        lines += [f"    {place}" for place in tally.examples]
        if _has_more(tally):
            lines.append("    and more")
    lines += [f"unfit for training: {fault}" for fault in data.faults]
    return [*lines, f"{verdict_of(document)}; see {document['page']}"]


def verdict_of(document: Mapping[str, Any]) -> str:
    """One sentence."""
    errors, warnings = (_kinds(document[severity], severity) for severity in ("errors", "warnings"))
    if not document["passed"]:
        unfit = ", unfit for training" if document["faults"] else ""
        return f"FAILED: {errors}, {warnings}{unfit}"
    return f"PASSED: no errors, {warnings}" if document["warnings"] else "PASSED: nothing found"


def page_of(data: DataSet, findings: Findings, document: Mapping[str, Any], config: Config, *, stride: int) -> Page:
    """What the page shows; the images of the examples are read for it."""
    assert config.imgsz is not None
    examples = [example for _, _, tally in findings for example in tally.examples]
    shown = {path for example in examples for path in _images_of(example)}
    records = {
        str(record.path): record for split in data.splits.values() for record in split if str(record.path) in shown
    }
    album = _Album(records, data.names, imgsz=config.imgsz, stride=stride, max_pixels=config.max_pixels)
    sections = [
        Section(
            code,
            CODES[code].severity,
            split,
            tally.count,
            CODES[code].says,
            album.places(code, tally),
            has_more=_has_more(tally),
        )
        for code, split, tally in findings
    ]
    return Page(
        source=str(data.source),
        verdict=verdict_of(document),
        passed=document["passed"],
        faults=data.faults,
        notes=data.notes,
        sections=sections,
        splits=document["splits"],
        imgsz=config.imgsz,
    )


class _Album:
    """Draws the images that findings are about."""

    def __init__(
        self, records: Mapping[str, Record], names: tuple[str, ...], *, imgsz: int, stride: int, max_pixels: int
    ) -> None:
        """
        Args:
            records: By path; what is not in it is drawn without boxes.
            names: Class names.
            imgsz: Long side of the network's input, pixels.
            stride: Its smallest, pixels.
            max_pixels: Larger images are not drawn.
        """
        self._max_pixels = max_pixels
        self._records = records
        self._names = names
        self._imgsz = imgsz
        self._stride = stride

    def places(self, code: str, tally: Tally) -> list[Place]:
        """The examples of a finding, each with its pictures; none is shown twice."""
        shown: set[tuple[str, bytes]] = set()
        places = []
        for example in tally.examples:
            pictures = []
            for path in _images_of(example):
                marked = self._marked(code, example, path)
                if (path, marked.tobytes()) not in shown:
                    shown.add((path, marked.tobytes()))
                    pictures.append(self._picture(path, marked))
            places.append(Place(str(Finding(example.file, example.line)), example.text, pictures))
        return places

    def _marked(self, code: str, example: Finding, path: str) -> NDArray[np.floating]:
        """(M, 4) xyxy, fractions: the boxes that the finding is about, all tiny ones of an image together."""
        record = self._records.get(path)
        if code == "box-tiny" and record is not None:
            return record.boxes[tiny_boxes(record, imgsz=self._imgsz, stride=self._stride)]
        box = box_of_row(example.file, example.line)
        return np.zeros((0, 4)) if box is None else np.array([box])

    def _picture(self, path: str, marked: NDArray[np.floating]) -> Picture:
        name = Path(path).name
        try:
            image = read_reduced(path, LONG_SIDE, max_pixels=self._max_pixels)
        except DataError:
            return Picture(name, None)
        record = self._records.get(path)
        boxes = np.zeros((0, 4)) if record is None else record.boxes
        if record is None or not len(record.boxes):
            classes = np.zeros(0, np.int64)
            labels = () if record is None else record.classes.tolist()
            name = ": ".join(filter(None, (name, ", ".join(self._names[label] for label in labels))))
        else:
            classes = record.classes
        return Picture(name, thumbnail(image, boxes, classes, self._names, marked=marked))


def _images_of(example: Finding) -> list[str]:
    """The image files that an example is about: its file, its image, or both of two twins."""
    named = dict.fromkeys(filter(None, (example.file, example.image)))
    return [path for path in named if Path(path).suffix.lower() in IMAGE_SUFFIXES]


def _has_more(tally: Tally) -> bool:
    """Whether there are places that were not kept; one place may stand for many images."""
    return len(tally.examples) == MOST_EXAMPLES and tally.count > MOST_EXAMPLES


def _finding_document(code: str, split: str, tally: Tally) -> dict[str, Any]:
    return {
        "code": code,
        "split": split,
        "count": tally.count,
        "text": CODES[code].says,
        "examples": [{"file": one.file, "line": one.line, "text": one.text} for one in tally.examples],
    }


def _table(names: tuple[str, ...], statistics: Mapping[str, SplitStatistics]) -> list[str]:
    """Images, labels and classes of every split."""
    splits = list(statistics.values())

    def row(name: str, *values: object) -> tuple[str, ...]:
        return (name, *map(str, values))

    rows = [
        row("", *statistics),
        row("images", *(one.images for one in splits)),
        row("background", *(one.background for one in splits)),
        row("labels", *(one.labels for one in splits)),
    ]
    if any(one.boxes for one in splits):
        for size, what in (("small", "small (< 32²)"), ("medium", "medium"), ("large", "large (≥ 96²)")):
            rows.append(row(f"  {what}", *(getattr(one.boxes, size) if one.boxes else 0 for one in splits)))
    order = sorted(range(len(names)), key=lambda label: -max(one.class_labels[label] for one in splits))
    shown = sorted(order[:MOST_CLASSES])
    rows += [row(f"  {names[label]}", *(one.class_labels[label] for one in splits)) for label in shown]
    more = len(names) - len(shown)
    return [*align(rows).splitlines(), *([f"  and {more} classes with fewer labels"] if more else [])]


def _kinds(found: list[Any], what: str) -> str:
    total = sum(one["count"] for one in found)
    if not found:
        return f"no {what}"
    codes = len({one["code"] for one in found})
    return f"{total} {what if total != 1 else what[:-1]} of {codes} kind{'s' if codes != 1 else ''}"
