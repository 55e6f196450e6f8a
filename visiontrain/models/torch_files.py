"""Files that `torch.save` wrote, read without torch's own loader, and so without running or importing what they name.

Three forms: the zip archive (torch 1.6 and later, and TorchScript), the stream of pickles before it, and one pickle
alone. Nothing is unpacked on the disk, and no more is read than the file is long.
"""

from __future__ import annotations

import io
import math
import sys
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, BinaryIO, NoReturn, cast

import torch
from torch import Tensor

from visiontrain.models.pickles import Allowance, UnreadableError, read_pickle
from visiontrain.models.stored import Storage, StoredArray, StoredTensor, stored_rules

ZIP_START = b"PK\x03\x04"
TAR_MARK = b"ustar"
TAR_MARK_AT = 257
MAGIC_NUMBER = 0x1950A86A20F9469CFC6C
"""The first pickle of a stream. Source: torch.serialization."""
STREAM_VERSION = 1001
COUNT_BYTES = 8
LOCAL_HEADER_BYTES = 30
COPY_FACTOR = 2
"""Bytes that may be copied, over the file's size: a builder copies once, and the tensor that is made of it."""


@dataclass
class TorchFile:
    """What a file holds."""

    form: str
    root: Any
    """Plain values, `StoredTensor`, `StoredArray` and `Inert`."""
    not_run: Counter[str]
    """How many objects of which class were left inert."""
    _numbers: Callable[[str, int], bytearray]
    _allowance: Allowance
    _raw: dict[str, Tensor] = field(default_factory=dict)

    def tensor(self, stored: StoredTensor | StoredArray) -> Tensor:
        """The tensor, on the CPU; those that share their numbers in the file share them here.

        Raises:
            UnreadableError: If the file does not hold its numbers.
        """
        if math.prod(stored.shape) == 0:
            return torch.empty(stored.shape, dtype=stored.dtype)
        if isinstance(stored, StoredArray):
            return self._array(stored)
        raw = self._bytes_of(stored.storage)
        steps = zip(stored.shape, stored.strides, strict=True)
        last = stored.offset + sum((size - 1) * step for size, step in steps)
        if (last + 1) * stored.dtype.itemsize > len(raw):
            raise UnreadableError("has tensors that reach beyond their numbers")
        whole = raw[: len(raw) // stored.dtype.itemsize * stored.dtype.itemsize].view(stored.dtype)
        return whole.as_strided(stored.shape, stored.strides, stored.offset)

    def _bytes_of(self, storage: Storage) -> Tensor:
        if storage.key not in self._raw:
            self._allowance.copy(storage.num_bytes)
            numbers = self._numbers(storage.key, storage.num_bytes)
            self._raw[storage.key] = torch.frombuffer(numbers, dtype=torch.uint8)
        return self._raw[storage.key]

    def _array(self, stored: StoredArray) -> Tensor:
        assert stored.dtype is not None, "arrays without a type are no weights"
        self._allowance.copy(len(stored.raw))
        flat = torch.frombuffer(bytearray(stored.raw), dtype=stored.dtype)
        if not stored.is_column_major:
            return flat.view(stored.shape)
        return flat.view(stored.shape[::-1]).permute(*reversed(range(len(stored.shape))))


def read_torch_file(file: BinaryIO, size: int) -> TorchFile:
    """Read what a file holds, but for the numbers of its tensors, for which it must stay open.

    Args:
        file: At its start.
        size: Its length, bytes.

    Raises:
        UnreadableError: If it is of none of the forms, damaged, or made to exhaust the machine.
    """
    bounded, allowance = _BoundedFile(file, size), Allowance(COPY_FACTOR * size)
    start = bounded.read(TAR_MARK_AT + len(TAR_MARK))
    bounded.seek(0)
    if start.startswith(ZIP_START):
        return _read_zip(_Archive(file, bounded), allowance, size)
    if start[TAR_MARK_AT:] == TAR_MARK:
        raise UnreadableError("is of torch's form of 2017 (tar), which is not read; save it anew with a later torch")
    return _read_stream(bounded, allowance)


class _BoundedFile:
    """A file whose `read` never allocates more than is there, whatever length it is asked for."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self.size = size

    def read(self, count: int) -> bytes:
        return self._file.read(min(count, self.size - self._file.tell()))

    def readline(self) -> bytes:
        return self._file.readline()

    def tell(self) -> int:
        return self._file.tell()

    def seek(self, position: int) -> None:
        self._file.seek(position)

    def numbers(self, position: int, num_bytes: int) -> bytearray:
        """Bytes that a tensor can have for its own. Raises UnreadableError if they are not all there."""
        is_inside = 0 <= position <= self.size - num_bytes
        if is_inside:
            self._file.seek(position)
        numbers = bytearray(self._file.read(num_bytes)) if is_inside else bytearray()
        if len(numbers) != num_bytes:
            raise UnreadableError("ends before its tensors do: it was cut short")
        return numbers


class _Archive:
    """A zip archive by its own lists; torch compresses nothing, so nothing is ever inflated."""

    def __init__(self, file: BinaryIO, bounded: _BoundedFile) -> None:
        try:
            with zipfile.ZipFile(file) as archive:
                self.entries = {entry.filename: entry for entry in archive.infolist()}
        except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError, OverflowError) as error:
            raise UnreadableError("is a damaged archive: it was cut short, or changed on its way") from error
        self._bounded = bounded

    def read(self, name: str, num_bytes: int | None = None) -> bytearray:
        """The first `num_bytes` of an entry; all of it if None."""
        entry = self.entries.get(name)
        if entry is None:
            raise UnreadableError("lacks an entry that it refers to")
        if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1:
            raise UnreadableError("is a compressed or encrypted archive, which torch does not write; save it anew")
        if num_bytes is not None and num_bytes > entry.file_size:
            raise UnreadableError("has tensors that reach beyond their numbers")
        header = self._bounded.numbers(entry.header_offset, LOCAL_HEADER_BYTES)
        if not header.startswith(ZIP_START):
            raise UnreadableError("is a damaged archive: an entry does not start where it should")
        # Name and extra field of this header; those in the archive's own list may be of other lengths.
        lengths = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
        start = entry.header_offset + LOCAL_HEADER_BYTES + lengths
        return self._bounded.numbers(start, entry.file_size if num_bytes is None else num_bytes)


def _read_zip(archive: _Archive, allowance: Allowance, size: int) -> TorchFile:
    pickles = [name for name in archive.entries if name.split("/")[-1] == "data.pkl"]
    if not pickles:
        raise UnreadableError("is an archive without data.pkl, so torch did not save it")
    path = min(pickles, key=len)
    folder = path.removesuffix("data.pkl")
    if f"{folder}byteorder" in archive.entries and archive.read(f"{folder}byteorder") != sys.byteorder.encode():
        _refuse_byte_order()
    not_run: Counter[str] = Counter()
    root = read_pickle(io.BytesIO(archive.read(path)), stored_rules(allowance, size, {}), allowance, not_run)
    return TorchFile("torch", root, not_run, lambda key, count: archive.read(f"{folder}data/{key}", count), allowance)


def _read_stream(bounded: _BoundedFile, allowance: Allowance) -> TorchFile:
    """Pickles of the magic number, the version, the machine, the value and the storages' keys; then the storages, each
    after the number of its elements.

    Source: torch.serialization, `_legacy_save`.
    """
    not_run: Counter[str] = Counter()
    storages: dict[str, Storage] = {}
    rules = stored_rules(allowance, bounded.size, storages)

    def read() -> Any:
        return read_pickle(cast(BinaryIO, bounded), rules, allowance, not_run)

    root = read()
    if type(root) is not int or root != MAGIC_NUMBER:
        if storages:
            raise UnreadableError("is a part of a file of torch's: its tensors have no numbers")
        return TorchFile("pickle", root, not_run, _no_numbers, allowance)
    version, machine, root, keys = read(), read(), read(), read()
    if version != STREAM_VERSION:
        raise UnreadableError("is of a version of torch's old form that is not known")
    if isinstance(machine, dict) and machine.get("little_endian") is not (sys.byteorder == "little"):
        _refuse_byte_order()
    places: dict[str, int] = {}
    position = bounded.tell()
    for key in keys if isinstance(keys, list) else ():
        storage = storages.get(key) if isinstance(key, str) else None
        if storage is None or key in places:
            raise UnreadableError("lists storages that no tensor has")
        count = int.from_bytes(bounded.numbers(position, COUNT_BYTES), "little")
        if count != storage.num_elements:
            raise UnreadableError("has storages of another length than its tensors say")
        places[key] = position + COUNT_BYTES
        position = places[key] + storage.num_bytes
    if places.keys() != storages.keys() or position > bounded.size:
        raise UnreadableError("ends before its tensors do: it was cut short")
    return TorchFile(
        "torch, old form", root, not_run, lambda key, count: bounded.numbers(places[key], count), allowance
    )


def _no_numbers(key: str, num_bytes: int) -> bytearray:
    raise AssertionError("a pickle alone has no storages")


def _refuse_byte_order() -> NoReturn:
    raise UnreadableError(f"was written by a machine of another byte order than this one ({sys.byteorder})")
