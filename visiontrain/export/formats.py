"""The formats, each with how a file of it is written and how it is run again to be compared.

Letters: B images, A anchor points, C classes, H × W pixels of the network's input.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from copy import deepcopy
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from visiontrain.errors import ConfigError
from visiontrain.export.onnx_file import write_onnx
from visiontrain.export.onnx_network import SUFFIX as ONNX_SUFFIX
from visiontrain.export.onnx_network import OnnxNetwork
from visiontrain.export.parity import Run
from visiontrain.export.program import IMAGES, Program
from visiontrain.models.weights import SAFETENSORS_SUFFIX, write_safetensors

METADATA_FILE = "visiontrain.json"
"""The name under which archives of torch hold the metadata."""


@dataclass(frozen=True)
class Format:
    """How one format is written and read back."""

    suffix: str
    write: Callable[[Program, Path, Mapping[str, str]], None]
    open: Callable[[Program, Path], Run]
    """The file as something to run, with nothing of the program but its names and the makings of its network."""


def _write_torchscript(program: Program, path: Path, metadata: Mapping[str, str]) -> None:
    # What is traced is checked against the network afterwards, on real images.
    with _traced(program):
        traced = torch.jit.trace(program.module, (program.example(),), strict=False, check_trace=False)  # type: ignore[no-untyped-call]
        torch.jit.save(traced, path, _extra_files={METADATA_FILE: json.dumps(dict(metadata))})  # type: ignore[no-untyped-call]


def _open_torchscript(program: Program, path: Path) -> Run:
    with _quiet():
        module = torch.jit.load(path, map_location="cpu")  # type: ignore[no-untyped-call]
    return _runner(module, program.output_names)


def _write_exported_program(program: Program, path: Path, metadata: Mapping[str, str]) -> None:
    with _traced(program):
        shapes = {IMAGES: program.dynamic_shape()}
        exported = torch.export.export(program.module, (program.example(),), dynamic_shapes=shapes)
        torch.export.save(exported, path, extra_files={METADATA_FILE: json.dumps(dict(metadata))})


def _open_exported_program(program: Program, path: Path) -> Run:
    with _quiet():
        module = torch.export.load(path).module()
    return _runner(module, program.output_names)


def _write_onnx(program: Program, path: Path, metadata: Mapping[str, str]) -> None:
    with _traced(program):
        write_onnx(program, path, metadata)


def _open_onnx(program: Program, path: Path) -> Run:
    return OnnxNetwork(path)


def _write_safetensors(program: Program, path: Path, metadata: Mapping[str, str]) -> None:
    write_safetensors(path, program.network.state_dict(), metadata)


def _open_safetensors(program: Program, path: Path) -> Run:
    from safetensors.torch import load_file

    network = deepcopy(program.network)
    with torch.no_grad():
        for tensor in network.state_dict().values():
            tensor.zero_()  # what the file does not bring back is missed
    network.load_state_dict(load_file(path))
    return lambda images: program.finish(network(images))


FORMATS: Mapping[str, Format] = {
    "onnx": Format(ONNX_SUFFIX, _write_onnx, _open_onnx),
    "torchscript": Format(".torchscript", _write_torchscript, _open_torchscript),
    "exported_program": Format(".pt2", _write_exported_program, _open_exported_program),
    "safetensors": Format(SAFETENSORS_SUFFIX, _write_safetensors, _open_safetensors),
}


def _runner(module: nn.Module | Callable[[Tensor], Any], names: tuple[str, ...]) -> Run:
    def run(images: Tensor) -> dict[str, Tensor]:
        outputs = module(images.float() / 255)
        return dict(zip(names, outputs, strict=True))

    return run


@contextmanager
def _traced(program: Program) -> Iterator[None]:
    """What torch says while it traces is for its own developers; what it refuses becomes the user's."""
    try:
        with _quiet(), torch.no_grad():
            yield
    except (RuntimeError, ValueError) as error:
        remedy = "leave dynamic out" if program.is_dynamic else "try another format"
        first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise ConfigError(f"export: torch cannot write this network ({first.strip()[:200]}); {remedy}") from error


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings(), redirect_stdout(StringIO()):
        warnings.simplefilter("ignore")
        yield
