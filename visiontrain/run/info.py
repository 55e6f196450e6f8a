"""How large a network is, in one line, and what it is made of, in a table."""

from __future__ import annotations

from visiontrain.config.schema import Config
from visiontrain.loggers.tables import align
from visiontrain.models.info import model_info
from visiontrain.models.layer_table import HEADER, layer_rows
from visiontrain.run.choose_task import with_task
from visiontrain.run.class_names import USUAL_COUNTS, numbered_names
from visiontrain.run.prepare import fresh_network, is_weights_file, load_model, task_of


def describe_model(model: str | None, imgsz: int | None, *, has_table: bool = False) -> str:
    """Layers, parameters and GFLOPs of a network, with the usual number of classes, or of trained weights.

    Args:
        model: As of `Model`.
        imgsz: Pixels; None: the task's own.
        has_table: Whether a table of the layers stands before it.

    Raises:
        UserError: If there is no such network, or it takes no images of this size.
    """
    config = with_task(Config(model=model))
    task = task_of(config)
    size = imgsz or task.default_imgsz
    if is_weights_file(model):
        network = load_model(config, task).network
    else:
        network = fresh_network(config.decide(imgsz=size), task, numbered_names(USUAL_COUNTS[task.name]))
    network.check_size(size)
    line = f"{model or task.default_model}: {model_info(network, size)}"
    if not has_table:
        return line
    return "\n".join([align([HEADER, *(row.cells() for row in layer_rows(network, size))]), line])
