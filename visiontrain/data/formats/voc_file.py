"""One XML file of the Pascal VOC format: the boxes of one image."""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from visiontrain.data.formats.files import Remarks
from visiontrain.data.formats.pixels import PixelBox, number_row
from visiontrain.errors import DataError

SIDES = ("xmin", "ymin", "xmax", "ymax")


class VocFile(NamedTuple):
    """What an XML file tells of its image."""

    file_name: str
    """Of the image, without folders; empty where the file tells none."""
    told_size: tuple[int, int] | None
    """Height and width; None where the file tells none or 0."""
    boxes: tuple[PixelBox, ...]


def read_voc(path: Path, remarks: Remarks) -> VocFile:
    """Read one file.

    xmin, ymin, xmax, ymax are the edges of the box in pixels, nothing subtracted: that is how labeling programs write
    them today. (Those of the Pascal VOC challenges themselves count from 1, so their left and top edges are one pixel
    too far right and down.) Objects marked difficult or truncated are boxes like any other.

    Args:
        path: The file.
        remarks: Told which objects are dropped, and why.

    Raises:
        DataError: If the file cannot be read or holds no `<annotation>`.
    """
    try:
        root = ElementTree.fromstring(path.read_bytes())
    except (OSError, ValueError, LookupError, ElementTree.ParseError) as error:
        raise DataError(f"{path}: cannot be read as XML ({error}); mend the file") from error
    if root.tag != "annotation":
        raise DataError(f"{path}: holds <{root.tag}>; a file of boxes starts with <annotation>")
    boxes: list[PixelBox] = []
    seen: set[tuple[object, ...]] = set()
    for number, element in enumerate(root.findall("object"), 1):
        place = f"{path}: object {number}"
        name = _text(element, "name")
        corners = element.find("bndbox")
        texts = ["" if corners is None else _text(corners, side) for side in SIDES]
        box = number_row([_number(text) for text in texts])
        if not name:
            remarks.add("objects without a name, dropped", place)
        elif box is None:
            remarks.add("objects without a bndbox of four finite numbers, dropped", f"{place} ({' '.join(texts):.40})")
        elif (name, box) in seen:
            remarks.add("objects that repeat another one exactly, dropped", place)
        else:
            seen.add((name, box))
            written = " ".join(f"{number:g}" for number in box)
            boxes.append(PixelBox(box, name, f"{place} ({name} {written})"))
    file_name = _text(root, "filename").replace("\\", "/").rpartition("/")[2]
    return VocFile(file_name, _told_size(root), tuple(boxes))


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
