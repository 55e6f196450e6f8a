"""What a pickled file of weights may make: tensors, numpy's arrays and scalars, plain containers.

These are the builders behind the names that torch and numpy write into pickles. None of them runs what a file holds; a
tensor stays a `StoredTensor`, which says where its numbers lie, until they are asked for.
"""

from __future__ import annotations

import math
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from visiontrain.models.pickles import Allowance, Builder, Inert, Reference, Rules, UnreadableError

MOST_DIMENSIONS = 16
MOST_KEY = 512
"""Characters of a storage's key."""
ITEM_BYTES = 16
"""What an item counts for where a container is copied."""
OWN_ORDER = "<" if sys.byteorder == "little" else ">"
DTYPES = {
    name: getattr(torch, name)
    for name in ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")
}
STORAGES = {
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
    "UntypedStorage": torch.uint8,
}
NUMPY_DTYPES = {
    "f8": torch.float64,
    "f4": torch.float32,
    "f2": torch.float16,
    "i8": torch.int64,
    "i4": torch.int32,
    "i2": torch.int16,
    "i1": torch.int8,
    "u1": torch.uint8,
    "b1": torch.bool,
}


@dataclass(frozen=True, slots=True)
class Storage:
    """Numbers of one type that tensors share."""

    key: str
    dtype: torch.dtype
    num_elements: int

    @property
    def num_bytes(self) -> int:
        return self.num_elements * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor in a file: which of its storage's numbers it is made of."""

    storage: Storage
    dtype: torch.dtype
    offset: int
    """In elements, as are the strides."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(slots=True)
class StoredDtype:
    """A type of numpy's; its state comes after it is made."""

    code: str
    is_swapped: bool = False
    """Whether its bytes are in the other order than this machine's."""

    @property
    def torch_dtype(self) -> torch.dtype | None:
        return None if self.is_swapped else NUMPY_DTYPES.get(self.code)


@dataclass(slots=True)
class StoredArray:
    """An array of numpy's; all of it comes after it is made, and only then has it a `dtype`."""

    dtype: torch.dtype | None = None
    shape: tuple[int, ...] = ()
    is_column_major: bool = False
    raw: bytes = b""


def stored_rules(allowance: Allowance, file_size: int, storages: dict[str, Storage]) -> Rules:
    """What may be made of a file's pickles.

    Args:
        allowance: What the file may use up.
        file_size: Bytes.
        storages: Filled with those that are referred to, by key.
    """

    def persistent(given: Any) -> Any:
        if isinstance(given, tuple) and len(given) > 1 and given[0] == "module":  # the old form keeps source code there
            return given[1]
        is_form = isinstance(given, tuple) and len(given) in (5, 6) and given[0] == "storage" and not any(given[5:])
        if not is_form or not isinstance(given[2], str) or len(given[2]) > MOST_KEY or not _is_count(given[4]):
            raise UnreadableError("refers to data in a form that torch does not write")
        _, kind, key, _, count = given[:5]
        dtype = STORAGES.get(kind.name.rpartition(".")[2]) if isinstance(kind, Reference) else None
        if dtype is None:
            return Inert(kind if isinstance(kind, Reference) else Reference("?", "Storage"))
        storage = Storage(key, dtype, count)
        if storage.num_bytes > file_size:
            raise UnreadableError("claims more numbers than it has room for")
        storages.setdefault(key, storage)
        return storage

    builders = {**_container_builders(allowance), **_tensor_builders(), **_numpy_builders(allowance)}
    return Rules(builders, partial(_give_state, allowance), persistent)


def _container_builders(allowance: Allowance) -> dict[Reference, Builder]:
    def copied(kind: Callable[..., Any], items: Any = ()) -> Any:
        if not isinstance(items, (list, tuple)):
            raise ValueError("is not made of a list")
        allowance.copy(ITEM_BYTES * len(items))
        if kind in (set, frozenset) and not all(isinstance(item, (str, bytes, int, float)) for item in items):
            raise ValueError("has members that are not plain")
        return kind(items)

    def empty(kind: Callable[[], Any]) -> Any:
        return kind()

    builders: dict[Reference, Builder] = {
        Reference("collections", "OrderedDict"): partial(empty, OrderedDict),
        Reference("_codecs", "encode"): partial(_encoded, allowance),
        Reference("torch", "Size"): partial(copied, tuple),
        Reference("torch", "device"): _device,
    }
    for module in ("builtins", "__builtin__"):
        builders[Reference(module, "dict")] = partial(empty, dict)
        builders[Reference(module, "bytes")] = partial(empty, bytes)
        for kind in (set, frozenset, list, tuple):
            builders[Reference(module, kind.__name__)] = partial(copied, kind)
    return builders


def _encoded(allowance: Allowance, text: Any, encoding: Any = "latin-1") -> bytes:
    """The bytes that stand in a pickle as text, as protocol 2 and Python 2 write them."""
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise ValueError("is not how pickle writes bytes")
    allowance.copy(len(text))
    return text.encode("latin-1")


def _device(kind: Any, index: Any = None) -> str:
    if not isinstance(kind, str) or not (index is None or _is_count(index)):
        raise ValueError("is no device")
    return kind if index is None else f"{kind}:{index}"


def _tensor_builders() -> dict[Reference, Builder]:
    plain: Mapping[Reference, Builder] = {
        Reference("torch._utils", "_rebuild_tensor"): _rebuild_tensor,
        Reference("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor_v2,
        Reference("torch._utils", "_rebuild_tensor_v3"): _rebuild_tensor_v3,
        Reference("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
        Reference("torch._utils", "_rebuild_parameter_with_state"): _rebuild_parameter,
    }

    def rebuild_with_attributes(function: Any, kind: Any, arguments: Any, state: Any) -> Any:
        builder = plain.get(function) if isinstance(function, Reference) else None
        if builder is None or not isinstance(arguments, tuple):
            raise ValueError("is of a kind of tensor that is not read")
        return builder(*arguments)

    return {**plain, Reference("torch._tensor", "_rebuild_from_type_v2"): rebuild_with_attributes}


def _rebuild_tensor(storage: Any, offset: Any, shape: Any, strides: Any) -> StoredTensor:
    if not isinstance(storage, Storage):
        raise ValueError("is made of numbers of a kind that is not read")
    return _checked(storage, storage.dtype, offset, shape, strides)


def _rebuild_tensor_v2(
    storage: Any, offset: Any, shape: Any, strides: Any, requires_grad: Any, hooks: Any, metadata: Any = None
) -> StoredTensor:
    if metadata:
        raise ValueError("is a conjugate or negative view")
    return _rebuild_tensor(storage, offset, shape, strides)


def _rebuild_tensor_v3(
    storage: Any,
    offset: Any,
    shape: Any,
    strides: Any,
    requires_grad: Any,
    hooks: Any,
    dtype: Any,
    metadata: Any = None,
) -> StoredTensor:
    kind = DTYPES.get(dtype.name) if isinstance(dtype, Reference) and dtype.module == "torch" else None
    if not isinstance(storage, Storage) or kind is None or metadata:
        raise ValueError("is made of numbers of a kind that is not read")
    return _checked(storage, kind, offset, shape, strides)


def _rebuild_parameter(data: Any, *_: Any) -> StoredTensor:
    if not isinstance(data, StoredTensor):
        raise ValueError("is a parameter of something else than a tensor")
    return data


def _checked(storage: Storage, dtype: torch.dtype, offset: Any, shape: Any, strides: Any) -> StoredTensor:
    """The tensor, if it lies within its storage and is no larger; a view that repeats numbers could be of any size."""
    is_plain = isinstance(shape, tuple) and isinstance(strides, tuple) and len(shape) == len(strides)
    if not is_plain or len(shape) > MOST_DIMENSIONS or not all(map(_is_count, (offset, *shape, *strides))):
        raise UnreadableError("has a tensor whose shape is none")
    available, asked = storage.num_bytes // dtype.itemsize, math.prod(shape)
    last = offset + sum((size - 1) * step for size, step in zip(shape, strides, strict=True))
    if asked and last >= available:
        raise UnreadableError("has tensors that reach beyond their numbers")
    if asked > available:
        raise ValueError("repeats its numbers")
    return StoredTensor(storage, dtype, offset, shape, strides)


def _numpy_builders(allowance: Allowance) -> dict[Reference, Builder]:
    def scalar(dtype: Any, raw: Any) -> Any:
        kind = dtype.torch_dtype if isinstance(dtype, StoredDtype) else None
        raw = _encoded(allowance, raw) if isinstance(raw, str) else raw
        if kind is None or not isinstance(raw, bytes) or len(raw) != kind.itemsize:
            raise ValueError("is a scalar of a kind that is not read")
        return torch.frombuffer(bytearray(raw), dtype=kind).item()

    def reconstruct(kind: Any, shape: Any, code: Any) -> StoredArray:
        if kind != Reference("numpy", "ndarray"):
            raise ValueError("is an array of a kind that is not read")
        return StoredArray()

    builders: dict[Reference, Builder] = {Reference("numpy", "dtype"): _numpy_dtype}
    for module in ("numpy.core.multiarray", "numpy._core.multiarray"):
        builders[Reference(module, "scalar")] = scalar
        builders[Reference(module, "_reconstruct")] = reconstruct
    return builders


def _numpy_dtype(code: Any, *_: Any) -> StoredDtype:
    if not isinstance(code, str):
        raise ValueError("is a type of a kind that is not read")
    return StoredDtype(code)


def _give_state(allowance: Allowance, value: Any, state: Any) -> None:
    """What numpy's types and arrays are given after they are made. Source: numpy, `__setstate__` of both."""
    if not isinstance(state, tuple):
        return
    if isinstance(value, StoredDtype) and len(state) > 1:
        value.is_swapped = state[1] not in (OWN_ORDER, "|", "=")
    elif isinstance(value, StoredArray) and len(state) == 5:
        _, shape, dtype, is_column_major, raw = state
        kind = dtype.torch_dtype if isinstance(dtype, StoredDtype) else None
        raw = _encoded(allowance, raw) if isinstance(raw, str) else raw
        is_shape = isinstance(shape, tuple) and len(shape) <= MOST_DIMENSIONS and all(map(_is_count, shape))
        if kind is None or not is_shape or not isinstance(raw, bytes):
            return  # an array of objects, for one; it stays without a type, and so is no weights
        if math.prod(shape) * kind.itemsize != len(raw):
            raise UnreadableError("has an array of another shape than its numbers")
        value.dtype, value.shape, value.is_column_major, value.raw = kind, shape, bool(is_column_major), raw


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**62
