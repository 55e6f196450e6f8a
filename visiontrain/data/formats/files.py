"""What readers of all formats share: finding images, reading their sizes, gathering remarks."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from visiontrain.data.images import IMAGE_SUFFIXES, image_size
from visiontrain.errors import DataError

SHOWN = 5
"""Examples given with each kind of remark; the count is always told."""
HEADER_THREADS = 8
ROUNDING = 1e-3
"""Overflow of the image, in fractions of it, that is clipped without a remark: coordinates are often rounded."""
COMPANION_SUFFIXES = frozenset(["", ".txt", ".json", ".xml", ".csv", ".md", ".yaml", ".yml", ".cache", ".npy", ".db"])
"""Files that lie beside images by custom; not worth a remark."""


class Remarks:
    """Counts what was met in a split, by kind, with a few places of each."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._places: dict[str, list[str]] = {}

    def add(self, kind: str, place: str) -> None:
        """Args:
        kind: What was met and what became of it, such as `rows without area, dropped`.
        place: Where, such as `file:line`.
        """
        self._counts[kind] += 1
        shown = self._places.setdefault(kind, [])
        if len(shown) < SHOWN:
            shown.append(place)

    def lines(self, where: str) -> list[str]:
        return [f"{where}: {count} {kind}: {_join(self._places[kind], count)}" for kind, count in self._counts.items()]


def _join(places: Sequence[str], count: int) -> str:
    return ", ".join(places) + (", …" if count > len(places) else "")


def folder_listing(folder: Path) -> str:
    """A clause that tells what a folder holds."""
    if not folder.is_dir():
        existing = next((parent for parent in folder.parents if parent.is_dir()), None)
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
                remarks.add(f"files with suffix {suffix}, which is no known image format, left out", name)
    return sorted(found)


def read_sizes(paths: Sequence[Path], remarks: Remarks) -> list[tuple[int, int] | None]:
    """Height and width of each image; None, with a remark, where it cannot be read."""

    def size_or_fault(path: Path) -> tuple[int, int] | DataError:
        try:
            return image_size(path)
        except DataError as error:
            return error

    with ThreadPoolExecutor(HEADER_THREADS) as pool:
        results: Iterable[tuple[int, int] | DataError] = pool.map(size_or_fault, paths)
        sizes: list[tuple[int, int] | None] = []
        for result in results:
            if isinstance(result, DataError):
                remarks.add("images that cannot be read, left out", str(result))
                sizes.append(None)
            else:
                sizes.append(result)
    return sizes


def clip_to_image(box: tuple[float, ...], place: str, remarks: Remarks) -> tuple[float, ...] | None:
    """The part of a box that lies in the image; None, with a remark, where there is none.

    Args:
        box: (x1, y1, x2, y2), fractions of the image.
        place: Where it was read, for the remark.
        remarks: Told of a box that is dropped, or clipped by more than rounding explains.
    """
    clipped = tuple(min(1.0, max(0.0, side)) for side in box)
    if clipped[2] <= clipped[0] or clipped[3] <= clipped[1]:
        remarks.add("boxes without area inside the image, dropped", place)
        return None
    if max(abs(a - b) for a, b in zip(box, clipped, strict=True)) > ROUNDING:
        remarks.add("boxes reaching beyond the image, clipped", place)
    return clipped
