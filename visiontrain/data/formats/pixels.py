"""What the formats share whose boxes are in pixels and whose classes go by name: COCO and Pascal VOC.

A reader makes a `LabelledImage` of each image; here the class list is settled and records are made of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from visiontrain.data.formats.files import ROUNDING, SHOWN, Remarks, clip_to_image, read_sizes
from visiontrain.errors import DataError
from visiontrain.sample import Record, Records

BEYOND_SHARE = 0.1
"""From this share of boxes beyond the image on, they are tried for corners instead of sizes."""


class PixelBox(NamedTuple):
    """One box as read."""

    box: tuple[float, ...]
    """(x1, y1, x2, y2), pixels; finite, but not yet known to lie in the image."""
    name: str
    """Of its class."""
    place: str
    """Where it was read, for messages."""


class LabelledImage(NamedTuple):
    """One image and its boxes as read."""

    path: Path
    boxes: Sequence[PixelBox]
    told_size: tuple[int, int] | None
    """Height and width by the label file; None where it tells none."""


def number_row(values: Sequence[Any]) -> tuple[float, ...] | None:
    """The values as four finite numbers; None where they are not."""
    if len(values) != 4 or not {*map(type, values)} <= {int, float}:  # neither True nor "1"
        return None
    try:
        row = tuple(map(float, values))
    except OverflowError:
        return None
    return row if all(map(math.isfinite, row)) else None


def class_list(
    names_of: Mapping[str, Sequence[str]], given: tuple[str, ...] | None, where: Path, *, word: str
) -> tuple[str, ...]:
    """The one class list of all splits.

    Args:
        names_of: The class names of each split, without repetition; the first split makes the list.
        given: The list that the user gave; it then holds for all splits.
        where: What he named, for messages.
        word: What a class is called in the format.

    Raises:
        DataError: If a split has classes that the list lacks, or no split has any.
    """
    leading = next(iter(names_of))
    names = tuple(names_of[leading]) if given is None else given
    owner = leading if given is None else "`names`"
    faults = []
    for split, found in names_of.items():
        lacking = [name for name in found if name not in set(names)]
        if lacking:
            faults.append(
                f"{where}: {split} has {len(lacking)} {word} that {owner} lacks: {first_of(list(map(repr, lacking)))}; "
                f"{owner} has {first_of(list(map(repr, names)))}; spell them alike, or give the "
                "whole list as `names` in a YAML"
            )
    if faults:
        raise DataError(faults)
    if not names:
        raise DataError(f"{where}: {leading} has no {word}; label at least one object")
    return names


def make_splits(
    images_of: Mapping[str, Sequence[LabelledImage]],
    names: tuple[str, ...],
    messages: list[str],
    remarks_of: Mapping[str, Remarks],
    *,
    are_sizes: bool,
) -> dict[str, Records]:
    """Records of the images that can be read, with boxes in fractions of them.

    Args:
        images_of: What was read of each split. Boxes are pixels of the picture itself, whatever size the labels tell.
        names: The class list; it holds the names of all boxes.
        messages: Told what was dropped or clipped.
        remarks_of: What was met in each split before.
        are_sizes: Whether the format writes corner, width, height; then two corners in their place are looked for.

    Raises:
        DataError: If no image of a split can be read, or all its boxes are in another unit; all faults at once.
    """
    found: dict[str, Records] = {}
    faults: list[str] = []
    for split, images in images_of.items():
        try:
            found[split] = _make_records(split, images, names, messages, remarks_of[split], are_sizes=are_sizes)
        except DataError as error:
            faults.extend(error.faults)
    if faults:
        raise DataError(faults)
    return found


def left_out(images_of: Mapping[str, Sequence[LabelledImage]], found: Mapping[str, Records]) -> dict[str, int]:
    """How many images of each split could not be read."""
    return {split: len(images_of[split]) - len(records) for split, records in found.items()}


def _make_records(
    split: str,
    images: Sequence[LabelledImage],
    names: tuple[str, ...],
    messages: list[str],
    remarks: Remarks,
    *,
    are_sizes: bool,
) -> Records:
    index_of = {name: index for index, name in enumerate(names)}
    repeated = len(images) - len({image.path for image in images})
    if repeated:
        messages.append(f"{split}: {repeated} images are listed more than once; each is used as often as it is listed")
    records: list[Record] = []
    readable: list[tuple[LabelledImage, tuple[int, int]]] = []
    for image, size in zip(images, read_sizes([image.path for image in images], remarks), strict=True):
        if size is None:
            continue
        readable.append((image, size))
        if image.told_size not in (None, size):
            told = "×".join(map(str, reversed(image.told_size or ())))
            remarks.add(
                "images that are not as large as their labels tell, boxes taken as pixels of the image itself",
                f"{image.path.name} (width × height {size[1]}×{size[0]}, labels {told})",
            )
        boxes: list[tuple[float, ...]] = []
        classes: list[int] = []
        height, width = size
        for box, name, place in image.boxes:
            x1, y1, x2, y2 = box
            clipped = clip_to_image((x1 / width, y1 / height, x2 / width, y2 / height), place, remarks)
            if clipped is not None:
                boxes.append(clipped)
                classes.append(index_of[name])
        records.append(
            Record(image.path, *size, np.array(boxes, np.float32).reshape(-1, 4), np.array(classes, np.int64))
        )
    fault = _unit_fault(split, readable, are_sizes=are_sizes)
    if fault is not None:
        raise DataError(fault)
    if not records:
        raise DataError(f"{split}: none of the {len(images)} images can be read; the first is {images[0].path}")
    messages.extend(remarks.lines(split))
    return Records(records)


def _unit_fault(split: str, images: Sequence[tuple[LabelledImage, tuple[int, int]]], *, are_sizes: bool) -> str | None:
    """What tells that all boxes of a split are written in another way than the format's; None if nothing does."""
    rows = [(row.box, size, row.place) for image, size in images for row in image.boxes if _has_area(row.box)]
    if not rows:
        return None
    box, _, place = rows[0]
    if all(max(map(abs, corners)) <= 1 + ROUNDING for corners, _, _ in rows):
        return (
            f"{split}: all {len(rows)} boxes hold fractions, such as {place} ({_written(box, are_sizes)}); multiply x "
            "and width by the image's width, y and height by its height"
        )
    beyond = [row for row in rows if row[0][2] > row[1][1] + 1 or row[0][3] > row[1][0] + 1]
    if are_sizes and len(beyond) > BEYOND_SHARE * len(rows) and all(_fits_as_corners(*row[:2]) for row in rows):
        box, _, place = beyond[0]
        return (
            f"{split}: {len(beyond)} of {len(rows)} boxes reach beyond the image, and all fit it when read as two "
            f"corners, such as {place} ({_written(box, are_sizes)}); write x, y, width, height"
        )
    return None


def _has_area(box: tuple[float, ...]) -> bool:
    return box[2] > box[0] and box[3] > box[1]


def _fits_as_corners(box: tuple[float, ...], size: tuple[int, int]) -> bool:
    """Whether x, y, width, height make sense as x1, y1, x2, y2."""
    x, y, right, bottom = box
    return x < right - x <= size[1] + 1 and y < bottom - y <= size[0] + 1


def _written(box: tuple[float, ...], are_sizes: bool) -> str:
    x1, y1, x2, y2 = box
    return " ".join(f"{number:g}" for number in ((x1, y1, x2 - x1, y2 - y1) if are_sizes else box))


def missing_fault(split: str, missing: Sequence[str], total: int, remedy: str) -> str:
    """The fault of a split whose label files name images that are not there."""
    return f"{split}: {len(missing)} of {total} images do not exist: {first_of(missing, '; ')}; {remedy}"


def first_of(texts: Sequence[str], separator: str = ", ") -> str:
    """The first few of many, and whether there are more."""
    return separator.join(texts[:SHOWN]) + (f"{separator}…" if len(texts) > SHOWN else "")
