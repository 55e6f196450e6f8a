"""Tables of metrics as plain text, the same on a terminal, in a pipe and in a file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from visiontrain.metrics.classification import ClassificationMetrics
    from visiontrain.metrics.detection import DetectionMetrics

NOT_AVAILABLE = "-"
_CLASSIFY_HEADER = ("class", "images", "P", "R", "F1", "AP")
_HEADER = ("class", "images", "instances", "P", "R", "F1", "mAP50", "mAP50-95")
_MOST_NAME_LETTERS = 23  # so that the widest table has 80 columns


def metrics_table(metrics: DetectionMetrics) -> str:
    """One line for all classes, then one for each, and below what else there is to say; `-` where nothing is known.

    P, R and F1 are taken at the score threshold that is named below.
    """
    box = metrics.box
    rows = [_row("all", metrics.images, metrics.instances, box.mp, box.mr, box.mf1, box.map50, box.map)]
    rows += [
        _row(row.name, row.images, row.instances, row.precision, row.recall, row.f1, row.ap50, row.ap)
        for row in metrics.per_class
    ]
    return "\n".join([align([_HEADER, *rows]), *_detection_notes(metrics)])


def _detection_notes(metrics: DetectionMetrics) -> list[str]:
    coco = metrics.coco
    if not metrics.instances:
        notes = ["there are no boxes to be found, so nothing can be measured"]
    else:
        sizes = ", ".join(map(fixed, (coco.ap_small, coco.ap_medium, coco.ap_large)))
        recalls = ", ".join(map(fixed, (coco.ar1, coco.ar10, coco.ar100)))
        notes = [
            f"P, R and F1 at score {metrics.best_threshold:.3f}, which maximizes the mean F1 (IoU 0.5)"
            if metrics.best_threshold
            else "P, R and F1 are 0: no detection hits a box (IoU 0.5)",
            f"mAP50-95 of small, medium and large objects: {sizes}",
            f"AR of the best 1, 10 and 100 detections: {recalls}",
        ]
    if metrics.num_ignored:
        notes.append(f"{metrics.num_ignored} crowd regions and difficult objects are passed over, with what hits them")
    if metrics.num_capped:
        notes += [
            f"warning: {metrics.num_capped} of {metrics.images} images had more candidates than suppression looks at;",
            "  only the best were kept (a larger conf leaves fewer)",
        ]
    return notes


def classification_table(metrics: ClassificationMetrics) -> str:
    """One line for all classes, then one for each, and the accuracies below; `-` where a class has no images."""
    means = (metrics.precision, metrics.balanced_accuracy, metrics.f1, metrics.map)
    rows = [("all", str(metrics.images), *map(fixed, means))]
    rows += [
        (_short(row.name), str(row.images), *map(fixed, (row.precision, row.recall, row.f1, row.ap)))
        for row in metrics.per_class
    ]
    note = (
        f"top-1 {fixed(metrics.top1)}, top-5 {fixed(metrics.top5)}, balanced accuracy "
        f"{fixed(metrics.balanced_accuracy)}, calibration error {fixed(metrics.ece)}"
    )
    return align([_CLASSIFY_HEADER, *rows]) + "\n" + note


def align(rows: Sequence[Sequence[str]]) -> str:
    """Lines of columns two spaces apart: the first flush left, the others flush right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def fixed(value: float, digits: int = 3) -> str:
    """A number with `digits` decimals; `-` for nan."""
    return NOT_AVAILABLE if math.isnan(value) else f"{value:.{digits}f}"


def _row(name: str, images: int, instances: int, *values: float) -> tuple[str, ...]:
    return (_short(name), str(images), str(instances), *map(fixed, values))


def _short(name: str) -> str:
    return name if len(name) <= _MOST_NAME_LETTERS else name[: _MOST_NAME_LETTERS - 3] + "..."
