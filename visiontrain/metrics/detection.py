"""Score detections: COCO's average precision, and precision, recall and F1 at the best score threshold.

An image without boxes counts: every detection in it is a false alarm. Precision, recall and F1 are taken at one score
threshold for all classes: the one that maximizes the mean of their F1 at IoU 0.5. What need not be found (crowd
regions, difficult objects) is no instance, and detections on it are passed over.

A class without ground truth has no metrics (nan) and is left out of every mean; without any ground truth all metrics
are nan.

Letters: N detections of an image, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from visiontrain.boxes import clip_boxes, warp_boxes
from visiontrain.metrics.bootstrap import Interval, Resampled, metric_interval, over_halves, tells_intervals
from visiontrain.metrics.coco import CocoScores, CocoSummary, coco_of, coco_scores, mean_of_known
from visiontrain.metrics.confusion import Confusion, confusion_of
from visiontrain.metrics.curves import Curves, Hits, curves_of, find_hits
from visiontrain.metrics.detections import Detections, Truth, truth_of
from visiontrain.metrics.error_kinds import ErrorKinds, error_kinds_of
from visiontrain.metrics.outcomes import ImageOutcome, outcome_of
from visiontrain.metrics.pairing import Pairing, pair
from visiontrain.metrics.ranking import Ranking, means_of_known, rank
from visiontrain.sample import Batch, Records

if TYPE_CHECKING:
    from torch import Tensor

METRIC_COLUMNS = ("metrics/precision(B)", "metrics/recall(B)", "metrics/mAP50(B)", "metrics/mAP50-95(B)")

NOTHING_FOUND = Detections(np.zeros((0, 4)), np.zeros(0), np.zeros(0, np.int64))

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
    """At the threshold of all classes, as are recall and F1."""
    recall: float
    f1: float
    ap50: float
    ap: float
    """Averaged over IoU 0.50 to 0.95."""
    ap75: float
    ap_small: float
    """Of objects below 32² pixels; nan where the class has none, as are the next two."""
    ap_medium: float
    ap_large: float
    ar100: float
    """Recall averaged over IoU 0.50 to 0.95, of the 100 best detections of an image."""
    best_threshold: float
    """The score that maximizes the class's own F1; 0 where no detection of it hits anything."""


@dataclass(frozen=True)
class Scored:
    """What was scored, for whoever counts something else of it."""

    truth: tuple[Truth, ...]
    """Of every image, in the order of the records."""
    detections: Mapping[int, Detections]
    """By the place of their image; an image that was never added has none."""
    coco: CocoScores
    hits: Hits


@dataclass(frozen=True, eq=False)
class DetectionMetrics(Mapping[str, float]):
    """What a split's detections are worth. As a mapping: the metrics by their CSV names.

    What an epoch's validation does not need is worked out when it is first asked for.
    """

    box: BoxMetrics
    coco: CocoSummary
    names: tuple[str, ...]
    per_class: tuple[ClassMetrics, ...]
    best_threshold: float
    """The score at which precision, recall and F1 are taken; 0 where no detection hits anything."""
    images: int
    instances: int
    num_ignored: int
    """Crowd regions and difficult objects, which need not be found."""
    num_capped: int
    """Images with more candidates than suppression looks at."""
    scored: Scored

    def __getitem__(self, key: str) -> float:
        values = (self.box.mp, self.box.mr, self.box.map50, self.box.map)
        return dict(zip(METRIC_COLUMNS, values, strict=True))[key]

    def __iter__(self) -> Iterator[str]:
        return iter(METRIC_COLUMNS)

    def __len__(self) -> int:
        return len(METRIC_COLUMNS)

    @cached_property
    def curves(self) -> Curves:
        """Precision, recall and F1 over the threshold, and precision over recall."""
        return curves_of(self.scored.hits, self.scored.coco.precision_at_iou_50())

    @cached_property
    def pairings(self) -> tuple[Pairing, ...]:
        """Who stands for what in each image, in the order of the records, at the best threshold."""
        truth, detections = self.scored.truth, self.scored.detections
        return tuple(
            pair(detections.get(place, NOTHING_FOUND), image, threshold=self.best_threshold)
            for place, image in enumerate(truth)
        )

    @cached_property
    def confusion(self) -> Confusion:
        """What was taken for what, at the best threshold."""
        return confusion_of(self.pairings, threshold=self.best_threshold, names=self.names)

    @cached_property
    def per_image(self) -> tuple[ImageOutcome, ...]:
        """The errors of each image, in the order of the records, at the best threshold."""
        return tuple(outcome_of(pairing) for pairing in self.pairings)

    @cached_property
    def errors(self) -> ErrorKinds:
        """The errors by kind, at the best threshold."""
        truth, detections = self.scored.truth, self.scored.detections
        return error_kinds_of(truth, detections, threshold=self.best_threshold, num_classes=len(self.names))

    @cached_property
    def ranking(self) -> Ranking:
        """The detections, matched at all thresholds of IoU."""
        return rank(self.scored.truth, self.scored.detections, len(self.names))

    @cached_property
    def intervals(self) -> tuple[Interval, ...]:
        """Of mAP50-95 and mAP50; none of very few images, and of very many."""
        if not tells_intervals(self.images):
            return ()
        halves = over_halves(self.resampled, self.images).overall
        found = (metric_interval(name, self[name], halves[name], num_images=self.images) for name in halves)
        return tuple(interval for interval in found if not math.isnan(interval.low))

    def resampled(self, weights: Ints) -> Resampled:
        """mAP50-95 and mAP50 where each image stands so many times; AP of each class.

        Args:
            weights: (R, I) in the order of the records.
        """
        ap = self.ranking.average_precision(weights)  # (R, 10, C)
        per_class, ap50 = ap.mean(axis=1), ap[:, 0]
        return Resampled(
            {METRIC_COLUMNS[3]: means_of_known(per_class), METRIC_COLUMNS[2]: means_of_known(ap50)}, per_class
        )

    def details(self) -> dict[str, Any]:
        """What there is to say beyond the mapping, as plain values."""
        return {
            "images": self.images,
            "instances": self.instances,
            "threshold": self.best_threshold,
            "num_ignored": self.num_ignored,
            "num_capped": self.num_capped,
            "intervals": {one.name: [one.low, one.high] for one in self.intervals},
            "coco": self.coco.document(),
            "per_class": [asdict(row) for row in self.per_class],
            "confusion": self.confusion.counts.tolist(),
            "errors": self.errors.document(),
        }

    def stored(self) -> dict[str, float]:
        """What a checkpoint keeps: the metrics by their CSV names, and the thresholds of all classes and of each."""
        known = [row for row in self.per_class if row.instances]
        thresholds = {f"best_threshold/{row.name}": row.best_threshold for row in known}
        return {**self, "best_threshold": self.best_threshold, **thresholds}


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
        self._truth = truth_of(records)
        self._coco_truth = coco_of(records, self._truth, names)
        self._detections: dict[int, Detections] = {}
        self._capped: set[int] = set()
        self._is_computed = False

    def add(self, predictions: list[dict[str, Tensor]], batch: Batch) -> None:
        """Take the decoded predictions of a batch.

        Args:
            predictions: One entry for each image: `boxes` (N, 4) xyxy pixels of the network's input, `scores` (N,),
                `classes` (N,), and where the decoder tells `num_dropped` () int64, candidates beyond its cap.
            batch: What was predicted on. The predictions of an unreadable image are dropped: its boxes were missed.
        """
        self._begin_round()
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
            self._detections[batch.indices[i]] = Detections(clipped[order], scores[order], classes[order])
            if "num_dropped" in prediction and int(prediction["num_dropped"]) > 0:
                self._capped.add(batch.indices[i])

    def state(self) -> dict[str, NDArray[Any]]:
        """What was added in this round, which ends, as flat arrays for the evaluator of another process to `merge`."""
        self._begin_round()
        self._is_computed = True
        found = list(self._detections.values())
        return {
            "images": np.array(list(self._detections), np.int64),
            "counts": np.array([len(one.scores) for one in found], np.int64),
            "boxes": np.concatenate([np.zeros((0, 4)), *(one.boxes for one in found)]),
            "scores": np.concatenate([np.zeros(0), *(one.scores for one in found)]),
            "classes": np.concatenate([np.zeros(0, np.int64), *(one.classes for one in found)]),
            "capped": np.array(sorted(self._capped), np.int64),
        }

    def merge(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take what another evaluator of the same records has; an image that both have is taken from there."""
        self._begin_round()
        ends = np.cumsum(state["counts"])
        columns = [np.split(state[name], ends)[:-1] for name in ("boxes", "scores", "classes")]  # none behind the last
        for index, boxes, scores, classes in zip(state["images"].tolist(), *columns, strict=True):
            self._detections[index] = Detections(boxes, scores, classes)
        self._capped.update(state["capped"].tolist())

    def compute(self) -> DetectionMetrics:
        """The metrics of everything added since the last call."""
        self._is_computed = True
        names, truth = self._names, self._truth
        scores = coco_scores(self._coco_truth, self._detections)
        hits = find_hits(truth, self._detections, len(names))
        threshold = hits.best_threshold()
        precision, recall, f1 = (rates[:, 0] for rates in hits.rates_at(np.array([threshold])))
        coco = scores.summary()
        return DetectionMetrics(
            box=BoxMetrics(
                map=coco.ap,
                map50=coco.ap50,
                map75=coco.ap75,
                maps=tuple(scores.per_class()["ap"].tolist()),
                mp=mean_of_known(precision),
                mr=mean_of_known(recall),
                mf1=mean_of_known(f1),
            ),
            coco=coco,
            names=names,
            per_class=_per_class(names, truth, hits, scores, {"precision": precision, "recall": recall, "f1": f1}),
            best_threshold=threshold,
            images=len(truth),
            instances=int(hits.instances.sum()),
            num_ignored=sum(int(image.is_ignored.sum()) for image in truth),
            num_capped=len(self._capped),
            scored=Scored(truth, self._detections, scores, hits),
        )

    def _begin_round(self) -> None:
        if self._is_computed:
            self._detections, self._capped, self._is_computed = {}, set(), False


def _per_class(
    names: tuple[str, ...], truth: tuple[Truth, ...], hits: Hits, scores: CocoScores, rates: Mapping[str, Floats]
) -> tuple[ClassMetrics, ...]:
    images = np.zeros(len(names), np.int64)
    for image in truth:
        images[np.unique(image.counted.classes)] += 1
    columns = {**rates, **scores.per_class(), "best_threshold": hits.best_thresholds()}  # (C,) each
    return tuple(
        ClassMetrics(
            name=name,
            images=int(images[index]),
            instances=int(hits.instances[index]),
            **{key: float(column[index]) for key, column in columns.items()},
        )
        for index, name in enumerate(names)
    )
