"""What the labels of a data set are worth knowing for: boxes that are too small to see, classes that are missing.

Letters: N boxes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from visiontrain.findings import Findings
from visiontrain.sample import DataSet, Record, Records

RARE = 0.01
"""Labels of a rare class, at most, as a share of those of the most frequent one."""
ROUNDING = 1e-3
"""Pixels by which a side may come out shorter, since records hold fractions of the image in single precision."""


def box_sides(records: Records, imgsz: int) -> NDArray[np.float64]:
    """(N, 2) width and height of every box of a split, in pixels of an image whose long side is `imgsz`."""
    if not len(records.boxes):
        return np.zeros((0, 2))
    sizes = np.array([(record.width, record.height) for record in records], np.float64)  # one for each image
    counts = [len(record.boxes) for record in records]
    scaled = np.repeat(sizes * (imgsz / sizes.max(axis=1, keepdims=True)), counts, axis=0)
    boxes = records.boxes.astype(np.float64)
    return (boxes[:, 2:] - boxes[:, :2]) * scaled


def tiny_boxes(record: Record, *, imgsz: int, stride: int) -> NDArray[np.bool_]:
    """(N,) whether a box of the image is narrower or lower than `stride` pixels at `imgsz`."""
    return _is_tiny(box_sides(Records([record]), imgsz), stride)


def label_findings(data: DataSet, *, imgsz: int, stride: int) -> Findings:
    """Tiny boxes, and classes that train or another split lacks.

    Args:
        data: The data set; what its reader has found already is not repeated.
        imgsz: Long side of the network's input, to which it brings every image, pixels.
        stride: The network's smallest, pixels.
    """
    findings = Findings()
    for split, records in data.splits.items():
        if not data.findings.count("box-in-fractions", split):  # all would be tiny for want of their unit
            _add_tiny(findings, split, records, data.names, imgsz=imgsz, stride=stride)
    if "train" in data.splits:
        counts = {split: class_counts(records, len(data.names)) for split, records in data.splits.items()}
        _add_classes(findings, data, counts)
    return findings


def class_counts(records: Records, num_classes: int) -> NDArray[np.int64]:
    """(C,) labels of each class in a split."""
    return np.bincount(records.classes, minlength=num_classes).astype(np.int64)


def _is_tiny(sides: NDArray[np.float64], stride: int) -> NDArray[np.bool_]:
    return np.asarray((sides < stride - ROUNDING).any(axis=1))


def _add_tiny(
    findings: Findings, split: str, records: Records, names: tuple[str, ...], *, imgsz: int, stride: int
) -> None:
    sides = box_sides(records, imgsz)
    is_tiny = _is_tiny(sides, stride)
    if not is_tiny.any():
        return
    ends = np.cumsum([len(record.boxes) for record in records])
    for box in np.flatnonzero(is_tiny).tolist():
        image = int(np.searchsorted(ends, box, side="right"))
        width, height = sides[box]
        text = f"{names[records.classes[box]]}: {width:.1f} × {height:.1f} pixels at imgsz {imgsz}, stride {stride}"
        findings.add("box-tiny", split, records[image].path, text=text)


def _add_classes(findings: Findings, data: DataSet, counts: dict[str, NDArray[np.int64]]) -> None:
    train = counts["train"]
    most = int(train.max(initial=0))
    if not most or data.findings.count("class-from-one", "train"):
        return  # no label at all, or labels of other classes than they mean, which the reader tells
    for name, count in zip(data.names, train.tolist(), strict=True):
        if not count:
            findings.add("class-unused", "train", data.source, text=name)
        elif count <= RARE * most:
            text = f"{name}: {count}, {data.names[int(train.argmax())]}: {most}"
            findings.add("class-rare", "train", data.source, text=text)
    for split, others in counts.items():
        is_told = data.findings.count("class-missing", split) > 0
        if split == "train" or is_told or not others.any():
            continue
        for label in np.flatnonzero((train > 0) & (others == 0)).tolist():
            findings.add("class-missing", split, data.source, text=data.names[label])
