"""The documents that the tasks make of their metrics agree with the metrics, and can be read."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from visiontrain.metrics.classification import ClassificationEvaluator
from visiontrain.metrics.detection import DetectionEvaluator
from visiontrain.report.review import read_review
from visiontrain.run.files import as_plain
from visiontrain.sample import Batch, Record, Records
from visiontrain.tasks import TASKS

NAMES = ("a", "b", "never")


def batch_of(count):
    return Batch(
        images=torch.zeros(count, 3, 80, 100, dtype=torch.uint8),
        targets={},
        paths=tuple(f"{place}.jpg" for place in range(count)),
        indices=tuple(range(count)),
        original_sizes=((80, 100),) * count,
        matrices=torch.eye(3).repeat(count, 1, 1),
    )


def read(document, task):
    plain = as_plain({"task": task, "split": "val", **document})
    review, faults = read_review(json.loads(json.dumps(plain, allow_nan=False)))
    assert faults == []
    return review


@pytest.fixture
def detected():
    """Metrics and records of twelve images with some boxes found, some missed and some false alarms."""
    rng = np.random.default_rng(0)
    records, predictions = [], []
    for place in range(12):
        low = rng.random((4, 2)) * 0.6
        boxes = np.concatenate([low, low + 0.1 + rng.random((4, 2)) * 0.3], axis=1).astype(np.float32)
        classes = rng.integers(0, 2, 4)
        records.append(Record(Path(f"{place}.jpg"), 80, 100, boxes, classes))
        moved = boxes * [100, 80, 100, 80] + rng.normal(0, 3, (4, 4))
        predictions.append(
            {
                "boxes": torch.from_numpy(moved).float(),
                "scores": torch.from_numpy(rng.random(4)).float(),
                "classes": torch.from_numpy(np.where(rng.random(4) < 0.7, classes, 1 - classes)),
            }
        )
    evaluator = DetectionEvaluator(Records(records), NAMES)
    evaluator.add(predictions, batch_of(12))
    return evaluator.compute(), Records(records)


def test_a_detectors_review_agrees_with_its_metrics(detected):
    metrics, records = detected
    review = read(TASKS["detect"].review(metrics, records, 5), "detect")
    assert dict(review.summary)["metrics/mAP50(B)"] == metrics.box.map50
    assert review.threshold == metrics.best_threshold
    rows = dict(zip(review.table.names, review.table.rows, strict=True))
    assert rows["a"][review.table.columns.index("mAP50-95")] == metrics.per_class[0].ap
    assert math.isnan(rows["never"][review.table.columns.index("mAP50")])
    assert review.curves.precision[2] is None
    areas = [sum(line) / len(line) for line in review.curves.precision[:2]]
    assert areas == pytest.approx([row.ap50 for row in metrics.per_class[:2]], abs=1e-4)
    hits = [review.confusion.counts[label][label] for label in range(2)]
    recalls = [hit / sum(review.confusion.counts[label]) for label, hit in enumerate(hits)]
    assert recalls == pytest.approx([row.recall for row in metrics.per_class[:2]])
    assert sum(one.count for one in review.errors) > 0


def test_a_detectors_gallery_is_worst_first_and_holds_what_the_counts_were_made_of(detected):
    metrics, records = detected
    review = read(TASKS["detect"].review(metrics, records, 5), "detect")
    errors = [shot.misses + shot.false_alarms + shot.wrong_classes for shot in review.gallery]
    assert errors == sorted((outcome.num_errors for outcome in metrics.per_image), reverse=True)[:5]
    for shot in review.gallery:
        visible = [box for box in shot.found if box.score >= review.threshold]
        num_hits = len(shot.truth) - shot.misses - shot.wrong_classes
        assert len(visible) == num_hits + shot.false_alarms + shot.wrong_classes


def test_images_without_an_error_are_not_in_the_gallery():
    record = Record(Path("a.jpg"), 80, 100, np.array([[0.1, 0.1, 0.5, 0.5]], np.float32), np.array([0]))
    evaluator = DetectionEvaluator(Records([record]), NAMES)
    right = {"boxes": torch.tensor([[10.0, 8, 50, 40]]), "scores": torch.tensor([0.9]), "classes": torch.tensor([0])}
    evaluator.add([right], batch_of(1))
    assert TASKS["detect"].review(evaluator.compute(), Records([record]), 5)["gallery"] == []


def test_a_detector_that_finds_nothing_has_a_review():
    record = Record(Path("a.jpg"), 80, 100, np.array([[0.1, 0.1, 0.5, 0.5]], np.float32), np.array([0]))
    metrics = DetectionEvaluator(Records([record]), NAMES).compute()
    review = read(TASKS["detect"].review(metrics, Records([record]), 5), "detect")
    assert review.gallery[0].misses == 1


def classified(probs, labels, *, multi_label=False):
    records = Records(
        [
            Record(Path(f"{i}.jpg"), 80, 100, np.zeros((0, 4), np.float32), np.array(one, int))
            for i, one in enumerate(labels)
        ]
    )
    evaluator = ClassificationEvaluator(records, NAMES, multi_label=multi_label)
    evaluator.add([{"probs": torch.tensor(one)} for one in probs], batch_of(len(probs)))
    return read(TASKS["classify"].review(evaluator.compute(), records, 5), "classify")


def names_of(review):
    paths = [Path(shot.path) for shot in review.gallery]
    assert all(path.is_absolute() for path in paths)
    return [path.name for path in paths]


def test_a_classifiers_gallery_begins_with_the_surest_error():
    probs = [[0.6, 0.3, 0.1], [0.9, 0.1, 0.0], [0.1, 0.9, 0.0], [0.2, 0.1, 0.7]]
    review = classified(probs, [[1], [1], [1], [0]])
    assert names_of(review) == ["1.jpg", "3.jpg", "0.jpg"]
    assert review.gallery[0].labels == ("b",)
    assert review.gallery[0].probs[0] == ("a", pytest.approx(0.9))
    assert review.confusion.counts[1] == (2, 1, 0, 0)
    assert review.curves is None


def test_of_several_classes_wrong_claims_stand_before_what_was_only_missed():
    review = classified([[0.1, 0.1, 0.1], [0.6, 0.9, 0.1], [0.9, 0.9, 0.1]], [[0], [1], [0, 1]], multi_label=True)
    assert names_of(review) == ["1.jpg", "0.jpg"]
    assert review.confusion is None


def test_calibration_counts_every_image_once_in_its_bin():
    review = classified([[0.65, 0.35, 0], [0.66, 0.34, 0], [0.05, 0.95, 0]], [[0], [1], [1]])
    seen = [
        (confidence, accuracy, count)
        for confidence, accuracy, count in zip(
            review.calibration.confidence, review.calibration.accuracy, review.calibration.counts, strict=True
        )
        if count
    ]
    assert seen == [(pytest.approx(0.655), 0.5, 2), (pytest.approx(0.95), 1.0, 1)]
    is_empty = [math.isnan(accuracy) for accuracy in review.calibration.accuracy]
    assert is_empty == [count == 0 for count in review.calibration.counts]
