"""How large a network is, in one line."""

from __future__ import annotations

from visiontrain.config.schema import Config
from visiontrain.models.info import model_info
from visiontrain.run.choose_task import with_task
from visiontrain.run.class_names import USUAL_COUNTS, numbered_names
from visiontrain.run.prepare import fresh_network, is_weights_file, load_model, task_of


def describe_model(model: str | None, imgsz: int | None) -> str:
    """Layers, parameters and GFLOPs of a network, with the usual number of classes, or of trained weights."""
    config = with_task(Config(model=model))
    task = task_of(config)
    size = imgsz or task.default_imgsz
    if is_weights_file(model):
        network = load_model(config, task).network
    else:
        network = fresh_network(config.decide(imgsz=size), task, numbered_names(USUAL_COUNTS[task.name]))
    return f"{model or task.default_model}: {model_info(network, size)}"
