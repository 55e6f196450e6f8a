"""`visiontrain val`: scores trained weights on a split."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from visiontrain.config.schema import Config
from visiontrain.engine.precision import choose_precision
from visiontrain.errors import ConfigError
from visiontrain.run.choose_task import with_task
from visiontrain.run.class_names import with_names_of_weights
from visiontrain.run.exported import settle_exported
from visiontrain.run.files import as_json, write_json
from visiontrain.run.prepare import (
    LoadedModel,
    check_image_size,
    device_of,
    load_model,
    make_folder,
    place,
    read_data,
    split_of,
    task_of,
)
from visiontrain.run.score import open_scorer

# Arguments of training that scoring takes over where they are not typed, so that it finds the same numbers.
TAKEN_OVER = (
    "data",
    "data_format",
    "val_fraction",
    "seed",
    "imgsz",
    "batch",
    "single_cls",
    "multi_label",
    "loss",
    "label_smoothing",
    "class_weights",
    "focal_gamma",
    "max_pixels",
    "conf",
    "iou",
    "max_det",
    "amp",
)


@dataclass(frozen=True)
class ValResult:
    """What scoring found."""

    metrics: Mapping[str, Any]
    losses: Mapping[str, float]
    save_dir: Path


def val(config: Config) -> None:
    """The command."""
    val_run(config)


def val_run(config: Config) -> ValResult:
    """Score `model` on `split` of `data`; what is not typed is taken over from the weights' own training.

    Raises:
        UserError: If the input is wrong; no folder was made then.
    """
    config = with_task(config)
    task = task_of(config)
    loaded = load_model(config, task)
    config, task = settle_exported(with_training_args(config, loaded, TAKEN_OVER), task, loaded.network)
    if config.data is None:
        raise ConfigError("data: is not given, and the weights do not tell; name the data set's YAML file")
    data = read_data(config, task, (config.split,))
    data = with_names_of_weights(data, loaded.names, config.map_names)
    records = split_of(data, config.split)
    check_image_size(config, loaded.network)
    setup = device_of(config)
    precision = choose_precision(str(config.amp), setup.device)
    network = place(loaded.network, setup)
    scorer = open_scorer(
        config,
        task,
        network=network,
        records=records,
        names=data.names,
        setup=setup,
        precision=precision,
        warn=lambda text: print(f"warning: {text}", file=sys.stderr),
    )
    try:
        folder = make_folder(config)
        metrics, losses = scorer.score(network)
        if config.plots:
            scorer.draw(network, folder)
    finally:
        scorer.close()
    numbers = {**{name: float(value) for name, value in metrics.items()}, **{f"val/{k}": v for k, v in losses.items()}}
    write_json(folder / "results.json", {"metrics": numbers, "split": config.split, "images": len(records)})
    if config.json:
        print(as_json(numbers))
    else:
        print("\n".join([*data.messages, task.table(metrics), f"{config.split} split of {config.data}; run {folder}"]))
    return ValResult(metrics, losses, folder)


def with_training_args(config: Config, loaded: LoadedModel, keys: tuple[str, ...]) -> Config:
    """`config` with those of `keys` that were not typed as they were in training."""
    values = loaded.args.get("values", {})
    taken = {key: values[key] for key in keys if key in values and not config.is_typed(key)}
    return config.decide(**taken)
