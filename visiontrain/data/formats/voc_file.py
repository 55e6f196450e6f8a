"""One XML file of the Pascal VOC format: the boxes of one image."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from visiontrain.data.formats.files import Place, Remarks
from visiontrain.data.formats.pixels import PixelBox, number_row
from visiontrain.errors import DataError

SIDES = ("xmin", "ymin", "xmax", "ymax")
OBJECT_TAG = re.compile(rb"<object[\s>]")


class VocFile(NamedTuple):
    """What an XML file tells of its image."""

    file_name: str
    """Of the image, without folders; empty where the file tells none."""
    told_size: tuple[int, int] | None
    """Height and width; None where the file tells none or 0."""
    boxes: tuple[PixelBox, ...]


def read_voc(path: Path, remarks: Remarks, image: Path | None = None) -> VocFile:
    """Read one file.

    xmin, ymin, xmax, ymax are the edges of the box in pixels, nothing subtracted: that is how labeling programs write
    them today. (Those of the Pascal VOC challenges themselves count from 1, so their left and top edges are one pixel
    too far right and down.) Objects marked difficult are boxes like any other to training, while scoring passes over
    them, as the challenges' rules have it. Objects marked truncated are boxes like any other.

    Args:
        path: The file.
        remarks: Told which objects are dropped, and why.
        image: The image that lies beside it, for remarks.

    Raises:
        DataError: If the file cannot be read or holds no `<annotation>`.
    """
    try:
        content = path.read_bytes()
        root = ElementTree.fromstring(content)
    except (OSError, ValueError, LookupError, ElementTree.ParseError) as error:
        raise DataError(f"{path}: cannot be read as XML ({error}); mend the file") from error
    if root.tag != "annotation":
        raise DataError(f"{path}: holds <{root.tag}>; a file of boxes starts with <annotation>")
    boxes: list[PixelBox] = []
    seen: set[tuple[object, ...]] = set()
    elements = root.findall("object")
    lines = _lines_of_objects(content, len(elements))
    for number, (element, line) in enumerate(zip(elements, lines, strict=True), 1):
        name = _text(element, "name")
        corners = element.find("bndbox")
        texts = ["" if corners is None else _text(corners, side) for side in SIDES]
        box = number_row([_number(text) for text in texts])
        place = Place(path, line, f"object {number}, {' '.join([name, *texts]).strip():.50}", image)
        if not name:
            place.note("row-no-name", remarks)
        elif box is None:
            place.note("row-no-box", remarks)
        elif (name, box) in seen:
            place.note("row-twice", remarks)
        else:
            seen.add((name, box))
            boxes.append(PixelBox(box, name, place, is_difficult=_text(element, "difficult") == "1"))
    file_name = _text(root, "filename").replace("\\", "/").rpartition("/")[2]
    return VocFile(file_name, _told_size(root), tuple(boxes))


def _lines_of_objects(content: bytes, count: int) -> Sequence[int | None]:
    """The line on which each object starts, from 1; unknown where tags stand in comments or in another encoding."""
    starts = [match.start() for match in OBJECT_TAG.finditer(content)]
    if len(starts) != count:
        return [None] * count
    return [content.count(b"\n", 0, start) + 1 for start in starts]


def _text(element: ElementTree.Element, tag: str) -> str:
    return (element.findtext(tag) or "").strip()


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _told_size(root: ElementTree.Element) -> tuple[int, int] | None:
    height, width = (_number(_text(root, f"size/{side}")) for side in ("height", "width"))
    return (int(height), int(width)) if 1 <= height < math.inf and 1 <= width < math.inf else None
