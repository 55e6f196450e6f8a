"""What a reader made of the label files of a split, kept for the next start.

The arrays lie in one `.npz` for each split, with a digest of all that they depend on. Nothing in it is ever unpickled.
A cache can only spare time: whatever is wrong with it, the labels are read anew, and where it cannot be written the
next start reads them again.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from visiontrain.data.cache_files import cache_folder, digest_of, made_whole, settled_stamp_of
from visiontrain.findings import Findings
from visiontrain.sample import Record

FORMAT_VERSION = 3
"""Part of every key; raise it when readers make something else of the same files."""

Arrays = Mapping[str, NDArray[Any]]
_KEY = "__key__"
_DAMAGE = (OSError, EOFError, KeyError, ValueError, NotImplementedError, zipfile.BadZipFile, zlib.error)
"""What numpy and zipfile raise on files that are not what they should be."""


def cached(
    key_parts: Iterable[object],
    compute: Callable[[], Arrays],
    *,
    slot: str,
    folder: Path | None = None,
    is_kept: Callable[[Arrays], bool] = lambda arrays: True,
) -> Arrays:
    """The arrays that `compute` makes, from the cache where all that they depend on is as it was.

    Args:
        key_parts: Everything that the arrays depend on, as texts. They are gone through before `compute` is called,
            so a file that changes in between is read again at the next start. See `file_keys`.
        compute: Reads the files. Its arrays hold numbers or texts, no objects. An error it raises is passed on, and
            nothing is kept.
        slot: Names the file: the same for the same split of the same data set, so that a change replaces it.
        folder: Where caches lie; by default `cache_folder()`.
        is_kept: Whether what was computed is worth keeping.
    """
    path, key = _path_of(slot, folder), _key_of(key_parts)
    arrays = _load(path, key)
    if arrays is None:
        arrays = compute()
        if is_kept(arrays):
            _save(path, key, arrays)
    return arrays


class Reading(NamedTuple):
    """What a reader made of a split."""

    records: list[Record]
    """One for each image that can be read, in the order of the images."""
    findings: Findings
    faults: tuple[str, ...] = ()
    """What makes the split unfit for training."""


def cached_records(
    images: Sequence[Path],
    labels: Sequence[Path | None],
    read: Callable[[], Reading],
    *,
    key_parts: Iterable[object],
    slot: str,
    folder: Path | None = None,
) -> Reading:
    """What a reader made of a split, from the cache if no file of it changed.

    Args:
        images: All of the split.
        labels: The label file of each image, if it has one.
        read: Reads them. While an image cannot be read, or there are faults, nothing is kept: rights, for one, are
            mended without a trace in a file's time.
        key_parts: What the reading depends on besides these files, such as the class names.
        slot: As for `cached`.
        folder: As for `cached`.
    """
    fresh: list[Reading] = []

    def compute() -> Arrays:
        fresh.append(read())
        return _pack(fresh[0])

    arrays = cached(
        [*key_parts, "images", *file_keys(images), "labels", *file_keys(labels)],
        compute,
        slot=slot,
        folder=folder,
        is_kept=lambda arrays: len(arrays["sizes"]) == len(images) and not fresh[0].faults,
    )
    return fresh[0] if fresh else _unpack(arrays, images)


def file_keys(paths: Iterable[Path | None]) -> Iterator[str]:
    """Parts of a key that change when a file does, comes or goes; None stands for a file that there is not."""
    return ("none" if path is None else settled_stamp_of(path) for path in paths)


def _pack(reading: Reading) -> Arrays:
    """Records and findings as arrays; the paths are in the key."""
    records = reading.records
    return {
        "sizes": np.array([(record.height, record.width) for record in records], np.int32).reshape(-1, 2),
        "stops": np.cumsum([len(record.classes) for record in records], dtype=np.int64),
        "boxes": np.concatenate([np.zeros((0, 4), np.float32), *(record.boxes for record in records)]),
        "classes": np.concatenate([np.zeros(0, np.int64), *(record.classes for record in records)]),
        "findings": np.array(reading.findings.to_json()),
    }


def _unpack(arrays: Arrays, images: Sequence[Path]) -> Reading:
    boxes, classes = arrays["boxes"], arrays["classes"]
    stops = arrays["stops"].tolist()
    starts = [0, *stops[:-1]][: len(stops)]
    rows = zip(images, arrays["sizes"].tolist(), starts, stops, strict=True)
    records = [
        Record(path, height, width, boxes[start:stop], classes[start:stop])
        for path, (height, width), start, stop in rows
    ]
    return Reading(records, Findings.from_json(arrays["findings"].item()))


def _path_of(slot: str, folder: Path | None) -> Path:
    return (cache_folder() if folder is None else folder) / "labels" / f"{digest_of([slot])}.npz"


def _key_of(parts: Iterable[object]) -> str:
    return digest_of([FORMAT_VERSION, *parts])


def _load(path: Path, key: str) -> Arrays | None:
    try:
        with path.open("rb") as file, NpzFile(file, allow_pickle=False) as arrays:
            if arrays[_KEY].item() != key:
                return None
            return {name: arrays[name] for name in arrays.files if name != _KEY}
    except _DAMAGE:
        return None


def _save(path: Path, key: str, arrays: Arrays) -> None:
    assert not any(array.dtype.hasobject for array in arrays.values()), "objects would be pickled"
    stored: dict[str, Any] = {_KEY: np.array(key), **arrays}
    try:
        with made_whole(path) as part, part.open("wb") as file:
            np.savez(file, **stored)
    except OSError:
        return  # a cache folder that cannot be written means no cache
