"""What readers of all formats share: finding images, reading their sizes, gathering remarks."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from visiontrain.data.images import IMAGE_SUFFIXES, MAX_PIXELS, TooLargeError, image_size
from visiontrain.errors import DataError
from visiontrain.findings import Finding, Findings
from visiontrain.sample import Records

SHOWN = 5
"""Examples given with each kind of remark; the count is always told."""
HEADER_THREADS = 8
ROUNDING = 1e-3
"""Overflow of the image, in fractions of it, that is clipped without a remark: coordinates are often rounded."""
COMPANION_SUFFIXES = frozenset(["", ".txt", ".json", ".xml", ".csv", ".md", ".yaml", ".yml", ".cache", ".npy", ".db"])
"""Files that lie beside images by custom; not worth a remark."""


@dataclass(frozen=True)
class Remarks:
    """What a reader has to say of one split."""

    split: str
    findings: Findings
    """Of the data set: those of all splits."""
    faults: list[str] = field(default_factory=list)
    """What makes the split unfit for training, one sentence each. Splits that are read side by side may share it."""

    def add(
        self, code: str, file: object, line: int | None = None, text: str = "", *, image: object = None, count: int = 1
    ) -> None:
        """Note a finding of the split. See `Findings.add`."""
        self.findings.add(code, self.split, file, line, text, image=image, count=count)

    def refuse(self, fault: str) -> None:
        """Note what makes the split unfit for training."""
        self.faults.append(f"{self.split}: {fault}")


def read_splits(
    splits: Iterable[str], read: Callable[[Remarks], Records | None]
) -> tuple[dict[str, Records], Findings, list[str]]:
    """Read one split after another; one that cannot be read keeps no other from it.

    Args:
        splits: In the order in which they are read.
        read: Makes the records of the split that its remarks name, or None; a `DataError` it raises is a fault.

    Returns:
        The records of each split that has any, what was found in all, and what makes the data unfit for training.
    """
    found: dict[str, Records] = {}
    findings = Findings()
    faults: list[str] = []
    for split in splits:
        remarks = Remarks(split, findings)
        try:
            records = read(remarks)
        except DataError as error:
            remarks.faults.extend(error.faults)
            records = None
        faults.extend(remarks.faults)
        if records is not None:
            found[split] = records
    return found, findings, faults


def is_file(path: Path) -> bool:
    """Whether a file lies at a path that was read somewhere. One that no system would take, as too long, names none."""
    try:
        return path.is_file()
    except OSError:
        return False


def is_folder(path: Path) -> bool:
    """Whether a folder lies at a path that was read somewhere, as `is_file`."""
    try:
        return path.is_dir()
    except OSError:
        return False


def exists(path: Path) -> bool:
    """Whether anything lies at a path that was read somewhere, as `is_file`."""
    try:
        return path.exists()
    except OSError:
        return False


def is_unicode(text: str) -> bool:
    """Whether a text can be written down. Bytes of a file's name that are no UTF-8 come as parts of no letter."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def folder_listing(folder: Path) -> str:
    """A clause that tells what a folder holds."""
    if not is_folder(folder):
        existing = next((parent for parent in folder.parents if is_folder(parent)), None)
        return f"{folder} does not exist either" + ("" if existing is None else f"; {folder_listing(existing)}")
    entries = sorted(entry.name + "/" * entry.is_dir() for entry in folder.iterdir())
    if not entries:
        return f"{folder} is empty"
    shown = ", ".join(entries[: 2 * SHOWN]) + (", …" if len(entries) > 2 * SHOWN else "")
    return f"{folder} holds {shown}"


def visible_files(folder: Path, *suffixes: str) -> list[Path]:
    """The files of a folder with one of some suffixes, in order; none where there is no folder.

    Names that start with a dot are left out: some systems put such a file beside every other one.
    """
    if not folder.is_dir():
        return []
    named = [path for path in folder.iterdir() if path.suffix.lower() in suffixes and not path.name.startswith(".")]
    return sorted(path for path in named if path.is_file())


def find_images(folder: Path, remarks: Remarks) -> list[Path]:
    """Every image file below a folder, in the order of their paths; links to folders are followed once."""
    found: list[Path] = []
    visited: set[str] = set()
    for directory, subfolders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(directory)
        if real in visited:
            subfolders.clear()
            continue
        visited.add(real)
        for name in files:
            if name.startswith("."):
                continue
            path = Path(directory, name)
            suffix = path.suffix.lower()
            if suffix in IMAGE_SUFFIXES:
                found.append(path)
            elif suffix not in COMPANION_SUFFIXES:
                remarks.add("image-suffix", path)
    return sorted(found)


def read_sizes(
    paths: Sequence[Path], remarks: Remarks, *, max_pixels: int = MAX_PIXELS
) -> list[tuple[int, int] | None]:
    """Height and width of each image; None, with a remark, where it cannot be read or has more than `max_pixels`."""

    def size_or_fault(path: Path) -> tuple[int, int] | DataError:
        try:
            return image_size(path, max_pixels=max_pixels)
        except DataError as error:
            return error

    with ThreadPoolExecutor(HEADER_THREADS) as pool:
        results: Iterable[tuple[int, int] | DataError] = pool.map(size_or_fault, paths)
        sizes: list[tuple[int, int] | None] = []
        for path, result in zip(paths, results, strict=True):
            if isinstance(result, DataError):
                note_unreadable(path, result, remarks)
                sizes.append(None)
            else:
                sizes.append(result)
    return sizes


def note_unreadable(path: Path, error: DataError, remarks: Remarks) -> None:
    """Note an image that cannot be read, and why."""
    code = "image-too-large" if isinstance(error, TooLargeError) else "image-unreadable"
    remarks.add(code, path, text=str(error).removeprefix(f"{path}: "))


def note_repeats(paths: Sequence[Path], remarks: Remarks) -> None:
    """Note images that are listed more than once."""
    for path, count in Counter(paths).items():
        if count > 1:
            remarks.add("image-listed-twice", path, count=count - 1)


class Place(NamedTuple):
    """Where a label was read, for remarks."""

    file: Path
    line: int | None = None
    text: str = ""
    """What stands there, or which of its labels it is."""
    image: Path | None = None

    def note(self, code: str, remarks: Remarks, text: str = "", *, count: int = 1) -> None:
        """Note a finding here; `text` tells more than the place itself does."""
        told = ", ".join(filter(None, (self.text, text)))
        remarks.add(code, self.file, self.line, told, image=self.image, count=count)

    def finding(self) -> Finding:
        return Finding(str(self.file), self.line, self.text, None if self.image is None else str(self.image))

    def __str__(self) -> str:
        return str(self.finding())


def clip_to_image(box: tuple[float, ...], place: Place, remarks: Remarks) -> tuple[float, ...] | None:
    """The part of a box that lies in the image; None, with a remark, where there is none.

    Args:
        box: (x1, y1, x2, y2), fractions of the image.
        place: Where it was read, for the remark.
        remarks: Told of a box that is dropped, or clipped by more than rounding explains.
    """
    clipped = clip_box(box)
    if clipped is None:
        place.note("box-without-area", remarks)
        return None
    if max(abs(a - b) for a, b in zip(box, clipped, strict=True)) > ROUNDING:
        place.note("box-clipped", remarks)
    return clipped


def clip_box(box: tuple[float, ...]) -> tuple[float, ...] | None:
    """The part of a box in fractions that lies in the image; None where there is none."""
    clipped = tuple(min(1.0, max(0.0, side)) for side in box)
    return None if clipped[2] <= clipped[0] or clipped[3] <= clipped[1] else clipped
