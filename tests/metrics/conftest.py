"""Random splits, and their metrics, for what is counted beyond COCO's numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

SIDE = 512
"""Of every image, pixels: a power of two, so that boxes are the same as fractions and back."""
NUM_CLASSES = 4
NAMES = tuple("abcd")


@pytest.fixture(scope="session")
def random_split():
    """A function that makes ground truth and detections of all kinds: near hits, ties, crowds, background, a class that
    is found but nowhere labelled (the last)."""
    from visiontrain.metrics.detections import Detections, Truth

    def random_boxes(rng, count):
        corner = rng.integers(0, 90, (count, 2)).astype(np.float64)
        return np.concatenate([corner, corner + rng.integers(10, 30, (count, 2))], axis=1)

    def make(seed, num_images=12):
        rng = np.random.default_rng(seed)
        truth, detections = [], {}
        for index in range(num_images):
            count = 0 if index % 5 == 3 else int(rng.integers(1, 7))
            boxes, classes = random_boxes(rng, count), rng.integers(0, NUM_CLASSES - 1, count)
            is_ignored = rng.random(count) < 0.15
            is_crowd = np.sort(is_ignored & (rng.random(count) < 0.5))  # regions stand behind the labels
            areas = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)
            truth.append(Truth(boxes, classes, is_crowd, is_ignored | is_crowd, areas))
            near = np.repeat(boxes, 2, axis=0) + rng.integers(-5, 6, (2 * count, 4))
            found = np.concatenate([near, random_boxes(rng, 6)]).clip(0, SIDE)
            labels = np.concatenate([np.repeat(classes, 2), rng.integers(0, NUM_CLASSES, 6)])
            labels = np.where(rng.random(len(labels)) < 0.2, rng.integers(0, NUM_CLASSES, len(labels)), labels)
            scores = np.sort(rng.integers(1, 60, len(found)) / 64)[::-1]
            order = rng.permutation(len(found))
            if index != 4:  # one that could not be read
                detections[index] = Detections(found[order], scores, labels[order])
        return truth, detections

    return make


@pytest.fixture(scope="session")
def measure():
    """A function that scores detections by the evaluator."""
    import torch

    from visiontrain.metrics.detection import DetectionEvaluator
    from visiontrain.sample import Batch, Record, Records, ScoringLabels

    def record(index, image):
        is_label, fractions = ~image.is_crowd, (image.boxes / SIDE).astype(np.float32)
        scoring = ScoringLabels(
            areas=image.areas[is_label],
            is_difficult=image.is_ignored[is_label],
            crowd_boxes=fractions[image.is_crowd],
            crowd_classes=image.classes[image.is_crowd],
        )
        labels = fractions[is_label], image.classes[is_label]
        return Record(Path(f"{index}.jpg"), SIDE, SIDE, *labels, scoring=scoring)

    def score(truth, detections, names=NAMES):
        evaluator = DetectionEvaluator(Records([record(*one) for one in enumerate(truth)]), names, max_det=10_000)
        for index, found in detections.items():
            batch = Batch(
                images=torch.zeros(1, 3, 1, 1, dtype=torch.uint8),
                targets={},
                paths=(f"{index}.jpg",),
                indices=(index,),
                original_sizes=((SIDE, SIDE),),
                matrices=torch.eye(3)[None],
            )
            columns = {"boxes": found.boxes, "scores": found.scores, "classes": found.classes}
            evaluator.add([{name: torch.from_numpy(np.array(column)) for name, column in columns.items()}], batch)
        return evaluator.compute()

    return score
