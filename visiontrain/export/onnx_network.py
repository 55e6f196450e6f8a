"""`OnnxNetwork`: an ONNX file of ours in the place of a network, run by ONNX Runtime on the processor."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from visiontrain.errors import CheckpointError, ConfigError
from visiontrain.export.packages import TO_RUN, require
from visiontrain.export.program import IMAGES
from visiontrain.export.suppression import Suppression
from visiontrain.models.network import Network

SUFFIX = ".onnx"
REQUIRED = ("task", "names", "strides", "imgsz", "dynamic", "multi_label", "nms", "args")


@dataclass(frozen=True)
class OnnxMetadata:
    """What a file tells of itself."""

    task: str
    names: tuple[str, ...]
    strides: tuple[int, ...]
    imgsz: int
    is_dynamic: bool
    multi_label: bool
    suppression: Suppression | None
    args: dict[str, Any]
    """The settings of training that scoring goes by."""


class OnnxNetwork(Network):
    """Runs an exported file; `forward` takes (B, 3, H, W) uint8 RGB and gives the finished outputs by name.

    Attributes:
        metadata: What the file tells of itself.
    """

    def __init__(self, path: Path) -> None:
        """
        Raises:
            ConfigError: If ONNX Runtime is not installed.
            CheckpointError: If the file is missing, damaged, or none that this program wrote.
        """
        session = _open(path)
        self.metadata = _metadata_of(path, session)
        super().__init__(
            task=self.metadata.task,
            names=self.metadata.names,
            strides=self.metadata.strides,
            description={"multi_label": self.metadata.multi_label},
            fixed_size=None if self.metadata.is_dynamic else self.metadata.imgsz,
        )
        self._session = session
        self._outputs = [output.name for output in session.get_outputs()]

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        pixels = images.cpu().numpy().astype(np.float32) / np.float32(255)
        outputs = self._session.run(self._outputs, {IMAGES: pixels})
        return {name: torch.from_numpy(output) for name, output in zip(self._outputs, outputs, strict=True)}

    def check_size(self, imgsz: int) -> None:
        """Raises ConfigError unless the file takes square images of `imgsz` pixels."""
        if self.fixed_size not in (None, imgsz):
            raise ConfigError(
                f"imgsz = {imgsz}: this file was exported for images of {self.fixed_size} pixels and takes no others; "
                f"use imgsz={self.fixed_size}, or export it with dynamic=True"
            )
        super().check_size(imgsz)


def read_metadata(path: Path) -> OnnxMetadata:
    """What the file tells of itself.

    Raises:
        ConfigError: If ONNX Runtime is not installed.
        CheckpointError: If the file is missing, damaged, or none that this program wrote.
    """
    return _metadata_of(path, _open(path, is_optimized=False))


def _open(path: Path, *, is_optimized: bool = True) -> Any:
    require(TO_RUN, f"model = {str(path)!r}")
    import onnxruntime

    if not path.is_file():
        raise CheckpointError(f"{path}: is not there; name an ONNX file such as best.onnx")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3  # errors; the rest is for those who tune graphs
    if not is_optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except _runtime_errors() as error:
        reason = " ".join(str(error).split())[:200]
        raise CheckpointError(f"{path}: ONNX Runtime cannot load it ({reason}); export it anew") from error


def _runtime_errors() -> tuple[type[Exception], ...]:
    """What ONNX Runtime raises where a file is wrong; its classes have no common parent but Exception."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    kinds = ("Fail", "InvalidArgument", "InvalidGraph", "InvalidProtobuf", "NoSuchFile", "NotImplemented")
    return (*(getattr(state, kind) for kind in kinds), RuntimeError)


def _metadata_of(path: Path, session: Any) -> OnnxMetadata:
    raw: Mapping[str, str] = session.get_modelmeta().custom_metadata_map
    missing = [key for key in REQUIRED if key not in raw]
    if missing:
        raise CheckpointError(
            f"{path}: its metadata lack {', '.join(missing)}: another program wrote it; "
            "use a file that visiontrain export wrote"
        )
    try:
        values: dict[str, Any] = {key: raw[key] if key == "task" else json.loads(raw[key]) for key in REQUIRED}
        nms = values["nms"]
        return OnnxMetadata(
            task=str(values["task"]),
            names=tuple(str(name) for name in values["names"]),
            strides=tuple(int(stride) for stride in values["strides"]),
            imgsz=int(values["imgsz"]),
            is_dynamic=bool(values["dynamic"]),
            multi_label=bool(values["multi_label"]),
            suppression=None if nms is None else Suppression(**nms),
            args=dict(values["args"]),
        )
    except (ValueError, TypeError, KeyError) as error:
        raise CheckpointError(f"{path}: its metadata cannot be read ({error}); export it anew") from error
