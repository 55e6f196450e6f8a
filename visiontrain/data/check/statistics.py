"""What a split is made of, in numbers: images, labels, classes, sizes and shapes.

Letters: C classes, N boxes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visiontrain.data.check.labels import box_sides, class_counts
from visiontrain.sample import DataSet, Records

SMALL, MEDIUM = 32**2, 96**2
"""Square pixels up to which an object is small, and medium. Source: COCO, cocoeval.py, areaRng."""
AREA_EDGES = (0.0, 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
"""Of the area of a box as a part of its image."""
RATIO_EDGES = (0.0, 1 / 8, 1 / 4, 1 / 2, 1 / 1.25, 1.25, 2.0, 4.0, 8.0, float("inf"))
"""Of width over height of a box, in pixels."""
COUNT_EDGES = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, float("inf"))
"""Of the labels of an image."""
MOST_SIZES = 8
"""Image sizes told, the most frequent first."""


@dataclass(frozen=True)
class Histogram:
    """How many values lie from each edge up to the next; the last edge belongs to the last bin."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]

    @classmethod
    def of(cls, values: NDArray[Any], edges: Sequence[float]) -> Histogram:
        clipped = np.clip(values, edges[0], edges[-1])
        bins = np.clip(np.searchsorted(edges, clipped, side="right") - 1, 0, len(edges) - 2)
        return cls(tuple(edges), tuple(np.bincount(bins, minlength=len(edges) - 1).tolist()))


@dataclass(frozen=True)
class BoxStatistics:
    """Of the boxes of a split."""

    small: int
    """Below 32² pixels, once the long side of the image is imgsz."""
    medium: int
    """Below 96²."""
    large: int
    areas: Histogram
    ratios: Histogram


@dataclass(frozen=True)
class SplitStatistics:
    """Of one split."""

    images: int
    background: int
    """Images without a label."""
    labels: int
    class_labels: tuple[int, ...]
    """(C,)"""
    class_images: tuple[int, ...]
    """(C,) images that hold a label of the class."""
    labels_per_image: Histogram
    mean_labels: float
    most_labels: int
    sizes: Mapping[tuple[int, int], int]
    """Width and height, pixels → images of that size; the most frequent first."""
    num_sizes: int
    """Different ones, those not in `sizes` included."""
    boxes: BoxStatistics | None
    """None where labels have no boxes."""

    @property
    def imbalance(self) -> float | None:
        """Labels of the most frequent class over those of the rarest that has any; None without labels."""
        used = [count for count in self.class_labels if count]
        return max(used) / min(used) if used else None


def statistics_of(data: DataSet, *, imgsz: int) -> dict[str, SplitStatistics]:
    """The statistics of every split; `imgsz` is the long side of the network's input, pixels."""
    return {split: split_statistics(records, len(data.names), imgsz=imgsz) for split, records in data.splits.items()}


def split_statistics(records: Records, num_classes: int, *, imgsz: int) -> SplitStatistics:
    """The statistics of one split."""
    counts = np.array([len(record.classes) for record in records], np.int64)
    image_of = np.repeat(np.arange(len(records)), counts)
    seen = np.unique(np.stack([image_of, records.classes]), axis=1)[1]  # the classes of each image once
    sizes = Counter((record.width, record.height) for record in records)
    return SplitStatistics(
        images=len(records),
        background=int((counts == 0).sum()),
        labels=len(records.classes),
        class_labels=tuple(class_counts(records, num_classes).tolist()),
        class_images=tuple(np.bincount(seen, minlength=num_classes).tolist()),
        labels_per_image=Histogram.of(counts, COUNT_EDGES),
        mean_labels=float(counts.mean()) if len(counts) else 0.0,
        most_labels=int(counts.max(initial=0)),
        sizes=dict(sizes.most_common(MOST_SIZES)),
        num_sizes=len(sizes),
        boxes=_box_statistics(records, imgsz) if len(records.boxes) else None,
    )


def statistics_document(statistics: SplitStatistics, names: tuple[str, ...]) -> dict[str, Any]:
    """The same as plain values, for JSON."""
    boxes = statistics.boxes
    return {
        "images": statistics.images,
        "background": statistics.background,
        "labels": statistics.labels,
        "classes": {
            name: {"images": images, "labels": labels}
            for name, images, labels in zip(names, statistics.class_images, statistics.class_labels, strict=True)
        },
        "imbalance": statistics.imbalance,
        "labels_per_image": {
            "mean": statistics.mean_labels,
            "most": statistics.most_labels,
            **_histogram_document(statistics.labels_per_image),
        },
        "image_sizes": [
            {"width": width, "height": height, "images": count} for (width, height), count in statistics.sizes.items()
        ],
        "different_image_sizes": statistics.num_sizes,
        "boxes": boxes
        and {
            "small": boxes.small,
            "medium": boxes.medium,
            "large": boxes.large,
            "area": _histogram_document(boxes.areas),
            "aspect_ratio": _histogram_document(boxes.ratios),
        },
    }


def _histogram_document(histogram: Histogram) -> dict[str, list[float]]:
    return {"edges": list(histogram.edges), "counts": list(histogram.counts)}


def _box_statistics(records: Records, imgsz: int) -> BoxStatistics:
    sides = box_sides(records, imgsz)
    pixels = sides.prod(axis=1)
    fractions = records.boxes.astype(np.float64)
    return BoxStatistics(
        small=int((pixels < SMALL).sum()),
        medium=int(((pixels >= SMALL) & (pixels < MEDIUM)).sum()),
        large=int((pixels >= MEDIUM).sum()),
        areas=Histogram.of((fractions[:, 2:] - fractions[:, :2]).prod(axis=1), AREA_EDGES),
        ratios=Histogram.of(sides[:, 0] / np.maximum(sides[:, 1], 1e-9), RATIO_EDGES),
    )
