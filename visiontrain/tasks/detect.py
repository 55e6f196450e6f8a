"""Detection: boxes with classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from visiontrain.config.schema import Config
from visiontrain.data.collate import collate_detection
from visiontrain.data.formats import read_data_set
from visiontrain.data.transforms.letterbox import Letterbox
from visiontrain.data.transforms.train import AugmentSettings, TrainTransform
from visiontrain.decode import decode_detections
from visiontrain.errors import ConfigError
from visiontrain.loggers.tables import metrics_table
from visiontrain.losses.detection import DetectionCriterion
from visiontrain.metrics.detection import DetectionEvaluator, DetectionMetrics
from visiontrain.models.detectors import build_detector
from visiontrain.models.heads import DetectionOutputs, decode_boxes
from visiontrain.models.network import Network
from visiontrain.plan import Plan
from visiontrain.predict.augment import DetectorLooks
from visiontrain.predict.boxes import find_boxes
from visiontrain.protocols import Criterion, Decoder, Evaluator, Task
from visiontrain.sample import Batch, DataSet, Marks, Records
from visiontrain.tasks.detect_review import review_detection
from visiontrain.tasks.flip_swap import check_pairs, pairs_of

DEFAULT_MODEL = "det-n"
# Confidence from which a detection counts, where the user typed none.
SCORING_CONF = 0.001
VISIBLE_CONF = 0.25


def _read(config: Config, splits: Sequence[str]) -> DataSet:
    assert config.data is not None, "the bundled data set is chosen before a task reads"
    data = read_data_set(
        Path(config.data),
        splits=splits,
        data_format=config.data_format,
        max_pixels=config.max_pixels,
        is_lenient=True,
    )
    if config.single_cls:
        if config.flip_swap is not None:
            raise ConfigError("flip_swap: has no effect with single_cls=True, which leaves one class; leave one out")
        data = replace(
            data, names=("object",), splits={name: _as_one_class(split) for name, split in data.splits.items()}
        )
    check_pairs(config.flip_swap, len(data.names))
    return data


def _as_one_class(records: Records) -> Records:
    return Records([record.with_classes(np.zeros_like) for record in records])


def _train_transform(config: Config) -> TrainTransform:
    assert config.imgsz is not None
    settings = AugmentSettings(
        imgsz=config.imgsz,
        mosaic=config.mosaic,
        mosaic9=config.mosaic9,
        copy_paste=config.copy_paste,
        crop=config.crop,
        gray=config.gray,
        blur=config.blur,
        clahe=config.clahe,
        jpeg=config.jpeg,
        flip_swap=pairs_of(config.flip_swap),
        mosaic_until_epoch=max(0, config.epochs - config.close_mosaic),
        mixup=config.mixup,
        degrees=config.degrees,
        translate=config.translate,
        scale=config.scale,
        shear=config.shear,
        perspective=config.perspective,
        flipud=config.flipud,
        fliplr=config.fliplr,
        hsv_h=config.hsv_h,
        hsv_s=config.hsv_s,
        hsv_v=config.hsv_v,
    )
    return TrainTransform(settings, config.seed)


def _letterbox(config: Config, network: Network) -> Letterbox:
    assert config.imgsz is not None
    # A network of one size, such as an exported one, is given whole squares.
    return Letterbox(config.imgsz, max(network.strides), square=network.fixed_size is not None)


def _stored_size(imgsz: int) -> int:
    return imgsz


def _fresh_network(config: Config, names: tuple[str, ...]) -> Network:
    return build_detector(config.model or DEFAULT_MODEL, names)


def _settle(config: Config, data: DataSet) -> Config:
    return config


def _criterion(network: Network, config: Config) -> Criterion:
    return DetectionCriterion(box=config.box, cls=config.cls, dfl=config.dfl)


def _finish(network: Network, outputs: DetectionOutputs | Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    if isinstance(outputs, Mapping):
        return outputs
    return {"boxes": decode_boxes(outputs), "scores": outputs.class_logits.float().sigmoid()}


def _augmented(network: Network, config: Config) -> nn.Module:
    may_mirror, swap = config.fliplr > 0, pairs_of(config.flip_swap)
    looking = DetectorLooks(network, partial(_finish, network), may_mirror=may_mirror, swap=swap)
    if len(looking.looks) == 1:
        raise ConfigError(
            f"augment: this network takes images of {network.fixed_size} pixels alone, and was trained with fliplr=0 "
            "on none that are mirrored: there is nothing else to look at; leave it out"
        )
    return looking


def _scoring_decoder(network: Network, config: Config) -> Decoder:
    return _decoder_of(network, config, SCORING_CONF, multi_label=True)


def _decoder(network: Network, config: Config) -> Decoder:
    return _decoder_of(network, config, VISIBLE_CONF, multi_label=False)


def _decoder_of(network: Network, config: Config, default_conf: float, *, multi_label: bool) -> Decoder:
    conf = default_conf if config.conf is None else config.conf

    def decode(outputs: Any) -> list[dict[str, Tensor]]:
        finished = _finish(network, outputs)
        return decode_detections(
            finished["boxes"],
            finished["scores"],
            conf=conf,
            iou=config.iou,
            max_det=config.max_det,
            multi_label=multi_label,
            agnostic=config.agnostic_nms,
            classes=config.classes,
        )

    return decode


def _evaluator(records: Records, names: tuple[str, ...], config: Config) -> Evaluator:
    return DetectionEvaluator(records, names, max_det=config.max_det)


def _target_marks(batch: Batch, names: tuple[str, ...]) -> list[Marks]:
    boxes, classes = batch.targets["boxes"].cpu().numpy(), batch.targets["classes"].cpu().numpy()
    is_box = classes >= 0  # the rest is padding
    return [Marks(boxes[i][is_box[i]], classes[i][is_box[i]]) for i in range(len(batch))]


def _found_marks(found: list[dict[str, Tensor]], names: tuple[str, ...]) -> list[Marks]:
    return [
        Marks(one["boxes"].cpu().numpy(), one["classes"].cpu().numpy(), one["scores"].cpu().numpy()) for one in found
    ]


def _gain(plan: Plan) -> float:
    """The convention under which the customary recipes (lr0 = 0.01, clip = 10) were made: the loss times the batch."""
    return float(plan.full_window)


DETECT = Task(
    name="detect",
    read=_read,
    train_transform=_train_transform,
    stored_size=_stored_size,
    balance_power=0.5,
    val_transform=_letterbox,
    prepare=lambda config, network: _letterbox(config, network).fit,
    collate=collate_detection,
    network=build_detector,
    fresh_network=_fresh_network,
    settle=_settle,
    criterion=_criterion,
    finish=_finish,
    augmented=_augmented,
    scoring_decoder=_scoring_decoder,
    decoder=_decoder,
    evaluator=_evaluator,
    found=find_boxes,
    target_marks=_target_marks,
    found_marks=_found_marks,
    loss_columns=("box_loss", "cls_loss", "dfl_loss"),
    metric_columns=("metrics/precision(B)", "metrics/recall(B)", "metrics/mAP50(B)", "metrics/mAP50-95(B)"),
    ranking="metrics/mAP50-95(B)",
    gain=_gain,
    stored=DetectionMetrics.stored,
    table=metrics_table,
    review=review_detection,
    default_model=DEFAULT_MODEL,
    default_imgsz=640,
    default_data="shapes",
)
