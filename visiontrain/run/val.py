"""`visiontrain val`: scores trained weights on a split."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from visiontrain.config.schema import Config
from visiontrain.engine.precision import choose_precision
from visiontrain.errors import ConfigError
from visiontrain.models.network import Network
from visiontrain.protocols import Judged, Task
from visiontrain.run.choose_task import with_task
from visiontrain.run.class_names import with_names_of_weights
from visiontrain.run.coco_results import FILE_NAME, ResultIds, result_ids, write_results
from visiontrain.run.exported import settle_exported
from visiontrain.run.files import as_json, write_json
from visiontrain.run.interval_lines import interval_lines
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
from visiontrain.run.report import PAGE, write_report
from visiontrain.run.review import review_of, write_review
from visiontrain.run.score import Scorer, open_scorer
from visiontrain.sample import Records

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
    model = load_for_scoring(with_task(config))
    config = model.config
    data = read_data(config, model.task, (config.split,))
    data_names, data = data.names, with_names_of_weights(data, model.names, config.map_names)
    records = split_of(data, config.split)
    ids = result_ids(config, records, data_names=data_names, names=data.names) if config.save_json else None
    with scoring(model, records) as scorer:
        folder = make_folder(config)
        _check_is_no_training(folder)
        metrics, losses = scorer.score(model.network)
        if config.plots:
            scorer.draw(model.network, folder)
    numbers = {**{name: float(value) for name, value in metrics.items()}, **{f"val/{k}": v for k, v in losses.items()}}
    details = cast(Judged, metrics).details()
    write_json(
        folder / "results.json",
        {"metrics": numbers, "split": config.split, "images": len(records), "intervals": details["intervals"]},
    )
    document = review_of(model.task, metrics, records, config, split=config.split)
    write_review(document, folder, plots=config.plots)
    if config.plots:
        write_report(folder)
    notes = [] if ids is None else [_write_predictions(folder / FILE_NAME, metrics, ids)]
    if config.json:
        print(as_json({**numbers, **details}))
    else:
        notes += [f"report {folder / PAGE}"] if config.plots else []
        lines = [*data.messages, model.task.table(metrics), *interval_lines(metrics), *notes]
        print("\n".join([*lines, f"{config.split} split of {config.data}; run {folder}"]))
    return ValResult(metrics, losses, folder)


def _check_is_no_training(folder: Path) -> None:
    """Raises ConfigError if a training run lies in the folder, which exist_ok allows to be written into."""
    if (folder / "args.yaml").exists():
        raise ConfigError(
            f"save_dir: {folder} is the folder of a training run, whose results.json and report would be replaced; "
            "name another folder, or leave it out"
        )


def _write_predictions(path: Path, metrics: Any, ids: ResultIds) -> str:
    """Write what the metrics were measured on, and say so."""
    num_left_out = write_results(path, metrics.scored.detections, ids)
    left_out = f"; {num_left_out} detections of classes that the data do not have are not in it" if num_left_out else ""
    return f"detections in {path}{left_out}"


@dataclass(frozen=True)
class ScoredModel:
    """Weights, and the settings by which they are scored."""

    config: Config
    task: Task
    network: Network
    names: tuple[str, ...]


def load_for_scoring(config: Config) -> ScoredModel:
    """The weights of `model`; what is not typed is as in their training.

    Raises:
        UserError: If they cannot be scored, or no data are named anywhere.
    """
    task = task_of(config)
    loaded = load_model(config, task)
    config, task = settle_exported(with_training_args(config, loaded, TAKEN_OVER), task, loaded.network)
    if config.data is None:
        raise ConfigError("data: is not given, and the weights do not tell; name the data set's YAML file")
    check_image_size(config, loaded.network)
    return ScoredModel(config, task, loaded.network, loaded.names)


@contextmanager
def scoring(model: ScoredModel, records: Records) -> Iterator[Scorer]:
    """The scorer of a model, which is moved to its device, on records with the classes of its weights."""
    setup = device_of(model.config)
    precision = choose_precision(str(model.config.amp), setup.device)
    place(model.network, setup)
    scorer = open_scorer(
        model.config,
        model.task,
        network=model.network,
        records=records,
        names=model.names,
        setup=setup,
        precision=precision,
        warn=lambda text: print(f"warning: {text}", file=sys.stderr),
    )
    try:
        yield scorer
    finally:
        scorer.close()


def with_training_args(config: Config, loaded: LoadedModel, keys: tuple[str, ...]) -> Config:
    """`config` with those of `keys` that were not typed as they were in training."""
    values = loaded.args.get("values", {})
    taken = {key: values[key] for key in keys if key in values and not config.is_typed(key)}
    return config.decide(**taken)
