"""A detector's scores in detail, as the document that pages and pictures are made of."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from visiontrain.metrics.detection import NOTHING_FOUND, ClassMetrics, DetectionMetrics
from visiontrain.metrics.detections import Truth
from visiontrain.metrics.outcomes import worst_first
from visiontrain.sample import Records

SHOWN_FROM = 0.05
"""Score from which the gallery holds detections, where the table's threshold is not lower."""
MOST_SHOWN = 300
"""Detections of an image in the gallery."""
_DIGITS = 4  # of curves: more cannot be seen

# What the table of classes holds, by its headings.
_COLUMNS = {
    "images": "images",
    "instances": "instances",
    "precision": "precision",
    "recall": "recall",
    "F1": "f1",
    "mAP50": "ap50",
    "mAP75": "ap75",
    "mAP50-95": "ap",
    "small": "ap_small",
    "medium": "ap_medium",
    "large": "ap_large",
    "AR100": "ar100",
    "best score": "best_threshold",
}


def review_detection(metrics: DetectionMetrics, records: Records, max_images: int) -> dict[str, Any]:
    """The scores of a split as plain values; nan where there are none.

    Args:
        metrics: Of the split.
        records: The split.
        max_images: Most images of the gallery, worst first; those without an error are not in it.
    """
    curves = metrics.curves
    worst = [place for place in worst_first(metrics.per_image) if metrics.per_image[place].num_errors]
    return {
        "images": metrics.images,
        "instances": metrics.instances,
        "names": list(metrics.names),
        "threshold": metrics.best_threshold,
        "num_capped": metrics.num_capped,
        "summary": {**metrics, "mAP75": metrics.coco.ap75, "AR100": metrics.coco.ar100},
        "intervals": {one.name: [one.low, one.high] for one in metrics.intervals},
        "columns": list(_COLUMNS),
        "rows": [_row(row) for row in metrics.per_class],
        "curves": {
            "recall": _plain(curves.recall),
            "precision": _lines(curves.precision),
            "thresholds": _plain(curves.thresholds),
            "f1": _lines(curves.f1_at),
            "precision_at": _lines(curves.precision_at),
            "recall_at": _lines(curves.recall_at),
        },
        "confusion": {"threshold": metrics.confusion.threshold, "counts": metrics.confusion.counts.tolist()},
        "errors": metrics.errors.document(),
        "gallery": [_shot(metrics, records, place) for place in worst[:max_images]],
    }


def _row(row: ClassMetrics) -> dict[str, Any]:
    return {"name": row.name, **{heading: getattr(row, field) for heading, field in _COLUMNS.items()}}


def _plain(values: NDArray[np.float64]) -> list[float]:
    return values.round(_DIGITS).tolist()


def _lines(lines: NDArray[np.float64]) -> list[list[float] | None]:
    """A curve for each class; None for a class without ground truth."""
    return [None if np.isnan(line).any() else _plain(line) for line in lines]


def _shot(metrics: DetectionMetrics, records: Records, place: int) -> dict[str, Any]:
    record, outcome = records[place], metrics.per_image[place]
    truth = metrics.scored.truth[place]
    found = metrics.scored.detections.get(place, NOTHING_FOUND)
    is_shown = found.scores >= min(SHOWN_FROM, metrics.best_threshold)
    return {
        "path": str(record.path.absolute()),  # pages are made anew from anywhere
        "width": record.width,
        "height": record.height,
        "truth": _boxes(truth, ~truth.is_ignored),
        "ignored": _boxes(truth, truth.is_ignored & ~truth.is_crowd),
        "crowds": _boxes(truth, truth.is_crowd),
        "found": [
            [*box, score, label]
            for box, score, label in zip(
                found.boxes[is_shown].round(2).tolist(),
                found.scores[is_shown].tolist(),
                found.classes[is_shown].tolist(),
                strict=True,
            )
        ][:MOST_SHOWN],
        "misses": outcome.misses,
        "false_alarms": outcome.false_alarms,
        "wrong_classes": outcome.wrong_classes,
    }


def _boxes(truth: Truth, is_member: NDArray[np.bool_]) -> list[list[float]]:
    boxes, classes = truth.boxes[is_member].round(2).tolist(), truth.classes[is_member].tolist()
    return [[*box, label] for box, label in zip(boxes, classes, strict=True)]
