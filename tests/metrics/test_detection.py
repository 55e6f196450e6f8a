"""Detection metrics equal COCO's reference implementation, and say n/a where nothing can be measured."""

import math
import pickle
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from visiontrain.metrics.detection import METRIC_COLUMNS, DetectionEvaluator, DetectionMetrics
from visiontrain.metrics.matching import match_detections
from visiontrain.sample import Batch, Record, Records, ScoringLabels

WIDTH, HEIGHT = 640, 480
NAMES = ("red", "white", "platelet")

Prediction = dict[str, torch.Tensor]


def random_boxes(rng: np.random.Generator, count: int) -> np.ndarray:
    """(count, 4) xyxy in pixels, inside the image, whole numbers so that overlaps tie."""
    corner = rng.integers(0, [500, 340], (count, 2))
    return np.concatenate([corner, corner + rng.integers(8, 140, (count, 2))], axis=1).astype(np.float64)


def record_of(index: int, boxes: np.ndarray, classes: np.ndarray) -> Record:
    fractions = (boxes / [WIDTH, HEIGHT, WIDTH, HEIGHT]).astype(np.float32)
    return Record(Path(f"{index}.jpg"), HEIGHT, WIDTH, fractions, classes.astype(np.int64))


def prediction_of(boxes: np.ndarray, scores: np.ndarray, classes: np.ndarray) -> Prediction:
    order = np.argsort(-scores, kind="stable")
    return {
        "boxes": torch.tensor(boxes[order], dtype=torch.float32).reshape(-1, 4),
        "scores": torch.tensor(scores[order], dtype=torch.float32),
        "classes": torch.tensor(classes[order], dtype=torch.int64),
    }


def batch_of(indices: list[int], *, matrix: np.ndarray | None = None, unreadable: tuple[str, ...] = ()) -> Batch:
    matrix = np.eye(3) if matrix is None else matrix
    return Batch(
        images=torch.zeros(len(indices), 3, 8, 8, dtype=torch.uint8),
        targets={},
        paths=tuple(f"{index}.jpg" for index in indices),
        indices=tuple(indices),
        original_sizes=((HEIGHT, WIDTH),) * len(indices),
        matrices=torch.tensor(matrix, dtype=torch.float32).expand(len(indices), 3, 3),
        unreadable=unreadable,
    )


def random_set(
    seed: int, num_images: int = 12, most_boxes: int = 12, num_detections: int = 60, num_classes: int = 3
) -> tuple[Records, list[Prediction]]:
    """Images, some without boxes, and predictions that are jittered truth, noise and ties of scores."""
    rng = np.random.default_rng(seed)
    records, predictions = [], []
    for index in range(num_images):
        count = 0 if index % 5 == 0 else int(rng.integers(1, most_boxes))
        boxes, classes = random_boxes(rng, count), rng.integers(0, num_classes, count)
        noise, noise_classes = random_boxes(rng, num_detections), rng.integers(0, num_classes, num_detections)
        near = np.concatenate([boxes + rng.integers(-6, 7, boxes.shape), boxes])
        found = np.concatenate([near, noise]).clip(0, [WIDTH, HEIGHT, WIDTH, HEIGHT])
        found_classes = np.concatenate([classes, classes, noise_classes])
        scores = rng.integers(1, 30, len(found)) / 32  # exact in float32, with many ties
        records.append(record_of(index, boxes, classes))
        predictions.append(prediction_of(found, scores, found_classes))
    return Records(records), predictions


def evaluate(records: Records, predictions: list[Prediction], **settings) -> DetectionMetrics:
    evaluator = DetectionEvaluator(records, NAMES, **settings)
    evaluator.add(predictions, batch_of(list(range(len(predictions)))))
    return evaluator.compute()


def reference(records: Records, predictions: list[Prediction]) -> np.ndarray:
    """pycocotools' precision array, (10, 101, C), with COCO's 100 detections an image and class."""
    coco = pytest.importorskip("pycocotools.coco")
    cocoeval = pytest.importorskip("pycocotools.cocoeval")
    annotations: list[dict] = []
    for index, record in enumerate(records):
        boxes = record.boxes.astype(np.float64) * [WIDTH, HEIGHT, WIDTH, HEIGHT]
        for (x1, y1, x2, y2), label in zip(boxes.tolist(), record.classes.tolist(), strict=True):
            box, area = [x1, y1, x2 - x1, y2 - y1], (x2 - x1) * (y2 - y1)
            annotations.append(
                {"id": len(annotations) + 1, "image_id": index, "category_id": label, "bbox": box, "area": area}
                | {"iscrowd": 0}
            )
    truth = coco.COCO()
    truth.dataset = {
        "info": {},
        "images": [{"id": index, "height": HEIGHT, "width": WIDTH} for index in range(len(records))],
        "annotations": annotations,
        "categories": [{"id": index, "name": name} for index, name in enumerate(NAMES)],
    }
    truth.createIndex()
    results = [
        {"image_id": index, "category_id": label, "bbox": [x1, y1, x2 - x1, y2 - y1], "score": score}
        for index, found in enumerate(predictions)
        for (x1, y1, x2, y2), score, label in zip(
            found["boxes"].tolist(), found["scores"].tolist(), found["classes"].tolist(), strict=True
        )
    ]
    evaluation = cocoeval.COCOeval(truth, truth.loadRes(results), "bbox")
    evaluation.evaluate()
    evaluation.accumulate()
    return evaluation.eval["precision"][:, :, :, 0, -1]


@pytest.mark.parametrize("seed", range(6))
def test_average_precision_equals_pycocotools(seed, capsys):
    records, predictions = random_set(seed)
    precision = reference(records, predictions)
    capsys.readouterr()
    box = evaluate(records, predictions).box
    assert capsys.readouterr().out == ""
    assert box.map == pytest.approx(precision.mean(), abs=1e-6)
    assert box.map50 == pytest.approx(precision[0].mean(), abs=1e-6)
    assert box.map75 == pytest.approx(precision[5].mean(), abs=1e-6)
    assert box.maps == pytest.approx(precision.mean(axis=(0, 1)), abs=1e-6)


def test_only_the_100_best_detections_of_an_image_and_class_count_as_in_pycocotools():
    records, predictions = random_set(3, num_images=4, num_detections=400)
    precision = reference(records, predictions)
    assert evaluate(records, predictions, max_det=10_000).box.map == pytest.approx(precision.mean(), abs=1e-6)


def test_a_class_without_ground_truth_is_nan_and_outside_the_means_as_in_pycocotools():
    records, predictions = random_set(4, num_classes=2)
    predictions[1]["classes"][::3] = 2  # found, though there is none
    precision = reference(records, predictions)
    metrics = evaluate(records, predictions)
    assert (precision[:, :, 2] == -1).all()
    assert metrics.box.map == pytest.approx(precision[:, :, :2].mean(), abs=1e-6)
    missing = metrics.per_class[2]
    assert math.isnan(metrics.box.maps[2])
    assert missing.instances == 0
    assert all(math.isnan(value) for value in (missing.ap, missing.ap50, missing.precision, missing.f1))
    assert metrics.box.mp == pytest.approx(np.mean([row.precision for row in metrics.per_class[:2]]))


def test_the_best_threshold_maximizes_the_mean_f1_over_all_thresholds():
    records, predictions = random_set(5)
    metrics = evaluate(records, predictions)

    def mean_f1(threshold: float) -> tuple[float, list[float]]:
        hits, found, total = np.zeros(3), np.zeros(3), np.zeros(3)
        for record, prediction in zip(records, predictions, strict=True):
            keep = prediction["scores"].numpy() >= threshold
            truth = record.boxes.astype(np.float64) * [WIDTH, HEIGHT, WIDTH, HEIGHT]
            classes = prediction["classes"].numpy()[keep]
            boxes = prediction["boxes"].double().numpy()[keep]
            is_hit = match_detections(boxes, classes, truth, record.classes) >= 0
            hits += np.bincount(classes[is_hit], minlength=3)
            found += np.bincount(classes, minlength=3)
            total += np.bincount(record.classes, minlength=3)
        return float((2 * hits / (found + total)).mean()), (hits / total).tolist()

    thresholds = np.unique(torch.cat([found["scores"] for found in predictions]).numpy())
    best = max(mean_f1(threshold)[0] for threshold in thresholds)
    at_best, recall = mean_f1(metrics.best_threshold)
    assert metrics.box.mf1 == pytest.approx(best, abs=1e-12)
    assert at_best == pytest.approx(best, abs=1e-12)
    assert [row.recall for row in metrics.per_class] == pytest.approx(recall, abs=1e-12)


def test_perfect_detections_score_one():
    rng = np.random.default_rng(0)
    boxes = [random_boxes(rng, 3) for _ in range(4)]
    records = Records([record_of(i, box, np.arange(3)) for i, box in enumerate(boxes)])
    metrics = evaluate(records, [prediction_of(box, np.full(3, 0.5), np.arange(3)) for box in boxes])
    assert dict(metrics) == pytest.approx(dict.fromkeys(METRIC_COLUMNS, 1.0))
    assert metrics.best_threshold == 0.5
    assert [(row.images, row.instances) for row in metrics.per_class] == [(4, 4)] * 3


def test_a_detection_in_an_image_without_boxes_lowers_the_score():
    boxes, classes = np.array([[10.0, 10, 60, 60]]), np.zeros(1)
    records = Records([record_of(0, boxes, classes), record_of(1, np.zeros((0, 4)), np.zeros(0))])
    hit = prediction_of(boxes, np.array([0.5]), classes)
    nothing = prediction_of(np.zeros((0, 4)), np.zeros(0), np.zeros(0))
    miss = prediction_of(boxes, np.array([0.9]), classes)
    assert evaluate(records, [hit, nothing]).box.map50 == pytest.approx(1)
    assert evaluate(records, [hit, miss]).box.map50 == pytest.approx(0.5)


def test_boxes_go_back_to_the_source_image_and_are_clipped_to_it():
    boxes, classes = np.array([[100.0, 50, 300, 200], [600, 400, 640, 480]]), np.array([0, 1])
    records = Records([record_of(0, boxes, classes)])
    letterbox = np.array([[0.5, 0, 0], [0, 0.5, 40], [0, 0, 1]])
    seen = boxes * 0.5 + [0, 40, 0, 40]
    seen[1, 2:] += 30  # reaches into the border
    evaluator = DetectionEvaluator(records, NAMES)
    evaluator.add([prediction_of(seen, np.array([0.9, 0.8]), classes)], batch_of([0], matrix=letterbox))
    assert evaluator.compute().box.map == pytest.approx(1)


def test_no_ground_truth_gives_nan_and_no_detection_gives_zero():
    empty = Records([record_of(i, np.zeros((0, 4)), np.zeros(0)) for i in range(3)])
    found = prediction_of(np.array([[1.0, 1, 9, 9]]), np.array([0.9]), np.array([0]))
    assert all(math.isnan(value) for value in evaluate(empty, [found] * 3).values())
    assert all(math.isnan(value) for value in DetectionEvaluator(Records([]), NAMES).compute().values())
    records, _ = random_set(6)
    nothing = DetectionEvaluator(records, NAMES).compute()
    assert dict(nothing) == dict.fromkeys(METRIC_COLUMNS, 0.0)
    assert nothing.best_threshold == 0


def test_values_are_python_floats():
    metrics = evaluate(*random_set(7))
    assert all(type(value) is float for value in metrics.values())
    assert type(metrics.best_threshold) is float
    assert all(type(value) is float for value in metrics.box.maps)


def test_an_evaluator_is_used_again_each_epoch():
    records, predictions = random_set(8)
    whole = batch_of(list(range(len(records))))
    evaluator = DetectionEvaluator(records, NAMES)
    evaluator.add(predictions, whole)
    first = evaluator.compute()
    assert dict(evaluator.compute()) == dict(first)
    evaluator.add(predictions[:1], batch_of([0]))  # a new round: the others were not seen
    assert evaluator.compute().box.mr < first.box.mr
    evaluator.add(predictions, whole)
    assert dict(evaluator.compute()) == dict(first)


def test_the_order_and_size_of_batches_do_not_matter():
    records, predictions = random_set(9)
    evaluator = DetectionEvaluator(records, NAMES)
    for index in np.random.default_rng(0).permutation(len(records)).tolist():
        evaluator.add([predictions[index]], batch_of([index]))
    assert dict(evaluator.compute()) == dict(evaluate(records, predictions))


def test_at_most_max_det_detections_of_an_image_are_kept():
    boxes = np.array([[10.0, 10, 60, 60], [100, 100, 160, 160]])
    records = Records([record_of(0, boxes, np.zeros(2))])
    found = prediction_of(boxes, np.array([0.9, 0.8]), np.zeros(2))
    assert evaluate(records, [found], max_det=1).box.mr == 0.5


def test_an_unreadable_image_counts_as_missed_whatever_was_predicted():
    boxes = np.array([[10.0, 10, 60, 60]])
    records = Records([record_of(0, boxes, np.zeros(1))])
    evaluator = DetectionEvaluator(records, NAMES)
    evaluator.add([prediction_of(boxes, np.array([0.9]), np.zeros(1))], batch_of([0], unreadable=("0.jpg",)))
    assert evaluator.compute().box.map == 0


def test_what_an_evaluator_collected_goes_to_another_as_plain_arrays():
    records, predictions = random_set(10)
    predictions[4]["num_dropped"] = torch.tensor(7)
    parts = [DetectionEvaluator(records, NAMES) for _ in range(3)]
    for index, prediction in enumerate(predictions):
        parts[index % 3].add([prediction], batch_of([index]))
    state = pickle.loads(pickle.dumps(parts[1].state()))
    assert all(isinstance(values, np.ndarray) for values in state.values())
    parts[0].merge(state)
    parts[0].merge(parts[2].state())
    metrics, whole = parts[0].compute(), evaluate(records, predictions)
    assert dict(metrics) == dict(whole)
    assert metrics.per_class == whole.per_class
    assert metrics.num_capped == whole.num_capped == 1
    parts[0].merge(DetectionEvaluator(records, NAMES).state())  # a new round
    assert parts[0].compute().box.mr == parts[0].compute().num_capped == 0


def test_a_round_ends_with_the_state_that_is_handed_over():
    records, predictions = random_set(10)
    evaluator = DetectionEvaluator(records, NAMES)
    predictions[0]["num_dropped"] = torch.tensor(1)
    evaluator.add(predictions[:2], batch_of([0, 1]))
    state = evaluator.state()
    assert (state["images"].tolist(), state["capped"].tolist()) == ([0, 1], [0])
    state = evaluator.state()
    assert (state["images"].tolist(), state["capped"].tolist()) == ([], [])
    evaluator.add(predictions[2:3], batch_of([2]))
    assert evaluator.state()["images"].tolist() == [2]


def test_images_with_more_candidates_than_suppression_looks_at_are_counted():
    records, predictions = random_set(11)
    for index, num_dropped in enumerate([0, 1, 3]):
        predictions[index]["num_dropped"] = torch.tensor(num_dropped)
    evaluator = DetectionEvaluator(records, NAMES)
    evaluator.add(predictions, batch_of(list(range(len(predictions))), unreadable=("2.jpg",)))
    assert evaluator.compute().num_capped == 1
    evaluator.add(predictions[:1], batch_of([0]))
    assert evaluator.compute().num_capped == 0


def test_a_checkpoint_keeps_plain_floats_and_the_thresholds_of_classes_with_ground_truth():
    metrics = evaluate(*random_set(4, num_classes=2))
    stored = metrics.stored()
    assert list(stored) == [*METRIC_COLUMNS, "best_threshold", "best_threshold/red", "best_threshold/white"]
    assert all(type(value) is float for value in stored.values())
    assert stored["best_threshold"] == metrics.best_threshold
    assert stored["best_threshold/red"] == metrics.per_class[0].best_threshold


def test_curves_end_where_the_table_stands():
    metrics = evaluate(*random_set(12))
    curves = metrics.curves
    assert metrics.curves is curves
    np.testing.assert_allclose(curves.precision.mean(axis=1), [row.ap50 for row in metrics.per_class], rtol=1e-12)
    assert curves.recall.tolist() == pytest.approx([place / 100 for place in range(101)])
    place = int(metrics.best_threshold * 200)  # no score lies between the threshold there and the table's
    for label, row in enumerate(metrics.per_class):
        at_place = [rates[label, place] for rates in (curves.precision_at, curves.recall_at, curves.f1_at)]
        assert at_place == pytest.approx([row.precision, row.recall, row.f1], rel=1e-12)


def test_a_crowd_region_is_no_instance_and_detections_in_it_cost_nothing():
    box, inside = np.array([[10.0, 10, 60, 60]]), np.array([[210.0, 110, 260, 160], [300, 200, 330, 260]])
    crowd = np.array([[200, 100, 500, 400]]) / [WIDTH, HEIGHT, WIDTH, HEIGHT]
    scoring = ScoringLabels(np.full(1, np.nan), np.zeros(1, bool), crowd.astype(np.float32), np.zeros(1, np.int64))
    plain = record_of(0, box, np.zeros(1))
    found = prediction_of(np.concatenate([inside, box]), np.array([0.9, 0.8, 0.7]), np.zeros(3))
    assert evaluate(Records([plain]), [found]).box.mp == pytest.approx(1 / 3)
    metrics = evaluate(Records([replace(plain, scoring=scoring)]), [found])
    assert dict(metrics) == pytest.approx(dict.fromkeys(METRIC_COLUMNS, 1.0))
    assert (metrics.instances, metrics.num_ignored, metrics.per_class[0].images) == (1, 1, 1)


def test_an_image_with_nothing_but_difficult_objects_counts_for_no_class():
    box = np.array([[10.0, 10, 60, 60]])
    scoring = ScoringLabels(np.full(1, np.nan), np.ones(1, bool), np.zeros((0, 4), np.float32), np.zeros(0, np.int64))
    metrics = evaluate(Records([replace(record_of(0, box, np.zeros(1)), scoring=scoring)]), [])
    assert (metrics.instances, metrics.per_class[0].images, metrics.images) == (0, 0, 1)
    assert math.isnan(metrics.box.map)


def test_memory_is_bounded_by_what_coco_looks_at():
    """Of 3 classes at most 300 detections of an image are ever made into objects, however many come."""
    records, predictions = random_set(13, num_images=2, num_detections=20_000)
    evaluator = DetectionEvaluator(records, NAMES, max_det=100_000)
    evaluator.add(predictions, batch_of([0, 1]))
    tracemalloc.start()
    evaluator.compute()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20e6  # 13 MB; with objects for all 40,000 detections it would be twice that


def test_more_detections_than_pycocotools_likes_are_scored():
    records, predictions = random_set(14, num_images=400, num_detections=250)
    assert sum(len(found["scores"]) for found in predictions) > 100_000
    assert evaluate(records, predictions).instances == len(records.classes)
