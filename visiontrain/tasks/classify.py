"""Classification: one class for each image, or several where it may be of several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from visiontrain.config.schema import Config
from visiontrain.data.collate import collate_classification
from visiontrain.data.formats import CLASSIFY_FORMATS, read_data_set
from visiontrain.data.transforms.classify import (
    NO_BOXES,
    ClassifySettings,
    ClassifyTrain,
    ClassifyVal,
    stored_long_side,
)
from visiontrain.decode import class_probabilities
from visiontrain.errors import ConfigError
from visiontrain.loggers.tables import classification_table
from visiontrain.losses.classification import ClassificationCriterion
from visiontrain.metrics.classification import METRIC_COLUMNS, ClassificationEvaluator
from visiontrain.models.classifiers import build_classifier
from visiontrain.models.network import Network
from visiontrain.plan import Plan
from visiontrain.predict.augment import ClassifierLooks
from visiontrain.predict.probs import find_probs
from visiontrain.protocols import Criterion, Decoder, Evaluator, Task
from visiontrain.sample import Batch, DataSet, Marks, Records
from visiontrain.tasks.classify_review import review_classification
from visiontrain.tasks.flip_swap import check_pairs, pairs_of

DEFAULT_MODEL = "cls-n"
BALANCED = "balanced"
SHOWN = 5
NO_CLASSES = np.zeros(0, np.int64)


def _read(config: Config, splits: Sequence[str]) -> DataSet:
    assert config.data is not None, "the bundled data set is chosen before a task reads"
    data = read_data_set(
        Path(config.data),
        splits=splits,
        data_format=config.data_format,
        formats=CLASSIFY_FORMATS,
        max_pixels=config.max_pixels,
        is_lenient=True,
    )
    check_pairs(config.flip_swap, len(data.names))
    if config.multi_label:
        return data
    faults = [fault for split, records in data.splits.items() for fault in _faults_of_labels(split, records)]
    return replace(data, faults=(*data.faults, *faults))


def _faults_of_labels(split: str, records: Records) -> list[str]:
    """What tells that images have not exactly one label each."""
    faults = []
    remedies = {
        "several labels": "with multi_label=True each class is decided for itself",
        "no label": "give them one, or take them out; multi_label=True takes them for images of no class",
    }
    found: dict[str, list[str]] = {kind: [] for kind in remedies}
    for record in records:
        if len(record.classes) != 1:
            found["several labels" if len(record.classes) else "no label"].append(str(record.path))
    for kind, paths in found.items():
        if paths:
            shown = ", ".join(paths[:SHOWN]) + (", …" if len(paths) > SHOWN else "")
            count = "1 image has" if len(paths) == 1 else f"{len(paths)} images have"
            faults.append(f"{split}: {count} {kind}: {shown}; {remedies[kind]}")
    return faults


def _train_transform(config: Config) -> ClassifyTrain:
    assert config.imgsz is not None
    settings = ClassifySettings(
        imgsz=config.imgsz,
        scale=config.scale,
        degrees=config.degrees,
        flipud=config.flipud,
        fliplr=config.fliplr,
        hsv_h=config.hsv_h,
        hsv_s=config.hsv_s,
        hsv_v=config.hsv_v,
        auto_augment=config.auto_augment,
        erasing=config.erasing,
        mixup=config.mixup,
        cutmix=config.cutmix,
        flip_swap=pairs_of(config.flip_swap),
    )
    return ClassifyTrain(settings, config.seed)


def _val_transform(config: Config, network: Network) -> ClassifyVal:
    assert config.imgsz is not None
    return ClassifyVal(config.imgsz)


def _fresh_network(config: Config, names: tuple[str, ...]) -> Network:
    return build_classifier(
        config.model or DEFAULT_MODEL,
        names,
        imgsz=config.imgsz,
        dropout=config.dropout,
        multi_label=config.multi_label or None,
    )


def _settle(config: Config, data: DataSet) -> Config:
    if config.class_weights != BALANCED:
        return config
    return config.decide(class_weights=balanced_weights(data.splits["train"], len(data.names)))


def balanced_weights(records: Records, num_classes: int) -> tuple[float, ...]:
    """For each class the weight under which all classes count alike: (labels / classes) / labels of this class.

    Args:
        records: The training split.
        num_classes: Of the names. A class without images gets the weight 1.
    """
    counts = np.bincount(records.classes, minlength=num_classes)
    num_present = max(1, int((counts > 0).sum()))
    weights = np.where(counts > 0, counts.sum() / num_present / np.maximum(counts, 1), 1.0)
    return tuple(float(weight) for weight in weights.tolist())


def _criterion(network: Network, config: Config) -> Criterion:
    if network.multi_label != config.multi_label:
        raise ConfigError(
            f"multi_label = {config.multi_label}: the network's own, of its YAML or its training, is "
            f"{network.multi_label}; type multi_label={network.multi_label}"
        )
    if config.class_weights is not None and not any(config.class_weights):
        raise ConfigError("class_weights: are 0 for every class, so nothing counts; give one of them a weight")
    default = "bce" if network.multi_label else "cross_entropy"
    assert config.class_weights != BALANCED, "the data settle it"
    return ClassificationCriterion(
        default if config.loss == "auto" else config.loss,
        num_classes=len(network.names),
        multi_label=network.multi_label,
        class_weights=config.class_weights,  # type: ignore[arg-type]
        label_smoothing=config.label_smoothing,
        gamma=config.focal_gamma,
    )


def _finish(network: Network, outputs: Any) -> Mapping[str, Tensor]:
    if isinstance(outputs, Mapping):
        return outputs
    return {"probs": class_probabilities(outputs, multi_label=network.multi_label)}


def _augmented(network: Network, config: Config) -> nn.Module:
    if not config.fliplr:
        raise ConfigError(
            "augment: a classifier's probabilities are averaged with those of the mirrored image, and these weights "
            "were trained with fliplr=0, on none; leave it out"
        )
    return ClassifierLooks(network, partial(_finish, network), swap=pairs_of(config.flip_swap))


def _decoder(network: Network, config: Config) -> Decoder:
    def decode(outputs: Any) -> list[dict[str, Tensor]]:
        return [{"probs": row} for row in _finish(network, outputs)["probs"].detach()]

    return decode


def _evaluator(records: Records, names: tuple[str, ...], config: Config) -> Evaluator:
    return ClassificationEvaluator(records, names, multi_label=config.multi_label)


def _target_marks(batch: Batch, names: tuple[str, ...]) -> list[Marks]:
    rows = zip(batch.targets["classes"].tolist(), batch.targets["shares"].tolist(), strict=True)
    return [
        _captioned([(names[label], share) for label, share in zip(*row, strict=True) if label >= 0], whole=1.0)
        for row in rows
    ]


def _found_marks(found: list[dict[str, Tensor]], names: tuple[str, ...]) -> list[Marks]:
    best = (one["probs"].max(0) for one in found)
    return [_captioned([(names[int(top.indices)], float(top.values))]) for top in best]


def _captioned(labels: Sequence[tuple[str, float]], *, whole: float | None = None) -> Marks:
    words = [name if share == whole else f"{name} {share:.2f}" for name, share in labels]
    return Marks(NO_BOXES, NO_CLASSES, caption=", ".join(words))


def _gain(plan: Plan) -> float:
    """A window's mean gradient is taken as it is."""
    return 1.0


CLASSIFY = Task(
    name="classify",
    read=_read,
    train_transform=_train_transform,
    stored_size=stored_long_side,
    balance_power=1.0,
    val_transform=_val_transform,
    prepare=lambda config, network: _val_transform(config, network).prepare,
    collate=collate_classification,
    network=build_classifier,
    fresh_network=_fresh_network,
    settle=_settle,
    criterion=_criterion,
    finish=_finish,
    augmented=_augmented,
    scoring_decoder=_decoder,
    decoder=_decoder,
    evaluator=_evaluator,
    found=find_probs,
    target_marks=_target_marks,
    found_marks=_found_marks,
    loss_columns=("loss",),
    metric_columns=METRIC_COLUMNS,
    ranking="metrics/accuracy_top1",
    gain=_gain,
    stored=dict,
    table=classification_table,
    review=review_classification,
    default_model=DEFAULT_MODEL,
    default_imgsz=224,
    default_data="shapes_classify",
)
