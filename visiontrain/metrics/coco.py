"""COCO's average precision and average recall, by COCO's own arithmetic, to the last digit.

IoU 0.50 to 0.95, 101 recall points, three ranges of area, at most 1, 10 and 100 detections of an image and class.
What has no ground truth is nan and left out of every mean.

Two habits of the reference implementation are kept: an annotation's own `ignore` is not read, only `iscrowd` is; and
the limits are always 1, 10 and 100, as some of the twelve numbers would not be defined with others: what the user sets
(`max_det`) only bounds what comes in.

Source: Lin et al. 2014, "Microsoft COCO" (arXiv:1405.0312), and its reference implementation.

Letters: C classes.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from faster_coco_eval import COCO, COCOeval_faster
from numpy.typing import NDArray

from visiontrain.metrics.detections import Detections, Truth, best_of_classes
from visiontrain.sample import Records

MAX_DETECTIONS = (1, 10, 100)
"""Of an image and class, rising."""
_IOU_50, _IOU_75 = 0, 5  # places in COCO's ten thresholds
_NUM_IOUS = 10
_ALL, _SMALL, _MEDIUM, _LARGE = range(4)  # places in COCO's ranges of area: split at 32² and 96² pixels
_NUM_RECALLS = 101
_OUTSIDE_ALL_RANGES = -1.0

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class CocoSummary:
    """The twelve numbers that COCO ranks detectors by; nan where nothing is to be found."""

    ap: float
    """Average precision, mean over IoU 0.50 to 0.95 and over classes."""
    ap50: float
    """At IoU 0.50 alone."""
    ap75: float
    """At IoU 0.75 alone."""
    ap_small: float
    """Of objects below 32² pixels, in the source image."""
    ap_medium: float
    """Of objects from 32² to 96² pixels."""
    ap_large: float
    """Of objects above 96² pixels."""
    ar1: float
    """Recall, mean over IoU 0.50 to 0.95 and over classes, of the best detection of each image and class."""
    ar10: float
    """Of the 10 best."""
    ar100: float
    """Of the 100 best."""
    ar_small: float
    """Of the 100 best, of small objects; and so on."""
    ar_medium: float
    ar_large: float

    def document(self) -> dict[str, float]:
        """The numbers by the names that COCO's papers give them."""
        return {
            "AP": self.ap,
            "AP50": self.ap50,
            "AP75": self.ap75,
            "APs": self.ap_small,
            "APm": self.ap_medium,
            "APl": self.ap_large,
            "AR1": self.ar1,
            "AR10": self.ar10,
            "AR100": self.ar100,
            "ARs": self.ar_small,
            "ARm": self.ar_medium,
            "ARl": self.ar_large,
        }


@dataclass(frozen=True)
class CocoScores:
    """Precision and recall as COCO accumulates them; nan where a class has no ground truth in a range of area."""

    precision: Floats
    """(10, 101, C, 4) by IoU, recall, class and range of area, of the 100 best detections of an image and class."""
    recall: Floats
    """(10, C, 4, 3) by IoU, class, range of area and limit of detections."""

    def summary(self) -> CocoSummary:
        """The twelve numbers."""
        ap = self.precision.mean(axis=1)  # (10, C, 4)
        return CocoSummary(
            ap=mean_of_known(ap[..., _ALL]),
            ap50=mean_of_known(ap[_IOU_50, :, _ALL]),
            ap75=mean_of_known(ap[_IOU_75, :, _ALL]),
            ap_small=mean_of_known(ap[..., _SMALL]),
            ap_medium=mean_of_known(ap[..., _MEDIUM]),
            ap_large=mean_of_known(ap[..., _LARGE]),
            ar1=mean_of_known(self.recall[:, :, _ALL, 0]),
            ar10=mean_of_known(self.recall[:, :, _ALL, 1]),
            ar100=mean_of_known(self.recall[:, :, _ALL, 2]),
            ar_small=mean_of_known(self.recall[:, :, _SMALL, 2]),
            ar_medium=mean_of_known(self.recall[:, :, _MEDIUM, 2]),
            ar_large=mean_of_known(self.recall[:, :, _LARGE, 2]),
        )

    def per_class(self) -> Mapping[str, Floats]:
        """(C,) each, by the names of `CocoSummary`: `ap ap50 ap75 ap_small ap_medium ap_large ar100`."""
        ap = self.precision.mean(axis=1)  # (10, C, 4)
        return {
            "ap": ap[..., _ALL].mean(axis=0),
            "ap50": ap[_IOU_50, :, _ALL],
            "ap75": ap[_IOU_75, :, _ALL],
            "ap_small": ap[..., _SMALL].mean(axis=0),
            "ap_medium": ap[..., _MEDIUM].mean(axis=0),
            "ap_large": ap[..., _LARGE].mean(axis=0),
            "ar100": self.recall[:, :, _ALL, 2].mean(axis=0),
        }

    def precision_at_iou_50(self) -> Floats:
        """(C, 101) at COCO's recall points."""
        return self.precision[_IOU_50, :, :, _ALL].T


def mean_of_known(values: Floats) -> float:
    """Mean of what is not nan; nan where nothing is."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else float("nan")


def coco_of(records: Records, truth: Sequence[Truth], names: Sequence[str]) -> COCO:
    """The ground truth as the evaluation reads it; images are numbered by their places."""
    images = [{"id": index, "height": record.height, "width": record.width} for index, record in enumerate(records)]
    annotations: list[dict[str, Any]] = []
    for index, image in enumerate(truth):
        # Only a crowd can be marked as one that need not be found; anything else by an area outside of every range.
        is_outside = image.is_ignored & ~image.is_crowd
        areas = np.where(is_outside, _OUTSIDE_ALL_RANGES, image.areas).tolist()
        rows = zip(_corner_and_size(image.boxes), image.classes.tolist(), image.is_crowd.tolist(), areas, strict=True)
        annotations += [
            {"image_id": index, "category_id": label, "bbox": box, "area": area, "iscrowd": int(is_crowd)}
            for box, label, is_crowd, area in rows
        ]
    return _indexed(images, annotations, [{"id": index, "name": name} for index, name in enumerate(names)])


def coco_scores(coco_truth: COCO, detections: Mapping[int, Detections]) -> CocoScores:
    """Score the detections of each image, by its place, against what `coco_of` made."""
    num_classes = len(coco_truth.dataset["categories"])
    if not coco_truth.dataset["images"]:
        precision = np.full((_NUM_IOUS, _NUM_RECALLS, num_classes, 4), np.nan)
        return CocoScores(precision, np.full((_NUM_IOUS, num_classes, 4, len(MAX_DETECTIONS)), np.nan))
    with _no_garbage_collection():
        evaluation = COCOeval_faster(
            coco_truth, _coco_results(coco_truth, detections), iouType="bbox", print_function=_say_nothing
        )
        assert tuple(evaluation.params.maxDets) == MAX_DETECTIONS
        evaluation.evaluate()
        evaluation.accumulate()
        precision = np.asarray(evaluation.eval["precision"], np.float64)[..., -1]  # -1 without ground truth
        recall = np.asarray(evaluation.eval["recall"], np.float64)
        del evaluation  # else the collection that was put off would look through all of it
    return CocoScores(np.where(precision < 0, np.nan, precision), np.where(recall < 0, np.nan, recall))


def _coco_results(coco_truth: COCO, detections: Mapping[int, Detections]) -> COCO:
    """Only the detections that count: of an image and class the 100 best."""
    kept = {index: best_of_classes(found, MAX_DETECTIONS[-1]) for index, found in detections.items()}
    boxes = np.concatenate([np.zeros((0, 4)), *(found.boxes for found in kept.values())])
    images = np.repeat(np.array(list(kept), np.int64), [len(found.scores) for found in kept.values()])
    columns = (
        images.tolist(),
        np.concatenate([np.zeros(0, np.int64), *(found.classes for found in kept.values())]).tolist(),
        _corner_and_size(boxes),
        (boxes[:, 2:] - boxes[:, :2]).prod(axis=1).tolist(),
        np.concatenate([np.zeros(0), *(found.scores for found in kept.values())]).tolist(),
    )
    annotations = [
        {"image_id": image, "category_id": label, "bbox": box, "area": area, "score": score, "iscrowd": 0}
        for image, label, box, area, score in zip(*columns, strict=True)
    ]
    return _indexed(coco_truth.dataset["images"], annotations, coco_truth.dataset["categories"])


def _indexed(images: list[dict[str, Any]], annotations: list[dict[str, Any]], categories: list[dict[str, Any]]) -> COCO:
    for number, annotation in enumerate(annotations, 1):  # the matcher reads 0 as "no match"
        annotation["id"] = number
    coco = COCO(print_function=_say_nothing)
    coco.dataset = {"info": {}, "images": images, "annotations": annotations, "categories": categories}
    coco.createIndex()
    return coco


def _corner_and_size(boxes: Floats) -> list[list[float]]:
    return np.concatenate([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], axis=1).tolist()


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """No search for cycles: it would walk a hundred thousand new dictionaries again and again, none of them garbage."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _say_nothing(*_: object) -> None:
    pass
