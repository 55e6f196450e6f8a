"""Write an ONNX file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from visiontrain.errors import ConfigError
from visiontrain.export.program import IMAGES, Program
from visiontrain.export.suppression import Suppression, with_suppression

if TYPE_CHECKING:
    from onnx import ModelProto


def write_onnx(program: Program, path: Path, metadata: Mapping[str, str]) -> None:
    """Write `program` to `path`, one file, with `metadata` in its properties.

    Raises:
        ConfigError: If the operator set that was asked for cannot be had.
    """
    import onnx

    exported = torch.onnx.export(
        program.module,
        (program.example(),),
        input_names=[IMAGES],
        output_names=program.output_names,
        dynamic_shapes={IMAGES: program.dynamic_shape()},
        opset_version=program.opset,
        dynamo=True,
        optimize=program.simplify,
        verbose=False,
    )
    assert exported is not None
    model: Any = exported.model_proto
    _check_opset(model, program.opset)
    strip_traces_(model)
    set_metadata_(model, metadata)
    onnx.checker.check_model(model)
    onnx.save(model, path)


def add_suppression(path: Path, suppression: Suppression, metadata: Mapping[str, str]) -> None:
    """Write the file at `path`, a detector's, anew with suppression as the last part of its graph."""
    import onnx

    model = with_suppression(onnx.load(path), suppression)
    set_metadata_(model, metadata)
    onnx.save(model, path)


def set_metadata_(model: ModelProto, metadata: Mapping[str, str]) -> None:
    """Put `metadata` in the place of what is there."""
    del model.metadata_props[:]
    for key, value in metadata.items():
        model.metadata_props.add(key=key, value=value)


def strip_traces_(model: ModelProto) -> None:
    """Take out where in which source file each node was made: paths of this machine, and more bytes than the graph."""
    for graph in (model.graph, *model.functions):
        del graph.metadata_props[:]
        graph.doc_string = ""
        for node in graph.node:
            del node.metadata_props[:]
            node.doc_string = ""
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info, *model.graph.initializer):
        del value.metadata_props[:]


def _check_opset(model: ModelProto, opset: int) -> None:
    found = next(entry.version for entry in model.opset_import if not entry.domain)
    if found != opset:
        raise ConfigError(f"opset = {opset}: this network can be written in operator set {found} only; leave opset out")
