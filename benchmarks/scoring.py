"""How long the metrics of many detections take, beside what faster-coco-eval alone takes for its numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from faster_coco_eval import COCO, COCOeval_faster
from numpy.typing import NDArray

from benchmarks.timing import median_seconds
from visiontrain.metrics.detection import DetectionEvaluator
from visiontrain.sample import Batch, Record, Records

IMAGES = 5000
DETECTIONS = 100
"""Of an image."""
BOXES = 8
"""Of an image."""
CLASSES = 80
SIDE = 640
"""Of an image, pixels."""
JITTER = 20.0
"""Pixels by which the corners of a found box are off; detections beyond the boxes of an image lie anywhere."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def scoring_figures(repeats: int, *, images: int = IMAGES) -> dict[str, object]:
    """Seconds of the evaluator from decoded predictions to all its numbers, of the library alone, and their ratio."""
    rng = np.random.default_rng(0)
    truth = _random_boxes(rng, (images, BOXES))
    classes = rng.integers(0, CLASSES, (images, BOXES))
    found = _random_boxes(rng, (images, DETECTIONS))
    found[:, :BOXES] = _ordered(truth + rng.normal(0, JITTER, truth.shape))
    found_classes = rng.integers(0, CLASSES, (images, DETECTIONS))
    found_classes[:, :BOXES] = classes
    scores = -np.sort(-rng.random((images, DETECTIONS)), axis=1)

    records = Records(
        [
            Record(Path(f"{index}.jpg"), SIDE, SIDE, (boxes / SIDE).astype(np.float32), of_image)
            for index, (boxes, of_image) in enumerate(zip(truth, classes, strict=True))
        ]
    )
    evaluator = DetectionEvaluator(records, tuple(f"class{index}" for index in range(CLASSES)))
    predictions = [
        {"boxes": torch.from_numpy(b).float(), "scores": torch.from_numpy(s).float(), "classes": torch.from_numpy(c)}
        for b, s, c in zip(found, scores, found_classes, strict=True)
    ]
    batches = [_batch(index) for index in range(images)]

    def evaluate() -> None:
        for prediction, batch in zip(predictions, batches, strict=True):
            evaluator.add([prediction], batch)
        evaluator.compute()

    results = _coco_results(found, scores, found_classes)
    ours = median_seconds(evaluate, repeats)
    alone = median_seconds(lambda: _library_alone(truth, classes, results), repeats)
    return {
        "images": images,
        "detections_per_image": DETECTIONS,
        "seconds": round(ours, 2),
        "library_seconds": round(alone, 2),
        "ratio": round(ours / alone, 3),
    }


def _random_boxes(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """(*shape, 4) xyxy, pixels."""
    return _ordered(rng.uniform(0, SIDE, (*shape, 4)))


def _ordered(corners: Floats) -> Floats:
    pairs = np.sort(corners.reshape(*corners.shape[:-1], 2, 2), axis=-2)
    return np.clip(pairs.reshape(corners.shape), 0, SIDE)


def _batch(index: int) -> Batch:
    return Batch(
        images=torch.empty(1, 3, 1, 1, dtype=torch.uint8),
        targets={},
        paths=(f"{index}.jpg",),
        indices=(index,),
        original_sizes=((SIDE, SIDE),),
        matrices=torch.eye(3)[None],
    )


def _coco_results(boxes: Floats, scores: Floats, classes: Ints) -> list[dict[str, Any]]:
    sizes = boxes[..., 2:] - boxes[..., :2]
    return [
        {"image_id": image, "category_id": label, "bbox": [*corner, *size], "score": score}
        for image in range(len(boxes))
        for corner, size, score, label in zip(
            boxes[image, :, :2].tolist(),
            sizes[image].tolist(),
            scores[image].tolist(),
            classes[image].tolist(),
            strict=True,
        )
    ]


def _library_alone(truth: Floats, classes: Ints, results: list[dict[str, Any]]) -> None:
    """What a script of the library's documentation does."""
    coco = COCO(print_function=_say_nothing)
    annotations = _coco_results(truth, np.zeros(classes.shape), classes)
    coco.dataset = {
        "info": {},
        "images": [{"id": index, "height": SIDE, "width": SIDE} for index in range(len(truth))],
        "annotations": [
            {**annotation, "id": number + 1, "iscrowd": 0, "area": annotation["bbox"][2] * annotation["bbox"][3]}
            for number, annotation in enumerate(annotations)
        ],
        "categories": [{"id": index, "name": str(index)} for index in range(CLASSES)],
    }
    coco.createIndex()
    evaluation = COCOeval_faster(coco, coco.loadRes(results), iouType="bbox", print_function=_say_nothing)
    evaluation.run()


def _say_nothing(*_: object) -> None:
    pass
