"""Decoded images that all processes of a run share: read, reduced and kept once, before training starts.

All pixels lie in one block that every process maps read-only, so workers add nothing to it. Where each image lies
follows from the sizes in the records, so it is known before anything is decoded. The block is either

* memory that belongs to no file (`ram`): it goes with the last process that maps it, however that ends; or
* a file in the cache folder (`disk`), named after everything that its pixels depend on: a later run finds it.

What comes out is bit by bit what reading the file again would give. An image that could not be read has no pixels
here, and reading it again tells why.

Letters: n records, m different images.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

import cv2
import numpy as np
import PIL
from numpy.typing import NDArray

from visiontrain.data.cache_files import FOLDER_VARIABLE, cache_folder, digest_of, made_whole, stamp_of
from visiontrain.data.images import MAX_PIXELS, fit_size, read_reduced
from visiontrain.errors import ConfigError, DataError
from visiontrain.sample import Records

FORMAT_VERSION = 1
"""Part of the name of every file; raise it when the same images make other bytes."""
MOST_OF_FREE = 0.5
"""The share of free memory or disk that a cache may take."""
ALIGNMENT = 64
"""Bytes; a line of the processor's cache."""

Where = Literal["ram", "disk"]
Progress = Callable[[int, int], None]
"""Called with the images done and the images in all."""
Bytes = NDArray[np.uint8]


class ImageCache:
    """The reduced images of a split by their index, read-only. Pickles as the place of its block, not its bytes."""

    def __init__(self, layout: _Layout, block: Any, *, summary: str) -> None:
        """
        Args:
            layout: Where in the block each image lies.
            block: A full one: the path of a file, or a shared array.
            summary: What is kept where, for people.
        """
        self.summary = summary
        self._layout = layout
        self._block = block
        self._bytes: Bytes | None = _map(block)

    def __len__(self) -> int:
        """Records."""
        return len(self._layout.image_of)

    @property
    def imgsz(self) -> int:
        return self._layout.imgsz

    @property
    def num_bytes(self) -> int:
        return self._layout.num_bytes

    def get(self, index: int) -> Bytes | None:
        """(H, W, 3) uint8 RGB as `read_reduced` gives it, or None if the image could not be read."""
        assert self._bytes is not None, "the cache was closed"
        return self._layout.image_in(self._bytes, int(self._layout.image_of[index]))

    def close(self) -> None:
        """Let go of the block. Processes that map it keep it; no others can be started on it."""
        self._bytes = self._block = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self._layout, self._block, self.summary)


def open_image_cache(
    records: Records,
    where: Where,
    *,
    imgsz: int,
    free_memory: int | None,
    threads: int,
    max_pixels: int = MAX_PIXELS,
    progress: Progress | None = None,
    folder: Path | None = None,
) -> ImageCache:
    """Read all images of a split into a cache, or open the file that an earlier run made of the same images.

    Args:
        records: The split.
        where: Memory or a file.
        imgsz: Long side to which images are reduced, pixels.
        free_memory: Bytes, None where the system does not tell. Only `ram` asks for it.
        threads: That read and decode.
        max_pixels: Larger images are not read.
        progress: Told of every image that was read; not called where a file was found.
        folder: Where caches lie; by default `cache_folder()`.

    Raises:
        ConfigError: If it would take more than half of what is free, or its file cannot be written.
    """
    layout = _Layout.of(records, imgsz, max_pixels)
    what = f"{layout.num_images} images in {_amount(layout.num_bytes)}"
    if where == "ram":
        _check_room("ram", layout, free_memory, "memory")
        block = _shared_block(layout.num_bytes)
        _fill(block, layout, threads, progress)
        return ImageCache(layout, block, summary=f"{what} of shared memory")
    path = (cache_folder() if folder is None else folder) / "images" / f"{layout.digest()}.bin"
    if _has_size(path, layout.num_bytes):
        return ImageCache(layout, str(path), summary=f"{what}, found in {path}")
    try:
        _check_room("disk", layout, _free_disk(path), f"disk of {path.parent}")
        with made_whole(path) as part:
            _reserve(part, layout.num_bytes)
            _fill(str(part), layout, threads, progress)
    except OSError as error:
        if not _has_size(path, layout.num_bytes):  # else another run has just made it, and has it open
            raise ConfigError(
                f"cache = 'disk': {error.filename or path} cannot be written ({error.strerror or error}); "
                f"set {FOLDER_VARIABLE} to a folder that can, or use cache=ram"
            ) from error
    return ImageCache(layout, str(path), summary=f"{what}, kept in {path}")


@dataclass(frozen=True)
class _Layout:
    """Where the images lie in a block: a table of their heights and widths, (m, 2) int32, then the pixels of each."""

    image_of: NDArray[np.int32]
    """(n,) which image a record shows; several may show the same."""
    paths: NDArray[np.str_]
    """(m,)"""
    starts: NDArray[np.int64]
    """(m + 1,) the byte at which each image may start, and the end of the block."""
    imgsz: int
    """Long side to which images are reduced, pixels."""
    max_pixels: int

    @classmethod
    def of(cls, records: Records, imgsz: int, max_pixels: int) -> _Layout:
        paths, first, image_of = np.unique(
            np.array([str(record.path) for record in records], np.str_), return_index=True, return_inverse=True
        )
        room = [_room(records[int(index)].height, records[int(index)].width, imgsz) for index in first]
        table = _aligned(8 * len(paths))
        starts = np.cumsum([table, *map(_aligned, room)], dtype=np.int64)
        return cls(image_of.reshape(-1).astype(np.int32), paths, starts, imgsz, max_pixels)

    @property
    def num_images(self) -> int:
        return len(self.paths)

    @property
    def num_bytes(self) -> int:
        return int(self.starts[-1])

    def digest(self) -> str:
        """Of all that the bytes of the block depend on; decoders differ between their versions."""
        versions = (FORMAT_VERSION, cv2.__version__, PIL.__version__)
        settings = (self.imgsz, self.max_pixels, self.starts.tobytes().hex())
        return digest_of([*versions, *settings, *map(stamp_of, self.paths)])

    def image_in(self, block: Bytes, image: int) -> Bytes | None:
        """A view of an image; None where there is none."""
        height, width = map(int, self._table(block)[image])
        start = self.starts[image]
        return block[start : start + height * width * 3].reshape(height, width, 3) if height else None

    def put(self, block: Bytes, image: int, pixels: Bytes) -> None:
        """Keep an image, unless it is larger than its record said."""
        start, stop = self.starts[image : image + 2]
        if pixels.nbytes <= stop - start:
            block[start : start + pixels.nbytes] = pixels.reshape(-1)
            self._table(block)[image] = pixels.shape[:2]

    def _table(self, block: Bytes) -> NDArray[np.int32]:
        return block[: 8 * self.num_images].view(np.int32).reshape(-1, 2)


def _room(height: int, width: int, imgsz: int) -> int:
    """The most bytes that an image of this size takes when reduced."""
    if max(height, width) <= imgsz:
        return height * width * 3
    new_height, new_width = fit_size(height, width, imgsz)
    # A JPEG decoded at half its size or less is cut to whole pixels twice: its short side may come out one longer.
    return (new_height * new_width + max(new_height, new_width)) * 3


def _fill(block: Any, layout: _Layout, threads: int, progress: Progress | None) -> None:
    """Read every image of a layout into a block."""
    target, total = _map(block, is_writable=True), layout.num_images

    def read(image: int) -> None:
        try:
            pixels = read_reduced(str(layout.paths[image]), layout.imgsz, max_pixels=layout.max_pixels)
        except DataError:
            return  # it is reported each time that training asks for it
        layout.put(target, image, pixels)

    pool = ThreadPoolExecutor(threads)
    try:
        for done, _ in enumerate(pool.map(read, range(total)), 1):
            if progress is not None:
                progress(done, total)
    finally:
        pool.shutdown(cancel_futures=True)  # an interrupt shall not wait for all that is left


def _reopen(layout: _Layout, block: Any, summary: str) -> ImageCache:
    return ImageCache(layout, block, summary=summary)


class _MemoryFile:
    """Memory with the path of a file, which processes of the same user can open while this one holds it (Linux).

    It is not bound by the size of /dev/shm, which is small in containers.
    """

    def __init__(self, num_bytes: int) -> None:
        descriptor = os.memfd_create("visiontrain")
        self._end = weakref.finalize(self, os.close, descriptor)
        self.path = f"/proc/{os.getpid()}/fd/{descriptor}"
        _reserve(self.path, num_bytes)

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (self.path,)


def _shared_block(num_bytes: int) -> Any:
    """Zeros that processes started from here can map; gone when the last of them has ended."""
    try:
        if hasattr(os, "memfd_create"):
            try:
                return _MemoryFile(num_bytes)
            except OSError as error:
                if error.errno in (errno.ENOMEM, errno.ENOSPC):
                    raise
                # else a sandbox without it, or without /proc
        return get_context("spawn").RawArray(ctypes.c_uint8, num_bytes)
    except (OSError, MemoryError) as error:
        raise ConfigError(
            f"cache = 'ram': {_amount(num_bytes)} of shared memory cannot be had ({error}); "
            "use cache=disk, or leave cache out"
        ) from error


def _map(block: Any, *, is_writable: bool = False) -> Bytes:
    """The bytes of a block: a shared array, memory with a path, or the path of a file."""
    if isinstance(block, ctypes.Array):
        array = np.frombuffer(memoryview(block), np.uint8)
        array.flags.writeable = is_writable
        return array
    path = block.path if isinstance(block, _MemoryFile) else block
    return np.asarray(np.memmap(path, np.uint8, mode="r+" if is_writable else "r"))


def _reserve(path: Path | str, num_bytes: int) -> None:
    """Give a file its size and, where the system can, its place: writing to a map that runs out ends the process."""
    with Path(path).open("rb+") as file:
        file.truncate(num_bytes)
        if hasattr(os, "posix_fallocate"):
            try:
                os.posix_fallocate(file.fileno(), 0, num_bytes)
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):  # some file systems cannot
                    raise


def _has_size(path: Path, num_bytes: int) -> bool:
    try:
        return path.stat().st_size == num_bytes
    except OSError:
        return False


def _free_disk(path: Path) -> int:
    existing = next(parent for parent in path.parents if parent.exists())
    return shutil.disk_usage(existing).free


def _check_room(where: Where, layout: _Layout, free: int | None, what: str) -> None:
    if free is None or layout.num_bytes <= MOST_OF_FREE * free:
        return
    other = {"ram": "cache=disk", "disk": f"another disk ({FOLDER_VARIABLE} names the folder)"}[where]
    images = f"{layout.num_images} images reduced to imgsz = {layout.imgsz}"
    raise ConfigError(
        f"cache = {where!r}: {images} take {_amount(layout.num_bytes)}, "
        f"more than half of the free {what}, which is {_amount(int(MOST_OF_FREE * free))}; "
        f"use {other}, a smaller imgsz or fraction, or leave cache out"
    )


def _amount(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.1f} GB" if num_bytes >= 1e9 else f"{num_bytes / 1e6:.1f} MB"


def _aligned(num_bytes: int) -> int:
    return max(1, -(-num_bytes // ALIGNMENT)) * ALIGNMENT
