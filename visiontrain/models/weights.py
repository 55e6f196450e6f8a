"""Weights of any program, from `.pt`, `.pth`, `.pkl` and `.safetensors` files, by name; and `.safetensors` written.

No code of a file is run or imported. Of pickled modules, whose classes stay inert, the parameters and buffers are
collected under the names that `state_dict()` would give them.
"""

from __future__ import annotations

import importlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from visiontrain.errors import ConfigError
from visiontrain.models.pickles import Inert, UnreadableError
from visiontrain.models.stored import StoredArray, StoredTensor
from visiontrain.models.torch_files import read_torch_file

SAFETENSORS_SUFFIX = ".safetensors"
WRAPPING_KEYS = ("ema", "model_ema", "model", "state_dict", "model_state_dict", "net", "network", "module")
"""Under which a file may hold its weights, the best ones first; also more than one deep."""
NAME_KEYS = ("names", "classes", "class_names")
MOST_VISITS = 1_000_000
"""Containers and modules that are looked into; those that hold each other could be without end."""
MOST_DEPTH = 60
MOST_NAME = 512
MOST_CLASSES = 20_000
_NUMBERS = re.compile(r"(\d+)")


@dataclass(frozen=True)
class WeightsFile:
    """What a file of weights holds."""

    form: str
    tensors: Mapping[str, Tensor]
    """By name, in the file's order, on the CPU; some may share their numbers."""
    names: tuple[str, ...] | None
    """Of the classes, where the file tells."""
    not_run: Mapping[str, int] = field(default_factory=dict)
    """How many objects of which class were left inert, by class, the most frequent first."""


def read_weights_file(path: str | Path, *, where: str | None = None) -> WeightsFile:
    """The weights in a file; runs no code from it.

    Args:
        path: A file that `torch.save` wrote in any of its forms since 2018, of a state_dict, a checkpoint or a whole
            module; a pickle of numpy's arrays; or a `.safetensors` file.
        where: What names the file, for messages.

    Raises:
        ConfigError: If it cannot be read, is damaged or hostile, or holds no weights.
    """
    path = Path(path)
    where = where or str(path)
    try:
        if path.suffix == SAFETENSORS_SUFFIX:
            return _read_safetensors(path)
        with path.open("rb") as file:
            return _read_pickled(file, path.stat().st_size)
    except OSError as error:
        raise ConfigError(f"{where}: cannot be read ({error.strerror or error}); name a file of weights") from error
    except UnreadableError as error:
        remedy = "" if ";" in str(error) else "; name another file of weights"
        raise ConfigError(f"{where}: {error}{remedy}") from error


def write_safetensors(path: str | Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write named tensors: a temporary file, renamed over `path` when it is whole.

    Args:
        path: The file.
        tensors: On any device; each is written in its own right, also where some share their numbers.
        metadata: Texts by name, such as `names` as JSON.

    Raises:
        ConfigError: If the library is not installed.
        OSError: If it cannot be written; `path` is then as it was.
    """
    save = _safetensors("safetensors.torch").save
    path = Path(path)
    own = {name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()}
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(save(own, dict(metadata)))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _safetensors(module: str) -> Any:
    """The library, which only this format needs."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(
            "safetensors: the package is not installed; `pip install 'visiontrain[export]'` brings it"
        ) from error


def _read_safetensors(path: Path) -> WeightsFile:
    library = _safetensors("safetensors")
    path.open("rb").close()  # for the system's own words where there is no such file
    try:
        with library.safe_open(path, framework="pt", device="cpu") as file:
            # The format sorts by type and name; "layers.10" belongs after "layers.9".
            keys = sorted(file.keys(), key=_natural)
            for key in keys:
                _check_name("", key)
            tensors = {key: file.get_tensor(key) for key in keys}
            metadata = file.metadata() or {}
    except library.SafetensorError as error:
        raise UnreadableError("is a damaged file of safetensors, or none") from error
    if not tensors:
        raise UnreadableError("holds no weights")
    try:
        names = _class_names(json.loads(metadata.get("names", "null")))
    except (ValueError, RecursionError):
        names = None
    return WeightsFile("safetensors", tensors, names)


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() and len(part) < 10 else (0, part) for part in _NUMBERS.split(name)]


def _read_pickled(file: BinaryIO, size: int) -> WeightsFile:
    found = read_torch_file(file, size)
    stored = _weights_in(found.root)
    if not stored:
        raise UnreadableError(
            f"holds no weights; they should be named tensors, plain, in a module, or under {', '.join(WRAPPING_KEYS)}"
        )
    tensors = {name: found.tensor(tensor) for name, tensor in stored.items()}
    return WeightsFile(found.form, tensors, _names_in(found.root), dict(found.not_run.most_common()))


Stored = StoredTensor | StoredArray


class _Visits:
    """Counts what is looked at: a file can hold the same container a million times over."""

    def __init__(self) -> None:
        self._left = MOST_VISITS

    def spend(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise UnreadableError("holds more than any network does, or the same without end")


def _weights_in(root: Any) -> dict[str, Stored]:
    """The tensors of the weights: under the first wrapping key that holds any, or else all of them."""
    visits = _Visits()
    for _ in range(MOST_DEPTH):
        inside = _attributes(root)
        inner = (inside[key] for key in WRAPPING_KEYS if isinstance(inside.get(key), (dict, Inert)))
        found = None if _is_module(root) else next((value for value in inner if _collected(value, visits)), None)
        if found is None:
            break
        root = found
    return _collected(root, visits)


def _collected(root: Any, visits: _Visits) -> dict[str, Stored]:
    """All tensors within a value, by their dotted names.

    Raises:
        UnreadableError: If there are too many, or containers hold each other without end.
    """
    found: dict[str, Stored] = {}
    waiting: list[Iterator[tuple[str, Any]]] = [_members("", root, visits)]
    while waiting:
        member = next(waiting[-1], None)
        if member is None:
            waiting.pop()
            continue
        name, value = member
        if isinstance(value, StoredTensor) or (isinstance(value, StoredArray) and value.dtype is not None):
            found[name] = value
        elif isinstance(value, (dict, Inert)):
            if len(waiting) > MOST_DEPTH:
                raise UnreadableError(f"holds modules within modules, more than {MOST_DEPTH} deep")
            waiting.append(_members(f"{name}.", value, visits))
    return found


def _members(prefix: str, value: Any, visits: _Visits) -> Iterator[tuple[str, Any]]:
    inside = _attributes(value)
    parts = [inside]
    if _is_module(value):
        told = inside.get("_non_persistent_buffers_set")
        transient = told if isinstance(told, (set, frozenset)) else frozenset()
        kept = {key: item for key, item in _attributes(inside.get("_buffers")).items() if key not in transient}
        parts = [_attributes(inside.get("_parameters")), kept, _attributes(inside["_modules"])]
    for part in parts:
        visits.spend(1 + len(part))
        for key, item in part.items():
            if isinstance(key, str):
                _check_name(prefix, key)
                yield prefix + key, item


def _attributes(value: Any) -> Mapping[Any, Any]:
    """What a value holds by name: the entries of a mapping, the attributes of an object that was not run."""
    if isinstance(value, dict):
        return value
    if not isinstance(value, Inert):
        return {}
    if value.entries is not None:  # a kind of mapping
        return value.entries
    state = value.state
    if isinstance(state, tuple) and len(state) == 2:  # attributes, and those in slots
        state = state[0] or state[1]
    return state if isinstance(state, dict) else {}


def _is_module(value: Any) -> bool:
    return isinstance(value, Inert) and isinstance(_attributes(value).get("_modules"), (dict, Inert))


def _check_name(prefix: str, key: str) -> None:
    if len(prefix) + len(key) > MOST_NAME:
        raise UnreadableError(f"has names of more than {MOST_NAME} characters")


def _names_in(root: Any) -> tuple[str, ...] | None:
    """The names of classes, at the root or in what it wraps."""
    for _ in range(MOST_DEPTH):
        inside = _attributes(root)
        for key in NAME_KEYS:
            names = _class_names(inside.get(key))
            if names is not None:
                return names
        root = next((inside[key] for key in WRAPPING_KEYS if isinstance(inside.get(key), (dict, Inert))), None)
        if root is None:
            break
    return None


def _class_names(value: Any) -> tuple[str, ...] | None:
    """`value` as class names by index, from a list or a mapping of index → name; None where it is neither."""
    if isinstance(value, Mapping) and len(value) <= MOST_CLASSES:
        value = [value.get(index) for index in range(len(value))]
    if not isinstance(value, (list, tuple)) or not 0 < len(value) <= MOST_CLASSES:
        return None
    is_plain = all(isinstance(name, str) and 0 < len(name) <= MOST_NAME and name.isprintable() for name in value)
    return tuple(value) if is_plain and len(set(value)) == len(value) else None
