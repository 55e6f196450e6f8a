"""Label files of the YOLO text format: where they lie, and what their rows mean.

A row is `class cx cy w h`, in fractions of the image, with or without a confidence behind it, or a polygon
`class x1 y1 x2 y2 x3 y3 …`, of which the upright hull is taken.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from visiontrain.data.formats.files import SHOWN, Remarks, clip_to_image, folder_listing
from visiontrain.errors import DataError

PIXEL_VALUE = 2.0
"""A coordinate above this is no fraction of an image."""
PIXEL_SHARE = 0.1
"""From this share of rows in pixels on, the whole split is taken to be in pixels, which is an error."""


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

    def check(self, split: str, messages: list[str]) -> None:
        """Tell how many images have no label file.

        Raises:
            DataError: If none of `train` has: a path is wrong then.
        """
        total: Counter[Path] = Counter(image.parent for image in self._images)
        without: Counter[Path] = Counter(image.parent for image in self._images if self.find(image) is None)
        if split == "train" and without.total() == len(self._images):
            looked = [str(folder) for folder in self._label_folders(self._images[0].parent)]
            raise DataError(
                f"{split}: none of its {len(self._images)} images has a label file; for {self._images[0].name} it was "
                f"looked for in {' and '.join(looked)}; put {self._images[0].stem}.txt into one of these "
                f"(an empty file marks a background image); {folder_listing(Path(looked[0]).parent)}"
            )
        for folder, count in without.items():
            share = f"all {count}" if count == total[folder] else f"{count} of {total[folder]}"
            messages.append(f"{split}: {folder}: {share} images have no label file and count as background")

    def _label_folders(self, folder: Path) -> list[Path]:
        """`…/images/…` → `…/labels/…`, for the last `images` first, then the folder of the images itself."""
        if folder not in self._candidates:
            parts = folder.parts
            places = [place for place, part in enumerate(parts) if part == "images"]
            swapped = [Path(*parts[:place], "labels", *parts[place + 1 :]) for place in reversed(places)]
            self._candidates[folder] = [*swapped, folder]
        return self._candidates[folder]

    def _listing(self, folder: Path) -> frozenset[str]:
        if folder not in self._listings:
            names = (entry.name for entry in folder.iterdir()) if folder.is_dir() else ()
            self._listings[folder] = frozenset(names)
        return self._listings[folder]


class LabelReader:
    """Reads label files of one split and gathers what is wrong with them."""

    def __init__(self, num_classes: int, remarks: Remarks) -> None:
        self._num_classes = num_classes
        self._remarks = remarks
        self._faults: list[str] = []
        self._bad_classes: list[str] = []
        self._pixel_rows: list[str] = []
        self._seen_classes: Counter[float] = Counter()
        self._num_rows = 0

    @staticmethod
    def nothing() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """The labels of a background image."""
        return np.zeros((0, 4), np.float32), np.zeros(0, np.int64)

    def read(self, path: Path) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Read one file.

        Returns:
            (N, 4) float32 xyxy in fractions of the image, within [0, 1], and (N,) int64 classes.
        """
        try:
            text = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            self._faults.append(f"{path}: cannot be read ({error}); save it as UTF-8 text")
            return self.nothing()
        boxes: list[tuple[float, ...]] = []
        classes: list[int] = []
        seen: set[tuple[float, ...]] = set()
        for number, line in enumerate(text.splitlines(), 1):
            place = f"{path}:{number}"
            row = self._numbers(line, place)
            if row is None:
                continue
            if row in seen:
                self._remarks.add("rows that repeat another one exactly, dropped", place)
                continue
            seen.add(row)
            box = self._box(row, place)
            if box is not None and self._is_class(row[0], place):
                boxes.append(box)
                classes.append(int(row[0]))
        if not boxes:
            return self.nothing()
        return np.array(boxes, np.float32), np.array(classes, np.int64)

    def check(self, split: str) -> None:
        """Tell what makes the split unusable.

        Raises:
            DataError: If a file could not be read, a class is out of range, or coordinates are in pixels.
        """
        faults = list(self._faults)
        if self._bad_classes:
            faults.append(
                f"{split}: {len(self._bad_classes)} rows have a class that is not one of 0 to "
                f"{self._num_classes - 1}: {_shown(self._bad_classes)}; {self._class_hint()}"
            )
        if len(self._pixel_rows) > PIXEL_SHARE * self._num_rows:
            faults.append(
                f"{split}: {len(self._pixel_rows)} of {self._num_rows} rows hold pixels: {_shown(self._pixel_rows)}; "
                "divide x and width by the image's width, y and height by its height"
            )
        else:
            for place in self._pixel_rows:
                self._remarks.add("rows far outside the image (in pixels?), dropped", place)
        if faults:
            raise DataError(faults)

    def _numbers(self, line: str, place: str) -> tuple[float, ...] | None:
        """The numbers of a row; None, with a remark, where they do not make one."""
        fields = line.split()
        if not fields:
            return None
        self._num_rows += 1
        try:
            row = tuple(map(float, fields))
        except ValueError:
            self._remarks.add("rows that are not numbers, dropped", f"{place} ({line.strip()[:40]!r})")
            return None
        is_box, is_polygon = len(row) in (5, 6), len(row) >= 7 and len(row) % 2 == 1
        if not (is_box or is_polygon):
            self._remarks.add("rows of neither a box (5 or 6 numbers) nor a polygon, dropped", place)
            return None
        if not all(map(math.isfinite, row)):
            self._remarks.add("rows with NaN or infinity, dropped", place)
            return None
        return row

    def _box(self, row: tuple[float, ...], place: str) -> tuple[float, ...] | None:
        """The box of a row, (x1, y1, x2, y2) within [0, 1]; None, noted, where there is none."""
        if max(map(abs, row[1:5] if len(row) == 6 else row[1:])) > PIXEL_VALUE:
            self._pixel_rows.append(f"{place} ({' '.join(f'{number:g}' for number in row[:5])})")
            return None
        if len(row) <= 6:
            x, y, width, height = row[1:5]
            box = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
        else:
            xs, ys = row[1::2], row[2::2]
            box = (min(xs), min(ys), max(xs), max(ys))
        return clip_to_image(box, place, self._remarks)

    def _is_class(self, number: float, place: str) -> bool:
        self._seen_classes[number] += 1
        if number == int(number) and 0 <= number < self._num_classes:
            return True
        self._bad_classes.append(f"{place} (class {number:g})")
        return False

    def _class_hint(self) -> str:
        is_from_one = min(self._seen_classes) == 1 and max(self._seen_classes) == self._num_classes
        if is_from_one:
            return f"all classes are 1 to {self._num_classes}: count from 0, subtract 1 from each"
        return "correct the rows, or add the missing names to the YAML"


def _shown(places: Sequence[str]) -> str:
    return ", ".join(places[:SHOWN]) + (", …" if len(places) > SHOWN else "")
