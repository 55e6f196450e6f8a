"""How large a network is, in one line."""

from __future__ import annotations

from pathlib import Path

from visiontrain.config.schema import Config
from visiontrain.models.info import model_info
from visiontrain.run.choose_task import with_task
from visiontrain.run.prepare import WEIGHTS_SUFFIXES, fresh_network, load_model, task_of

CLASSES_OF_A_FRESH_NETWORK = {"detect": 80, "classify": 1000}
"""Those of COCO and ImageNet, by which networks are compared."""


def describe_model(model: str | None, imgsz: int | None) -> str:
    """Layers, parameters and GFLOPs of a network, with the usual number of classes, or of trained weights."""
    config = with_task(Config(model=model))
    task = task_of(config)
    size = imgsz or task.default_imgsz
    if model is not None and Path(model).suffix in WEIGHTS_SUFFIXES:
        network = load_model(config, task).network
    else:
        names = tuple(f"class{index}" for index in range(CLASSES_OF_A_FRESH_NETWORK[task.name]))
        network = fresh_network(config.decide(imgsz=size), task, names)
    return f"{model or task.default_model}: {model_info(network, size)}"
