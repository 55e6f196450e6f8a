"""A classifier's scores in detail, as the document that pages and pictures are made of."""

from __future__ import annotations

from typing import Any

import numpy as np

from visiontrain.metrics.classification import TOP, ClassificationMetrics, reliability
from visiontrain.sample import Records

# What the table of classes holds, by its headings.
_COLUMNS = {"images": "images", "precision": "precision", "recall": "recall", "F1": "f1", "AP": "ap"}


def review_classification(metrics: ClassificationMetrics, records: Records, max_images: int) -> dict[str, Any]:
    """The scores of a split as plain values; nan where there are none.

    Args:
        metrics: Of the split.
        records: The split.
        max_images: Most images of the gallery: those that it was most sure and wrong about.
    """
    scored = metrics.scored
    is_known = scored.is_added & scored.is_counted
    bins = reliability(scored.probs[is_known].max(axis=1).astype(np.float64), scored.is_at_top[is_known, 0])
    return {
        "images": metrics.images,
        "names": list(metrics.names),
        "summary": {
            **metrics,
            "balanced accuracy": metrics.balanced_accuracy,
            "precision": metrics.precision,
            "F1": metrics.f1,
            "mAP": metrics.map,
            "calibration error": metrics.ece,
        },
        "intervals": {one.name: [one.low, one.high] for one in metrics.intervals},
        "columns": list(_COLUMNS),
        "rows": [
            {"name": row.name, **{heading: getattr(row, field) for heading, field in _COLUMNS.items()}}
            for row in metrics.per_class
        ],
        "confusion": None if metrics.confusion is None else {"counts": metrics.confusion.tolist()},
        "calibration": {
            "confidence": bins.confidence.tolist(),
            "accuracy": bins.accuracy.tolist(),
            "counts": bins.counts.tolist(),
        },
        "gallery": [_shot(metrics, records, place) for place in _most_confident_errors(metrics)[:max_images]],
    }


def _most_confident_errors(metrics: ClassificationMetrics) -> list[int]:
    """Images with an error, the surest claim that is wrong first; behind it what was missed without another claim."""
    scored = metrics.scored
    claimed = np.where(scored.found & ~scored.labels, scored.probs, 0.0).max(axis=1)
    missed = np.where(scored.labels & ~scored.found, 1 - scored.probs, 0.0).max(axis=1)
    sureness = np.where(claimed > 0, 1 + claimed, missed)  # any claim stands before what was only missed
    is_wrong = np.array([outcome.num_errors > 0 for outcome in metrics.per_image], bool) & scored.is_added
    order = np.argsort(-sureness, kind="stable")
    return order[is_wrong[order]].tolist()


def _shot(metrics: ClassificationMetrics, records: Records, place: int) -> dict[str, Any]:
    record, outcome = records[place], metrics.per_image[place]
    probs = metrics.scored.probs[place]
    return {
        "path": str(record.path.absolute()),  # pages are made anew from anywhere
        "width": record.width,
        "height": record.height,
        "labels": [metrics.names[label] for label in record.classes.tolist()],
        "probs": [[metrics.names[label], float(probs[label])] for label in np.argsort(-probs, kind="stable")[:TOP]],
        "misses": outcome.misses,
        "false_alarms": outcome.false_alarms,
        "wrong_classes": outcome.wrong_classes,
    }
