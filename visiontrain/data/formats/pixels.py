"""What the formats share whose boxes are in pixels and whose classes go by name: COCO and Pascal VOC.

A reader makes a `LabelledImage` of each image; here the class list is settled and records are made of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from visiontrain.data.formats.files import (
    ROUNDING,
    SHOWN,
    Place,
    Remarks,
    clip_box,
    clip_to_image,
    note_repeats,
    read_sizes,
)
from visiontrain.data.images import MAX_PIXELS
from visiontrain.errors import DataError
from visiontrain.sample import Record, Records, ScoringLabels

BEYOND_SHARE = 0.1
"""From this share of boxes beyond the image on, they are tried for corners instead of sizes."""


class PixelBox(NamedTuple):
    """One box as read."""

    box: tuple[float, ...]
    """(x1, y1, x2, y2), pixels; finite, but not yet known to lie in the image."""
    name: str
    """Of its class."""
    place: Place
    """Where it was read, for remarks."""
    area: float = math.nan
    """Square pixels of the object, where the label tells."""
    is_difficult: bool = False
    """Whether it need not be found."""


class LabelledImage(NamedTuple):
    """One image and its boxes as read."""

    path: Path
    boxes: Sequence[PixelBox]
    told_size: tuple[int, int] | None
    """Height and width by the label file; None where it tells none."""
    crowds: Sequence[PixelBox] = ()
    """Regions of any number of objects: no labels, but scoring passes over what is found in them."""


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
    remarks_of: Mapping[str, Remarks],
    *,
    are_sizes: bool,
    max_pixels: int = MAX_PIXELS,
) -> dict[str, Records]:
    """Records of the images that can be read, with boxes in fractions of them; a split without any is left out.

    Args:
        images_of: What was read of each split. Boxes are pixels of the picture itself, whatever size the labels tell.
        names: The class list; it holds the names of all boxes.
        remarks_of: Told what was dropped or clipped, and what makes a split unfit: all its images cannot be read, or
            all its boxes are in another unit.
        are_sizes: Whether the format writes corner, width, height; then two corners in their place are looked for.
        max_pixels: A larger image is left out.
    """
    index_of = {name: index for index, name in enumerate(names)}
    found: dict[str, Records] = {}
    for split, images in images_of.items():
        remarks = remarks_of[split]
        paths = [image.path for image in images]
        note_repeats(paths, remarks)
        sizes = read_sizes(paths, remarks, max_pixels=max_pixels)
        readable = [(image, size) for image, size in zip(images, sizes, strict=True) if size is not None]
        records = [_make_record(image, size, index_of, remarks) for image, size in readable]
        _check_unit(readable, remarks, are_sizes=are_sizes)
        if records:
            found[split] = Records(records)
        elif images:
            remarks.refuse(f"none of the {len(images)} images can be read; the first is {paths[0]}")
    return found


def _make_record(image: LabelledImage, size: tuple[int, int], index_of: Mapping[str, int], remarks: Remarks) -> Record:
    height, width = size
    if image.told_size not in (None, size):
        told = "×".join(map(str, reversed(image.told_size or ())))
        remarks.add("image-size", image.path, text=f"width × height {width}×{height}, labels {told}")
    labels: list[tuple[tuple[float, ...], PixelBox]] = []
    for label in image.boxes:
        clipped = clip_to_image(_fractions(label.box, width, height), label.place, remarks)
        if clipped is not None:
            labels.append((clipped, label))
    boxes, classes = _arrays(labels, index_of)
    return Record(image.path, *size, boxes, classes, _scoring_labels(image, size, labels, index_of))


def _scoring_labels(
    image: LabelledImage,
    size: tuple[int, int],
    labels: Sequence[tuple[tuple[float, ...], PixelBox]],
    index_of: Mapping[str, int],
) -> ScoringLabels | None:
    """What is known beside the boxes, if anything; `labels` are those kept, each after its clipped box."""
    height, width = size
    areas = np.array([label.area for _, label in labels], np.float64)
    is_difficult = np.array([label.is_difficult for _, label in labels], bool)
    clipped = [(clip_box(_fractions(crowd.box, width, height)), crowd) for crowd in image.crowds]
    crowds = [(box, crowd) for box, crowd in clipped if box is not None and crowd.name in index_of]
    if not crowds and not is_difficult.any() and np.isnan(areas).all():
        return None
    return ScoringLabels(areas, is_difficult, *_arrays(crowds, index_of))


def _fractions(box: tuple[float, ...], width: int, height: int) -> tuple[float, ...]:
    x1, y1, x2, y2 = box
    return x1 / width, y1 / height, x2 / width, y2 / height


def _arrays(
    labels: Sequence[tuple[tuple[float, ...], PixelBox]], index_of: Mapping[str, int]
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Boxes (N, 4) and classes (N,)."""
    boxes = np.array([box for box, _ in labels], np.float32).reshape(-1, 4)
    return boxes, np.array([index_of[label.name] for _, label in labels], np.int64)


def _check_unit(images: Sequence[tuple[LabelledImage, tuple[int, int]]], remarks: Remarks, *, are_sizes: bool) -> None:
    """Note it where all boxes of a split seem to be written in another way than the format's."""
    rows = [(row.box, size, row.place) for image, size in images for row in image.boxes if _has_area(row.box)]
    if not rows:
        return
    box, _, place = rows[0]
    if all(max(map(abs, corners)) <= 1 + ROUNDING for corners, _, _ in rows):
        place.note("box-in-fractions", remarks, count=len(rows))
        remarks.refuse(
            f"all {len(rows)} boxes hold fractions, such as {place} ({_written(box, are_sizes)}); multiply x "
            "and width by the image's width, y and height by its height"
        )
        return
    beyond = [row for row in rows if row[0][2] > row[1][1] + 1 or row[0][3] > row[1][0] + 1]
    if are_sizes and len(beyond) > BEYOND_SHARE * len(rows) and all(_fits_as_corners(*row[:2]) for row in rows):
        box, _, place = beyond[0]
        place.note("box-as-corners", remarks, count=len(beyond))
        remarks.refuse(
            f"{len(beyond)} of {len(rows)} boxes reach beyond the image, and all fit it when read as two "
            f"corners, such as {place} ({_written(box, are_sizes)}); write x, y, width, height"
        )


def _has_area(box: tuple[float, ...]) -> bool:
    return box[2] > box[0] and box[3] > box[1]


def _fits_as_corners(box: tuple[float, ...], size: tuple[int, int]) -> bool:
    """Whether x, y, width, height make sense as x1, y1, x2, y2."""
    x, y, right, bottom = box
    return x < right - x <= size[1] + 1 and y < bottom - y <= size[0] + 1


def _written(box: tuple[float, ...], are_sizes: bool) -> str:
    x1, y1, x2, y2 = box
    return " ".join(f"{number:g}" for number in ((x1, y1, x2 - x1, y2 - y1) if are_sizes else box))


def missing_fault(missing: Sequence[str], total: int, remedy: str) -> str:
    """The fault of a split whose label files name images that are not there."""
    return f"{len(missing)} of {total} images do not exist: {first_of(missing, '; ')}; {remedy}"


def first_of(texts: Sequence[str], separator: str = ", ") -> str:
    """The first few of many, and whether there are more."""
    return separator.join(texts[:SHOWN]) + (f"{separator}…" if len(texts) > SHOWN else "")
