"""Score detections: COCO's average precision, and precision, recall and F1 at the best score threshold.

Average precision is COCO's, to the last digit: IoU 0.50 to 0.95, 101 recall points, at most 100 detections of an
image and class; an image without boxes counts, every detection in it is a miss. Precision, recall and F1 are taken
at one score threshold for all classes: the one that maximizes the mean of their F1 at IoU 0.5.

A class without ground truth has no metrics (nan) and is left out of every mean; without any ground truth all metrics
are nan.

Letters: N detections of an image, C classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from faster_coco_eval import COCO, COCOeval_faster
from numpy.typing import NDArray

from visiontrain.boxes import clip_boxes, warp_boxes
from visiontrain.metrics.matching import match_detections
from visiontrain.sample import Batch, Records

if TYPE_CHECKING:
    from torch import Tensor

METRIC_COLUMNS = ("metrics/precision(B)", "metrics/recall(B)", "metrics/mAP50(B)", "metrics/mAP50-95(B)")
_IOU_50, _IOU_75 = 0, 5  # places in COCO's ten thresholds
_MATCH_IOU = 0.5
_COCO_MAX_DETECTIONS = 100  # of an image and class; part of the definition of COCO's AP
_COLUMNS = 7  # of a detection in COCO's array form: image, x, y, width, height, score, class

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class BoxMetrics:
    """Means over the classes that have ground truth."""

    map: float
    """AP averaged over IoU 0.50 to 0.95."""
    map50: float
    map75: float
    maps: tuple[float, ...]
    """AP over IoU 0.50 to 0.95 of each class; nan where the class has no ground truth."""
    mp: float
    """Precision at the best threshold."""
    mr: float
    """Recall at the best threshold."""
    mf1: float


@dataclass(frozen=True)
class ClassMetrics:
    """One class; metrics are nan where it has no ground truth."""

    name: str
    images: int
    """Images that hold a box of the class."""
    instances: int
    precision: float
    recall: float
    f1: float
    ap50: float
    ap: float


@dataclass(frozen=True, eq=False)
class DetectionMetrics(Mapping[str, float]):
    """What a split's detections are worth. As a mapping: the metrics by their CSV names."""

    box: BoxMetrics
    names: tuple[str, ...]
    per_class: tuple[ClassMetrics, ...]
    best_threshold: float
    """The score at which precision, recall and F1 are taken; 0 where no detection hits anything."""
    images: int
    instances: int

    def __getitem__(self, key: str) -> float:
        values = (self.box.mp, self.box.mr, self.box.map50, self.box.map)
        return dict(zip(METRIC_COLUMNS, values, strict=True))[key]

    def __iter__(self) -> Iterator[str]:
        return iter(METRIC_COLUMNS)

    def __len__(self) -> int:
        return len(METRIC_COLUMNS)


@dataclass(frozen=True)
class _Detections:
    """Detections of one image or of many, highest score first within an image."""

    boxes: Floats
    """(N, 4) xyxy, pixels of the source image."""
    scores: Floats
    classes: Ints


class DetectionEvaluator:
    """Collects the detections of a split. May be used again: what is added after `compute` begins a new round."""

    def __init__(self, records: Records, names: tuple[str, ...], *, max_det: int = 300) -> None:
        """
        Args:
            records: The split: an image that is never added counts as one without detections.
            names: Class names.
            max_det: Most detections kept of an image.
        """
        self._names = names
        self._max_det = max_det
        self._truth = _truth_of(records)
        self._coco_truth = _coco_of(records, self._truth, names)
        self._detections: dict[int, _Detections] = {}
        self._is_computed = False

    def add(self, predictions: list[dict[str, Tensor]], batch: Batch) -> None:
        """Take the decoded predictions of a batch.

        Args:
            predictions: One entry for each image: `boxes` (N, 4) xyxy pixels of the network's input, `scores` (N,),
                `classes` (N,).
            batch: What was predicted on. The predictions of an unreadable image are dropped: its boxes were missed.
        """
        if self._is_computed:
            self._detections, self._is_computed = {}, False
        to_source = np.linalg.inv(batch.matrices.cpu().numpy().astype(np.float64))  # (B, 3, 3)
        unreadable = set(batch.unreadable)
        for i, prediction in enumerate(predictions):
            if batch.paths[i] in unreadable:
                continue
            height, width = batch.original_sizes[i]
            boxes = warp_boxes(prediction["boxes"].cpu().double().numpy(), to_source[i])
            scores = prediction["scores"].cpu().double().numpy()
            order = np.argsort(-scores, kind="stable")[: self._max_det]
            classes = prediction["classes"].cpu().numpy().astype(np.int64)
            clipped = clip_boxes(boxes, width, height).astype(np.float64)
            self._detections[batch.indices[i]] = _Detections(clipped[order], scores[order], classes[order])

    def compute(self) -> DetectionMetrics:
        """The metrics of everything added since the last call."""
        self._is_computed = True
        num_classes = len(self._names)
        instances = np.bincount(
            np.concatenate([np.zeros(0, np.int64), *(truth.classes for truth in self._truth)]), minlength=num_classes
        )
        images = np.zeros(num_classes, np.int64)
        for truth in self._truth:
            images[np.unique(truth.classes)] += 1
        ap = _average_precision(self._coco_truth, self._detections, num_classes)  # (10, C)
        threshold, precision, recall, f1 = _at_best_threshold(self._truth, self._detections, instances)
        return DetectionMetrics(
            box=BoxMetrics(
                map=_mean(ap),
                map50=_mean(ap[_IOU_50]),
                map75=_mean(ap[_IOU_75]),
                maps=tuple(ap.mean(axis=0).tolist()),
                mp=_mean(precision),
                mr=_mean(recall),
                mf1=_mean(f1),
            ),
            names=self._names,
            per_class=tuple(
                ClassMetrics(name, *row)
                for name, *row in zip(
                    self._names,
                    images.tolist(),
                    instances.tolist(),
                    precision.tolist(),
                    recall.tolist(),
                    f1.tolist(),
                    ap[_IOU_50].tolist(),
                    ap.mean(axis=0).tolist(),
                    strict=True,
                )
            ),
            best_threshold=threshold,
            images=len(self._truth),
            instances=int(instances.sum()),
        )


def _truth_of(records: Records) -> list[_Detections]:
    """The ground truth of every image, in float64 pixels; scores are empty."""
    truth = []
    for record in records:
        size = np.array([record.width, record.height, record.width, record.height], np.float64)
        truth.append(_Detections(record.boxes.astype(np.float64) * size, np.zeros(0), record.classes))
    return truth


def _coco_of(records: Records, truth: list[_Detections], names: tuple[str, ...]) -> COCO:
    annotations: list[dict[str, Any]] = []
    for index, image in enumerate(truth):
        for (x1, y1, x2, y2), label in zip(image.boxes.tolist(), image.classes.tolist(), strict=True):
            width, height = x2 - x1, y2 - y1
            annotations.append(
                {
                    "id": len(annotations) + 1,  # COCO's matcher reads 0 as "no match"
                    "image_id": index,
                    "category_id": label,
                    "bbox": [x1, y1, width, height],
                    "area": width * height,
                    "iscrowd": 0,
                }
            )
    coco = COCO(print_function=_say_nothing)
    coco.dataset = {
        "info": {},
        "images": [
            {"id": index, "height": record.height, "width": record.width} for index, record in enumerate(records)
        ],
        "annotations": annotations,
        "categories": [{"id": index, "name": name} for index, name in enumerate(names)],
    }
    coco.createIndex()
    return coco


def _average_precision(coco_truth: COCO, detections: Mapping[int, _Detections], num_classes: int) -> Floats:
    """AP by COCO's own arithmetic: (10, C) by IoU threshold and class; nan for a class without ground truth."""
    rows = np.concatenate([np.zeros((0, _COLUMNS)), *(_coco_rows(index, found) for index, found in detections.items())])
    evaluation = COCOeval_faster(
        coco_truth, coco_truth.loadRes(_as_coco_results(rows)), iouType="bbox", print_function=_say_nothing
    )
    evaluation.params.maxDets = [_COCO_MAX_DETECTIONS]
    evaluation.params.areaRng, evaluation.params.areaRngLbl = [evaluation.params.areaRng[0]], ["all"]
    if not evaluation.params.imgIds:
        return np.full((len(evaluation.params.iouThrs), num_classes), np.nan)
    evaluation.evaluate()
    evaluation.accumulate()
    precision = np.asarray(evaluation.eval["precision"])[..., 0, -1]  # (10, 101, C); -1 without ground truth
    return np.where(precision[:, 0] < 0, np.nan, precision.mean(axis=1))


def _coco_rows(index: int, found: _Detections) -> Floats:
    x1y1, size = found.boxes[:, :2], found.boxes[:, 2:] - found.boxes[:, :2]
    image = np.full((len(found.scores), 1), float(index))
    return np.concatenate([image, x1y1, size, found.scores[:, None], found.classes[:, None]], axis=1)


def _as_coco_results(rows: Floats) -> list[dict[str, Any]]:
    return [
        # The segmentation is never read for boxes, but would be made up for each of them.
        {"image_id": int(image), "category_id": int(label), "bbox": box, "score": score, "segmentation": []}
        for image, *box, score, label in rows.tolist()
    ]


def _at_best_threshold(
    truth: list[_Detections], detections: Mapping[int, _Detections], instances: Ints
) -> tuple[float, Floats, Floats, Floats]:
    """The threshold that maximizes the classes' mean F1, and their precision, recall and F1 (C,) there.

    As the threshold falls, F1 rises only where a hit comes in, so only the scores of hits are tried.
    """
    scores, classes, is_hit = _hits(truth, detections)
    candidates = np.unique(scores[is_hit])[::-1]  # falling: of equal means the highest threshold is taken
    has_truth = np.flatnonzero(instances)
    f1_sum = np.zeros(len(candidates))
    for index in has_truth:
        num_hits, num_found = _counts_at(candidates, scores, classes == index, is_hit)
        f1_sum += 2 * num_hits / (num_found + instances[index])
    threshold = float(candidates[f1_sum.argmax()]) if len(candidates) else 0.0

    precision, recall, f1 = (np.full(len(instances), np.nan) for _ in range(3))
    for index in has_truth:
        num_hits, num_found = _counts_at(np.array([threshold]), scores, classes == index, is_hit)
        precision[index] = num_hits[0] / max(num_found[0], 1)
        recall[index] = num_hits[0] / instances[index]
        f1[index] = 2 * num_hits[0] / (num_found[0] + instances[index])
    return threshold, precision, recall, f1


def _hits(truth: list[_Detections], detections: Mapping[int, _Detections]) -> tuple[Floats, Ints, NDArray[np.bool_]]:
    """Score, class and whether it hits a box, (N,) each, of all detections of all images."""
    matched = [
        match_detections(found.boxes, found.classes, truth[index].boxes, truth[index].classes, iou_threshold=_MATCH_IOU)
        >= 0
        for index, found in detections.items()
    ]
    return (
        np.concatenate([np.zeros(0), *(found.scores for found in detections.values())]),
        np.concatenate([np.zeros(0, np.int64), *(found.classes for found in detections.values())]),
        np.concatenate([np.zeros(0, bool), *matched]),
    )


def _counts_at(
    thresholds: Floats, scores: Floats, is_class: NDArray[np.bool_], is_hit: NDArray[np.bool_]
) -> tuple[Ints, Ints]:
    """Hits and detections of one class whose score reaches each of `thresholds`."""
    found, hits = np.sort(scores[is_class]), np.sort(scores[is_class & is_hit])
    num_hits = len(hits) - np.searchsorted(hits, thresholds)
    num_found = len(found) - np.searchsorted(found, thresholds)
    return num_hits, num_found


def _mean(values: Floats) -> float:
    """Mean over the classes that have ground truth; nan where none has."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else float("nan")


def _say_nothing(*_: object) -> None:
    pass
