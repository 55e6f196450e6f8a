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
from visiontrain.run.choose_task import found_task
from visiontrain.run.class_names import with_names_of_weights
from visiontrain.run.coco_results import FILE_NAME, ResultIds, result_ids, write_results
from visiontrain.run.exported import settle_exported
from visiontrain.run.files import as_json, write_json
from visiontrain.run.interval_lines import interval_lines
from visiontrain.run.new_folder import new_folder
from visiontrain.run.prepare import (
    LoadedModel,
    check_image_size,
    device_of,
    load_model,
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
    model = load_for_scoring(config)
    config = model.config
    data = read_data(config, model.task, (config.split,))
    data_names, data = data.names, with_names_of_weights(data, model.names, config.map_names)
    records = split_of(data, config.split)
    ids = result_ids(config, records, data_names=data_names, names=data.names) if config.save_json else None
    with scoring(model, records) as scorer, new_folder(config) as folder:
        _check_is_no_training(folder)
        metrics, losses = scorer.score(model.network)
        if config.plots:
            scorer.draw(model.network, folder)
        _keep(ValResult(metrics, losses, folder), config, model.task, records)
        notes = [] if ids is None else [_write_predictions(folder / FILE_NAME, metrics, ids)]
    if config.json:
        print(as_json({**_numbers(metrics, losses), **cast(Judged, metrics).details()}))
    else:
        notes += [f"report {folder / PAGE}"] if config.plots else []
        lines = [*data.messages, model.task.table(metrics), *interval_lines(metrics), *notes]
        print("\n".join([*lines, f"{config.split} split of {config.data}; run {folder}"]))
    return ValResult(metrics, losses, folder)


def _keep(result: ValResult, config: Config, task: Task, records: Records) -> None:
    """Write the scores, in numbers and in detail, and the page."""
    folder, split = result.save_dir, config.split
    numbers = _numbers(result.metrics, result.losses)
    intervals = cast(Judged, result.metrics).details()["intervals"]
    write_json(
        folder / "results.json",
        {"metrics": numbers, "split": split, "images": len(records), "intervals": intervals},
    )
    write_review(review_of(task, result.metrics, records, config, split=split), folder, plots=config.plots)
    if config.plots:
        write_report(folder)


def _numbers(metrics: Mapping[str, Any], losses: Mapping[str, float]) -> dict[str, float]:
    """All that is measured in one number, by its CSV name."""
    return {**{name: float(value) for name, value in metrics.items()}, **{f"val/{k}": v for k, v in losses.items()}}


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
        UserError: If they cannot be scored, or no data are named anywhere; all faults at once.
    """
    config, faults = found_task(config)
    task = task_of(config)
    loaded = load_model(config, task)
    config, task = settle_exported(with_training_args(config, loaded, TAKEN_OVER), task, loaded.network)
    if config.data is None:
        faults.append("data: is not given, and the weights do not tell; name the data set's YAML file")
    try:
        check_image_size(config, loaded.network)
    except ConfigError as error:
        faults += error.faults
    if faults:
        raise ConfigError(faults)
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
        batch=model.config.batch,
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
