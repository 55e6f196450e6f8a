"""Checkpoints: tensors and plain values only, written whole or not at all, with a digest that finds any damage.

The file is torch's zip archive; its comment holds the SHA-256 of all bytes before the comment's length. Old and new
torch read such a file as it is, and no code in it is ever run.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import shutil
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from visiontrain.errors import CheckpointError

FORMAT = 1
ZIP_START = b"PK\x03\x04"
DIGEST_PREFIX = b"sha256:"
_COMMENT_LENGTH = len(DIGEST_PREFIX) + 64  # the digest in hexadecimal
_COMMENT_START = _COMMENT_LENGTH.to_bytes(2, "little") + DIGEST_PREFIX
PLAIN = (str, int, float, bool, type(None))
STEP = "step"  # of an optimizer's state: a count, on the CPU, whatever the parameter is
# What torch's safe loader raises on a pickle that breaks its rules, some of it out of the middle of its stack machine.
UNREADABLE = (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, LookupError, TypeError, AttributeError)
REQUIRED = ("task", "model", "ema", "args", "names", "network")


class SaveError(OSError):
    """A checkpoint could not be written; what was there before is as it was."""


def save_checkpoint(path: Path, values: Mapping[str, Any], *, previous: Path | None = None) -> None:
    """Write `values` (tensors and plain Python values) to `path`: a temporary file, synced, then renamed over it.

    Args:
        path: The file; its folder is made if it is gone.
        values: What to write.
        previous: Where the file that is replaced is kept, in the same folder. At any moment one of them is whole.

    Raises:
        SaveError: If the disk is full or the folder cannot be written; `path` and `previous` are then whole.
    """
    _check_plain("values", dict(values))
    buffer = io.BytesIO()
    torch.save({"format": FORMAT, **values}, buffer)
    body = buffer.getbuffer()[:-2]  # without the length of torch's comment, which is 0
    comment = DIGEST_PREFIX + hashlib.sha256(body).hexdigest().encode()
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(body)
            file.write(_COMMENT_LENGTH.to_bytes(2, "little"))
            file.write(comment)
            file.flush()
            os.fsync(file.fileno())
        if previous is not None and path.exists():
            _keep(path, previous)
        temporary.replace(path)
    except OSError as error:
        megabytes = (len(body) + _COMMENT_LENGTH) / 1e6
        raise SaveError(
            f"{path}: cannot be written ({error.strerror or error}); it takes {megabytes:.1f} MB"
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    _sync_folder(path.parent)


def _keep(path: Path, previous: Path) -> None:
    """Give the file at `path` the name `previous` as well; `path` stays."""
    link = previous.with_name(f".{previous.name}.tmp")
    link.unlink(missing_ok=True)
    try:
        os.link(path, link)
    except OSError:  # a file system without links
        shutil.copyfile(path, link)
    link.replace(previous)


def _check_plain(place: str, value: Any) -> None:
    """What torch's safe loader would refuse must not be written in the first place."""
    if isinstance(value, dict):
        for key, member in value.items():
            _check_plain(f"{place}[{key!r}]", member)
    elif type(value) in (list, tuple):
        for index, member in enumerate(value):
            _check_plain(f"{place}[{index}]", member)
    else:
        is_plain = isinstance(value, Tensor) or type(value) in PLAIN
        assert is_plain, f"checkpoint: {place} is a {type(value).__name__}, neither a tensor nor a plain value"


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint of ours onto the CPU; runs no code from it.

    Raises:
        CheckpointError: If the file is missing, damaged, none of ours, or not made of tensors and plain values.
    """
    try:
        with path.open("rb") as file:
            _check_ends(path, file)  # before a file is read that may be of any size
            archive = file.read()
    except OSError as error:
        raise CheckpointError(
            f"{path}: cannot be read ({error.strerror}); name a weights file such as best.pt"
        ) from error
    _check_digest(path, memoryview(archive))
    try:
        with warnings.catch_warnings():  # torch asks to be told of pickles that it does not write
            warnings.simplefilter("ignore")
            values = torch.load(io.BytesIO(archive), map_location="cpu", weights_only=True)
    except UNREADABLE as error:
        raise CheckpointError(
            f"{path}: is not a checkpoint of tensors and plain values ({_first_line(error)}); "
            "files that carry code are refused"
        ) from error
    if not isinstance(values, dict) or "format" not in values:
        raise CheckpointError(f"{path}: is not a checkpoint of this program; name a best.pt or last.pt that it wrote")
    if values["format"] != FORMAT:
        raise CheckpointError(
            f"{path}: is of format {values['format']}, and this version reads format {FORMAT}; "
            "use the version that wrote it"
        )
    missing = [key for key in REQUIRED if key not in values]
    if missing:
        raise CheckpointError(f"{path}: lacks {', '.join(missing)}; use another copy or an earlier checkpoint")
    _check_finite(path, values)
    return values


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def is_checkpoint(path: Path) -> bool:
    """Whether a file ends as those of this program do, damaged or not; False where it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(-_COMMENT_LENGTH, os.SEEK_END)
            return file.read(len(DIGEST_PREFIX)) == DIGEST_PREFIX
    except OSError:  # missing, or shorter than that
        return False


def _check_finite(path: Path, values: Mapping[str, Any]) -> None:
    for key in ("model", "ema"):
        for name, tensor in (values[key] or {}).items():
            if tensor.is_floating_point() and not torch.isfinite(tensor).all():
                raise CheckpointError(
                    f"{path}: {key} {name!r} holds numbers that are not finite: the run had diverged; use an earlier "
                    "checkpoint, and a lower lr0"
                )


def _check_ends(path: Path, file: BinaryIO) -> None:
    """Raises CheckpointError unless the file begins and ends as ours do; leaves it at its start."""
    if file.read(len(ZIP_START)) != ZIP_START:
        raise CheckpointError(f"{path}: is not a checkpoint; name a weights file such as best.pt")
    file.seek(max(0, file.seek(0, os.SEEK_END) - len(_COMMENT_START) - 64))
    if not file.read().startswith(_COMMENT_START):
        raise CheckpointError(
            f"{path}: carries no digest at its end: it was cut short, or another program wrote it; "
            "name a best.pt or last.pt of this program"
        )
    file.seek(0)


def _check_digest(path: Path, archive: memoryview) -> None:
    if hashlib.sha256(archive[: -_COMMENT_LENGTH - 2]).hexdigest().encode() != archive[-64:]:
        raise CheckpointError(
            f"{path}: is damaged (its digest does not fit); use another copy or an earlier checkpoint"
        )


def _sync_folder(folder: Path) -> None:
    """Make a rename outlast a power cut, where the system can open folders (not on Windows)."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def weights_of(network: nn.Module) -> dict[str, Tensor]:
    """The network's parameters and buffers by name, on the CPU, floating ones in fp32 (float64 stays)."""
    return {name: _widened(tensor) for name, tensor in network.state_dict().items()}


def _widened(tensor: Tensor) -> Tensor:
    tensor = tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def optimizer_state(optimizer: Optimizer, network: nn.Module) -> dict[str, dict[str, Any]]:
    """The optimizer's state keyed by parameter name, so that it does not hang on the order of groups."""
    names = {param: name for name, param in network.named_parameters()}
    return {
        names[param]: {
            key: _widened(value) if isinstance(value, Tensor) else value
            for key, value in optimizer.state[param].items()
            if value is not None
        }
        for group in optimizer.param_groups
        for param in group["params"]
        if param in optimizer.state
    }


def restore_optimizer(optimizer: Optimizer, network: nn.Module, state: Mapping[str, Mapping[str, Any]]) -> None:
    """Put back what `optimizer_state` gave.

    Raises:
        CheckpointError: If the state names parameters that the network does not have, or of another shape.
    """
    params = dict(network.named_parameters())
    unknown = sorted(set(state) - set(params))
    if unknown:
        raise CheckpointError(
            f"optimizer state: the network has no parameter {unknown[0]!r}; resume with its own network"
        )
    for name, values in state.items():
        param = params[name]
        optimizer.state[param] = {
            key: _placed(name, key, value, param) if isinstance(value, Tensor) else value
            for key, value in values.items()
        }


def _placed(name: str, key: str, value: Tensor, param: nn.Parameter) -> Tensor:
    if key == STEP:
        return value.clone()
    if value.shape != param.shape:
        raise CheckpointError(
            f"optimizer state: {key} of {name!r} has the shape {tuple(value.shape)}, the parameter "
            f"{tuple(param.shape)}; resume with its own network"
        )
    return torch.empty_like(param).copy_(value)  # keeps the parameter's memory format, and with it the bits
