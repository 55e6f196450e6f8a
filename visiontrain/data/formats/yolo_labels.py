"""Label files of the YOLO text format: where they lie, and what their rows mean.

A row is `class cx cy w h`, in fractions of the image, with or without a confidence behind it, or a polygon
`class x1 y1 x2 y2 x3 y3 …`, of which the upright hull is taken.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from visiontrain.data.formats.files import Place, Remarks, clip_to_image, folder_listing
from visiontrain.data.images import IMAGE_SUFFIXES
from visiontrain.findings import Finding, Tally

PIXEL_VALUE = 2.0
"""A coordinate above this is no fraction of an image."""
PIXEL_SHARE = 0.1
"""From this share of rows in pixels on, the whole split is taken to be in pixels, which is an error."""
OTHER_TEXTS = frozenset({"classes", "labels", "names", "obj", "readme", "notes", "license", "train", "val", "test"})
"""Stems of text files that lie beside label files by custom and are none."""


def is_shape(count: int) -> bool:
    """Whether so many numbers behind the class of a row may be a box, with or without a confidence, or a polygon."""
    return count in (4, 5) or (count >= 6 and count % 2 == 0)


def hull_of(numbers: Sequence[float]) -> tuple[float, float, float, float]:
    """x1, y1, x2, y2 of what stands behind the class of a row, in its unit, unclipped; `is_shape` holds."""
    if len(numbers) <= 5:
        x, y, width, height = numbers[:4]
        return x - width / 2, y - height / 2, x + width / 2, y + height / 2
    xs, ys = numbers[::2], numbers[1::2]
    return min(xs), min(ys), max(xs), max(ys)


class LabelFinder:
    """Finds the label file of each image, listing every folder once."""

    def __init__(self, images: Sequence[Path]) -> None:
        self._images = images
        self._candidates: dict[Path, list[Path]] = {}
        self._listings: dict[Path, frozenset[str]] = {}

    def find(self, image: Path) -> Path | None:
        """The label file, or None: the image then counts as background."""
        name = image.stem + ".txt"
        for folder in self._label_folders(image.parent):
            if name in self._listing(folder):
                return folder / name
        return None

    def check(self, remarks: Remarks) -> None:
        """Note, folder by folder, how many images have no label file; where none of `train` has, a path is wrong."""
        total: Counter[Path] = Counter(image.parent for image in self._images)
        without = [image for image in self._images if self.find(image) is None]
        if remarks.split == "train" and len(without) == len(self._images):
            first = self._images[0]
            looked = self._label_folders(first.parent)
            where = " and ".join(map(str, looked))
            remarks.add("label-missing-all", first, text=f"looked for in {where}", count=len(without))
            remarks.refuse(
                f"none of its {len(self._images)} images has a label file; for {first.name} it was looked for in "
                f"{where}; put {first.stem}.txt into one of these (an empty file marks a background image; if folders "
                "are classes, type task=classify); "
                f"{folder_listing(looked[0].parent)}"
            )
            return
        for folder, count in Counter(image.parent for image in without).items():
            if count == total[folder]:
                remarks.add("label-missing-folder", folder, text=f"{count} images")
                continue
            first = next(image for image in without if image.parent == folder)
            remarks.add("label-missing", folder, text=f"{count} of {total[folder]}, such as {first.name}", count=count)

    def check_leftovers(self, remarks: Remarks) -> None:
        """Note label files for which no image lies where it should."""
        images_of: dict[Path, set[str]] = {}
        for folder in dict.fromkeys(image.parent for image in self._images):
            names = {Path(name).stem for name in self._listing(folder) if Path(name).suffix.lower() in IMAGE_SUFFIXES}
            for label_folder in self._label_folders(folder):
                images_of.setdefault(label_folder, set()).update(names)
        for label_folder, stems in images_of.items():
            labels = {name[:-4] for name in self._listing(label_folder) if name.endswith(".txt") and name[0] != "."}
            for stem in sorted(labels - stems):
                path = label_folder / f"{stem}.txt"
                if stem.lower().split(".")[0] not in OTHER_TEXTS and path not in images_of and _holds_rows(path):
                    remarks.add("label-without-image", path)

    def _label_folders(self, folder: Path) -> list[Path]:
        """`…/images/…` → `…/labels/…`, for the last `images` first, then the folder of the images itself."""
        if folder not in self._candidates:
            parts = folder.parts
            places = [place for place, part in enumerate(parts) if part == "images"]
            swapped = [Path(*parts[:place], "labels", *parts[place + 1 :]) for place in reversed(places)]
            self._candidates[folder] = [*swapped, folder]
        return self._candidates[folder]

    def _listing(self, folder: Path) -> frozenset[str]:
        """The names of what lies in a folder, apart from folders."""
        if folder not in self._listings:
            names: list[str] = []
            if folder.is_dir():
                with os.scandir(folder) as entries:
                    names = [entry.name for entry in entries if not entry.is_dir()]
            self._listings[folder] = frozenset(names)
        return self._listings[folder]


def _holds_rows(path: Path) -> bool:
    """Whether a text file begins like a label file, or is empty."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            fields = file.readline().split()
        return all(math.isfinite(float(field)) for field in fields) and len(fields) != 1
    except (OSError, ValueError):
        return False


class LabelReader:
    """Reads label files of one split and notes what is wrong with them."""

    def __init__(self, num_classes: int, remarks: Remarks) -> None:
        self._num_classes = num_classes
        self._remarks = remarks
        self._unreadable = Tally()
        self._bad_classes = Tally()
        self._pixel_rows = Tally()
        self._seen_classes: Counter[float] = Counter()
        self._num_rows = 0

    @staticmethod
    def nothing() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """The labels of a background image."""
        return np.zeros((0, 4), np.float32), np.zeros(0, np.int64)

    def read(self, path: Path, image: Path) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Read one file.

        Args:
            path: The label file.
            image: The image it belongs to, for remarks.

        Returns:
            (N, 4) float32 xyxy in fractions of the image, within [0, 1], and (N,) int64 classes.
        """
        try:
            text = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            self._unreadable.add(Finding(str(path), text=str(error), image=str(image)))
            return self.nothing()
        boxes: list[tuple[float, ...]] = []
        classes: list[int] = []
        seen: set[tuple[float, ...]] = set()
        # `splitlines` ends a line at form feeds and the like, too; the numbers would not be those that editors show.
        for number, line in enumerate(text.split("\n"), 1):
            row = self._numbers(line, Place(path, number, "", image))
            if row is None:
                continue
            place = Place(path, number, line.strip()[:60], image)
            if row in seen:
                place.note("row-twice", self._remarks)
                continue
            seen.add(row)
            box = self._box(row, place)
            if box is not None and self._is_class(row[0], place):
                boxes.append(box)
                classes.append(int(row[0]))
        if not boxes:
            return self.nothing()
        return np.array(boxes, np.float32), np.array(classes, np.int64)

    def check(self) -> None:
        """Note what makes the split unusable: a file that cannot be read, unknown classes, coordinates in pixels."""
        remarks, findings = self._remarks, self._remarks.findings
        findings.put("label-unreadable", remarks.split, self._unreadable)
        if self._unreadable.count:
            remarks.refuse(
                f"{self._unreadable.count} label files cannot be read: {self._unreadable}; save them as UTF-8 text"
            )
        is_from_one = self._counts_from_one()
        findings.put("class-from-one" if is_from_one else "class-unknown", remarks.split, self._bad_classes)
        if self._bad_classes.count:
            hint = (
                f"all classes are 1 to {self._num_classes}: count from 0, subtract 1 from each"
                if is_from_one
                else "correct the rows, or add the missing names to the YAML"
            )
            remarks.refuse(
                f"{self._bad_classes.count} rows have a class that is not one of 0 to {self._num_classes - 1}: "
                f"{self._bad_classes}; {hint}"
            )
        is_in_pixels = self._pixel_rows.count > PIXEL_SHARE * self._num_rows
        findings.put("box-in-pixels" if is_in_pixels else "box-outside", remarks.split, self._pixel_rows)
        if is_in_pixels:
            remarks.refuse(
                f"{self._pixel_rows.count} of {self._num_rows} rows hold pixels: {self._pixel_rows}; "
                "divide x and width by the image's width, y and height by its height"
            )

    def _numbers(self, line: str, place: Place) -> tuple[float, ...] | None:
        """The numbers of a row; None, with a remark, where they do not make one."""
        fields = line.split()
        if not fields:
            return None
        self._num_rows += 1
        try:
            row = tuple(map(float, fields))
        except ValueError:
            place.note("row-not-numbers", self._remarks, repr(line.strip()[:40]))
            return None
        if not is_shape(len(row) - 1):
            place.note("row-wrong-length", self._remarks, f"{len(row)} numbers")
            return None
        if not all(map(math.isfinite, row)):
            place.note("row-not-finite", self._remarks, line.strip()[:60])
            return None
        return row

    def _box(self, row: tuple[float, ...], place: Place) -> tuple[float, ...] | None:
        """The box of a row, (x1, y1, x2, y2) within [0, 1]; None, noted, where there is none."""
        if max(map(abs, row[1:5] if len(row) == 6 else row[1:])) > PIXEL_VALUE:
            self._pixel_rows.add(place.finding())
            return None
        return clip_to_image(hull_of(row[1:]), place, self._remarks)

    def _is_class(self, number: float, place: Place) -> bool:
        self._seen_classes[number] += 1
        if number == int(number) and 0 <= number < self._num_classes:
            return True
        self._bad_classes.add(Finding(str(place.file), place.line, f"class {number:g}", str(place.image)))
        return False

    def _counts_from_one(self) -> bool:
        seen = self._seen_classes
        return bool(seen) and min(seen) == 1 and max(seen) == self._num_classes
