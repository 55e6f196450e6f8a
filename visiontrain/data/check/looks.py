"""Look at every image file of a data set once, as training reads it, in parallel processes."""

from __future__ import annotations

import hashlib
import multiprocessing
import signal
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

import cv2

from visiontrain.data.check.prints import print_of
from visiontrain.data.headers import read_header
from visiontrain.data.images import MAX_PIXELS, TooLargeError, read_reduced
from visiontrain.data.workers import end_with_parent
from visiontrain.errors import DataError
from visiontrain.findings import Findings
from visiontrain.sample import DataSet, Records

Progress = Callable[[int, int], None]
"""Called with the images done and the images in all."""
CHUNK = 8
"""Images handed to a process at once."""
READ_BYTES = 2**20


@dataclass(frozen=True)
class Look:
    """What one image file turned out to be."""

    digest: bytes | None = None
    """SHA-256 of the file's bytes; None where the image cannot be read."""
    print: bytes | None = None
    """What `print_of` tells of the picture: near prints, near pictures. None where it is one even color."""
    orientation: int = 1
    """Of its tag; 1 is upright."""
    fault: str | None = None
    """Why it cannot be read."""
    is_too_large: bool = False


def image_paths(records: Records) -> list[str]:
    """The different image files of a split, in order."""
    return list(dict.fromkeys(str(record.path) for record in records))


def look_at(path: str, *, imgsz: int, max_pixels: int = MAX_PIXELS) -> Look:
    """Read one image by training's own path. Nothing is raised: a fault is part of what is seen."""
    try:
        image = read_reduced(path, imgsz, max_pixels=max_pixels)
        with Path(path).open("rb") as file:
            orientation = read_header(file).orientation
            digest = _sha256(file)
    except (DataError, OSError) as error:
        reason = str(error).removeprefix(f"{path}: ")
        return Look(fault=reason, is_too_large=isinstance(error, TooLargeError))
    return Look(digest, print_of(image), orientation)


def look_at_all(
    paths: Sequence[str],
    *,
    imgsz: int,
    workers: int,
    max_pixels: int = MAX_PIXELS,
    progress: Progress | None = None,
) -> dict[str, Look]:
    """Look at many images.

    Args:
        paths: All different.
        imgsz: Long side to which training reduces images, pixels.
        workers: Processes that share the work; 0 does it in this one.
        max_pixels: A larger image counts as one that cannot be read.
        progress: Told of every image.

    Raises:
        DataError: If one of the processes was ended from outside.
    """
    look = partial(look_at, imgsz=imgsz, max_pixels=max_pixels)
    if not workers:
        return _gather(paths, map(look, paths), progress)
    # Spawned: a copy of a process that runs threads, as torch's does, may hang.
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=_settle_worker)
    try:
        return _gather(paths, pool.map(look, paths, chunksize=CHUNK), progress)
    except BrokenProcessPool as error:
        raise DataError(
            "workers: a process that read images was ended by the system, or could not start; for want of memory use "
            'fewer workers, and in a script of your own keep the call below if __name__ == "__main__"'
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def look_findings(data: DataSet, looks: dict[str, Look]) -> Findings:
    """Images that cannot be read or are turned, by split."""
    findings = Findings()
    for split, records in data.splits.items():
        for path in image_paths(records):
            look = looks[path]
            if look.fault is not None:
                findings.add(
                    "image-too-large" if look.is_too_large else "image-unreadable", split, path, text=look.fault
                )
            elif look.orientation != 1:
                findings.add("image-turned", split, path, text=f"orientation {look.orientation}")
    return findings


def _gather(paths: Sequence[str], looks: Iterable[Look], progress: Progress | None) -> dict[str, Look]:
    found: dict[str, Look] = {}
    for path, look in zip(paths, looks, strict=True):
        found[path] = look
        if progress is not None:
            progress(len(found), len(paths))
    return found


def _settle_worker() -> None:
    end_with_parent()
    cv2.setNumThreads(1)
    # Ctrl-C reaches every process of the terminal; the one that asked tells these to end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _sha256(file: IO[bytes]) -> bytes:
    file.seek(0)
    digest = hashlib.sha256()
    while part := file.read(READ_BYTES):
        digest.update(part)
    return digest.digest()
