"""What an exported file tells of itself, as texts: JSON, but for the task."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch

from visiontrain.config.schema import Config
from visiontrain.export.program import Program
from visiontrain.export.suppression import Suppression
from visiontrain.models.network import Network
from visiontrain.run.resuming import versions

SCORED_BY = (
    "imgsz",
    "batch",
    "single_cls",
    "multi_label",
    "conf",
    "iou",
    "max_det",
    "max_pixels",
    "fliplr",
    "flip_swap",
)
"""Arguments of training by which `val` and `predict` go; no paths, which tell of the machine."""


def metadata_of(
    config: Config, program: Program, args: Mapping[str, Any], suppression: Suppression | None
) -> dict[str, str]:
    """The metadata of a file.

    Args:
        config: The settings of the export.
        program: What is exported.
        args: The values of the settings of training.
        suppression: That is part of the graph, if any.
    """
    network = program.network
    description = json.dumps(network.description, sort_keys=True)
    values = {
        "names": network.names,
        "strides": network.strides,
        "imgsz": program.imgsz,
        "dynamic": program.is_dynamic,
        "normalization": _normalization(network),
        "multi_label": network.multi_label,
        "nms": None if suppression is None else asdict(suppression),
        "network": network.description,
        "network_sha256": hashlib.sha256(description.encode()).hexdigest(),
        "versions": versions(),
        "args": {**{key: args[key] for key in SCORED_BY if key in args}, "imgsz": program.imgsz},
    }
    if config.format == "onnx":
        values["opset"] = program.opset
    return {"task": network.task, **{key: json.dumps(value, ensure_ascii=False) for key, value in values.items()}}


def _normalization(network: Network) -> dict[str, list[float]]:
    """Mean and standard deviation of each channel that the network itself takes from images in [0, 1]."""
    with torch.inference_mode():
        black, white = (network.prepare(torch.full((1, 3, 1, 1), value)).flatten().double() for value in (0.0, 1.0))
    std = 1 / (white - black)
    return {"mean": [round(x, 6) for x in (-black * std).tolist()], "std": [round(x, 6) for x in std.tolist()]}
