"""COCO's numbers equal those of its reference implementation, whatever the data hold."""

from __future__ import annotations

import gc
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from visiontrain.metrics.coco import coco_of, coco_scores
from visiontrain.metrics.detection import DetectionEvaluator, DetectionMetrics
from visiontrain.metrics.detections import Detections, truth_of
from visiontrain.sample import Batch, Record, Records, ScoringLabels

SIDE = 512
"""Of all images: a power of two, so that whole pixels are exact as fractions."""
QUICK = 25
ALL = 300
PER_CLASS = ("ap", "ap50", "ap75", "ap_small", "ap_medium", "ap_large", "ar100")

coco = pytest.importorskip("pycocotools.coco")
cocoeval = pytest.importorskip("pycocotools.cocoeval")


@dataclass(frozen=True)
class Image:
    """What an image shows, and what was found in it."""

    boxes: np.ndarray
    """(N, 4) xyxy, pixels; labels first, then crowd regions."""
    classes: np.ndarray
    areas: np.ndarray
    """(N,) nan where only the box is known."""
    is_crowd: np.ndarray
    is_difficult: np.ndarray
    found: np.ndarray
    """(D, 4)"""
    scores: np.ndarray
    found_classes: np.ndarray


def random_boxes(rng, count, largest):
    """(count, 4) xyxy in whole pixels, many of them as small as COCO's limits of area or just there."""
    sides = rng.integers(2, largest, (count, 2))
    is_at_limit = rng.random(count) < 0.2
    sides[is_at_limit] = rng.choice([32, 96], (int(is_at_limit.sum()), 1))
    corner = rng.integers(0, SIDE - sides)
    return np.concatenate([corner, corner + sides], axis=1).astype(np.float64)


def random_image(rng, num_classes, missing, most_found) -> Image:
    """With ties of scores, boxes drawn twice, crowds, difficult objects and more than 100 detections now and then."""
    is_empty = rng.random() < 0.2
    count, num_crowds = (0, 0) if is_empty else (int(rng.integers(1, 9)), int(rng.integers(0, 3)))
    known = np.array([label for label in range(num_classes) if label != missing])
    boxes = np.concatenate([random_boxes(rng, count, 140), random_boxes(rng, num_crowds, 300)])
    classes = rng.choice(known, count + num_crowds)
    if count > 2:
        boxes[1], classes[1] = boxes[0], classes[0]
    near = np.repeat(boxes, 2, axis=0) + rng.integers(-5, 6, (2 * len(boxes), 4))
    noise = random_boxes(rng, int(rng.integers(0, most_found)), 140)
    found = np.sort(np.concatenate([near, noise]).clip(0, SIDE).reshape(-1, 2, 2), axis=1).reshape(-1, 4)
    found_classes = np.concatenate([np.repeat(classes, 2), rng.integers(0, num_classes, len(noise))])
    scores = rng.integers(1, 30, len(found)) / 32  # exact in float32, with many ties
    order = np.argsort(-scores, kind="stable")
    shares = rng.choice([0.4, 0.8, math.nan], len(boxes))
    is_crowd = np.arange(len(boxes)) >= count
    return Image(
        boxes=boxes,
        classes=classes,
        areas=(boxes[:, 2:] - boxes[:, :2]).prod(axis=1) * np.where(is_crowd, math.nan, shares),
        is_crowd=is_crowd,
        is_difficult=~is_crowd & (rng.random(len(boxes)) < 0.15),
        found=found[order],
        scores=scores[order],
        found_classes=found_classes[order],
    )


def random_set(seed: int) -> tuple[list[Image], int]:
    """Images, and the number of classes, one of which may have no ground truth."""
    rng = np.random.default_rng(seed)
    num_classes = int(rng.integers(1, 5))
    missing = int(rng.integers(0, num_classes)) if num_classes > 1 and rng.random() < 0.4 else -1
    most_found = 400 if rng.random() < 0.2 else 30
    return [random_image(rng, num_classes, missing, most_found) for _ in range(rng.integers(1, 9))], num_classes


def records_of(images: list[Image]) -> Records:
    return Records([record_of(index, image) for index, image in enumerate(images)])


def record_of(index: int, image: Image) -> Record:
    fractions = (image.boxes / SIDE).astype(np.float32)
    is_label = ~image.is_crowd
    classes = image.classes.astype(np.int64)
    scoring = ScoringLabels(
        image.areas[is_label], image.is_difficult[is_label], fractions[image.is_crowd], classes[image.is_crowd]
    )
    return Record(Path(f"{index}.png"), SIDE, SIDE, fractions[is_label], classes[is_label], scoring)


def evaluate(images: list[Image], num_classes: int, **settings) -> DetectionMetrics:
    evaluator = DetectionEvaluator(
        records_of(images), tuple(map(str, range(num_classes))), **{"max_det": 10_000, **settings}
    )
    for index, image in enumerate(images):
        batch = Batch(
            images=torch.zeros(1, 3, 8, 8, dtype=torch.uint8),
            targets={},
            paths=(f"{index}.png",),
            indices=(index,),
            original_sizes=((SIDE, SIDE),),
            matrices=torch.eye(3)[None],
        )
        boxes, scores = torch.tensor(image.found, dtype=torch.float32), torch.tensor(image.scores, dtype=torch.float32)
        evaluator.add([{"boxes": boxes, "scores": scores, "classes": torch.tensor(image.found_classes)}], batch)
    return evaluator.compute()


def reference(images: list[Image], num_classes: int, *, max_dets=(1, 10, 100), keeps_ignore: bool = True) -> Any:
    """The reference implementation, run on the same data; -1 where it is undefined.

    It overwrites `ignore` by `iscrowd`; `keeps_ignore` puts it back.
    """
    annotations: list[dict] = []
    results: list[dict] = []
    for index, image in enumerate(images):
        for place, (x1, y1, x2, y2) in enumerate(image.boxes.tolist()):
            area = image.areas.item(place)
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": index,
                    "category_id": image.classes.item(place),
                    "bbox": [x1, y1, x2 - x1, y2 - y1],
                    "area": (x2 - x1) * (y2 - y1) if math.isnan(area) else area,
                    "iscrowd": int(image.is_crowd[place]),
                    "ignore": int(image.is_difficult[place]),
                    "is_difficult": int(image.is_difficult[place]),
                }
            )
        results += [
            {"image_id": index, "category_id": label, "bbox": [x1, y1, x2 - x1, y2 - y1], "score": score}
            for (x1, y1, x2, y2), score, label in zip(
                image.found.tolist(), image.scores.tolist(), image.found_classes.tolist(), strict=True
            )
        ]
    truth = coco.COCO()
    truth.dataset = {
        "info": {},
        "images": [{"id": index, "height": SIDE, "width": SIDE} for index in range(len(images))],
        "annotations": annotations,
        "categories": [{"id": index, "name": str(index)} for index in range(num_classes)],
    }
    truth.createIndex()
    found = truth.loadRes(results) if results else coco.COCO()
    if not results:
        found.dataset = {**truth.dataset, "annotations": []}
        found.createIndex()
    measured = cocoeval.COCOeval(truth, found, "bbox")
    measured.params.maxDets = list(max_dets)
    prepare = measured._prepare

    def prepare_and_put_back():
        prepare()
        for shown in measured._gts.values():
            for annotation in shown:
                annotation["ignore"] = annotation["iscrowd"] or annotation["is_difficult"]

    if keeps_ignore:
        measured._prepare = prepare_and_put_back
    measured.evaluate()
    measured.accumulate()
    measured.summarize()
    return measured


def known(value) -> float:
    """The reference writes -1 where there is no ground truth."""
    return math.nan if value == -1 else float(value)


def per_class_reference(measured, label: int) -> tuple[float, ...]:
    precision, recall = measured.eval["precision"][:, :, label, :, -1], measured.eval["recall"][:, label, 0, -1]
    values = [precision[..., 0], precision[0, :, 0], precision[5, :, 0], *(precision[..., area] for area in (1, 2, 3))]
    return tuple(known(value.mean()) for value in (*values, recall))


def assert_equal_to_reference(seed: int) -> None:
    images, num_classes = random_set(seed)
    measured, metrics = reference(images, num_classes), evaluate(images, num_classes)
    expected = [known(value) for value in measured.stats]
    assert list(metrics.coco.document().values()) == pytest.approx(expected, abs=1e-6, nan_ok=True)
    assert dict(metrics)["metrics/mAP50-95(B)"] == pytest.approx(expected[0], abs=1e-6, nan_ok=True)
    for label, row in enumerate(metrics.per_class):
        found = tuple(getattr(row, name) for name in PER_CLASS)
        assert found == pytest.approx(per_class_reference(measured, label), abs=1e-6, nan_ok=True), row.name


@pytest.mark.parametrize("seed", range(QUICK))
def test_all_numbers_equal_pycocotools(seed):
    assert_equal_to_reference(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(QUICK, ALL))
def test_all_numbers_equal_pycocotools_on_many_sets(seed):
    assert_equal_to_reference(seed)


def test_the_random_sets_hold_what_they_are_meant_to():
    sets = [random_set(seed) for seed in range(QUICK)]
    images = [image for one, _ in sets for image in one]
    assert any(len(image.found) > 100 for image in images)
    assert any(not len(image.boxes) for image in images)
    assert sum(image.is_crowd.sum() for image in images) > 20
    assert sum(image.is_difficult.sum() for image in images) > 20
    assert any(len(set(image.scores.tolist())) < len(image.scores) for image in images)
    truth = [set(np.concatenate([image.classes for image in one]).tolist()) for one, _ in sets]
    assert any(len(shown) < num_classes for shown, (_, num_classes) in zip(truth, sets, strict=True))


def some_set() -> tuple[list[Image], int]:
    return random_set(next(seed for seed in range(ALL) if len(random_set(seed)[0]) >= 6))


def test_a_set_without_detections_scores_zero_as_in_pycocotools():
    images, num_classes = some_set()
    nothing = [
        replace(image, found=np.zeros((0, 4)), scores=np.zeros(0), found_classes=np.zeros(0, np.int64))
        for image in images
    ]
    expected = [known(value) for value in reference(nothing, num_classes).stats]
    document = evaluate(nothing, num_classes).coco.document()
    assert list(document.values()) == pytest.approx(expected, abs=1e-6, nan_ok=True)
    assert document["AP"] == 0


def test_the_names_are_those_of_cocos_papers():
    names = "AP AP50 AP75 APs APm APl AR1 AR10 AR100 ARs ARm ARl"
    assert " ".join(evaluate(*some_set()).coco.document()) == names


def test_nothing_to_be_found_is_nan_in_all_numbers():
    empty = Image(*(np.zeros((0, 4)), *(np.zeros(0, kind) for kind in (int, float, bool, bool))), *found_one())
    assert all(math.isnan(value) for value in evaluate([empty], 2).coco.document().values())
    scores = coco_scores(coco_of(Records([]), (), ("a", "b")), {})
    assert all(math.isnan(value) for value in scores.summary().document().values())
    assert scores.per_class()["ap"].shape == (2,)


def found_one() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.array([[8.0, 8, 40, 40]]), np.array([0.5]), np.array([0])


def test_the_collector_does_not_walk_through_what_scoring_has_made():
    boxes = np.tile([[8.0, 8, 40, 40]], (100, 1))
    found = {index: Detections(boxes, np.linspace(1, 0, 100), np.zeros(100, np.int64)) for index in range(200)}
    nothing = (np.zeros((0, 4), np.float32), np.zeros(0, np.int64))
    truth = coco_of(Records([Record(Path(f"{index}.jpg"), 64, 64, *nothing) for index in found]), (), ("a",))
    walked = []

    def note(phase, info):
        if phase == "start":
            walked.append(len(gc.get_objects(info["generation"])))

    gc.collect()
    gc.callbacks.append(note)
    try:
        coco_scores(truth, found)
        [[] for _ in range(2000)]  # lets the youngest be looked through
    finally:
        gc.callbacks.remove(note)
    assert max(walked) < 200 * 100


@pytest.mark.parametrize("max_det", [100, 300])
def test_the_users_limit_of_detections_leaves_no_number_undefined(max_det):
    """The reference's AP is -1 as soon as its list of limits lacks 100; that is why ours is fixed."""
    images, num_classes = some_set()
    assert reference(images, num_classes, max_dets=(1, 10, 300)).stats[0] == -1
    assert min(len(image.found) for image in images) < max_det
    document = evaluate(images, num_classes, max_det=max_det).coco.document()
    expected = [known(value) for value in reference(images, num_classes).stats]
    assert list(document.values()) == pytest.approx(expected, abs=1e-6, nan_ok=True)


def test_pycocotools_itself_does_not_read_ignore_and_ours_knows():
    box = np.array([[8.0, 8, 72, 72]])
    flags = {"areas": np.array([math.nan]), "is_crowd": np.zeros(1, bool), "is_difficult": np.ones(1, bool)}
    miss = Image(box, np.zeros(1, int), **flags, found=np.zeros((0, 4)), scores=np.zeros(0), found_classes=np.zeros(0))
    hit = replace(miss, is_difficult=np.zeros(1, bool), found=box, scores=np.ones(1), found_classes=np.zeros(1, int))
    assert reference([miss, hit], 1, keeps_ignore=False).stats[8] == pytest.approx(0.5)
    assert reference([miss, hit], 1).stats[8] == evaluate([miss, hit], 1).coco.ar100 == pytest.approx(1)


def test_a_crowd_takes_any_number_of_detections_and_a_difficult_object_one():
    crowd, inside = (
        np.array([[0.0, 0, 200, 200]]),
        np.array([[20.0, 20, 60, 60], [80, 80, 120, 120], [20, 90, 60, 130]]),
    )
    label = np.array([[300.0, 300, 400, 400]])
    image = Image(
        boxes=np.concatenate([label, crowd]),
        classes=np.zeros(2, int),
        areas=np.full(2, math.nan),
        is_crowd=np.array([False, True]),
        is_difficult=np.zeros(2, bool),
        found=np.concatenate([inside, label]),
        scores=np.array([0.9, 0.8, 0.7, 0.6]),
        found_classes=np.zeros(4, int),
    )
    assert evaluate([image], 1).coco.ap == pytest.approx(1)
    as_difficult = replace(image, is_crowd=np.zeros(2, bool), is_difficult=np.array([False, True]))
    assert evaluate([as_difficult], 1).coco.ap < 0.5
    one = replace(as_difficult, found=np.concatenate([crowd, label]), scores=np.array([0.9, 0.6]))
    assert evaluate([replace(one, found_classes=np.zeros(2, int))], 1).coco.ap == pytest.approx(1)


def test_the_order_in_which_images_come_does_not_matter():
    images, num_classes = some_set()
    records = records_of(images)
    truth = truth_of(records)
    coco_truth = coco_of(records, truth, tuple(map(str, range(num_classes))))
    found = {index: Detections(image.found, image.scores, image.found_classes) for index, image in enumerate(images)}
    backwards = dict(reversed(found.items()))
    first, second = coco_scores(coco_truth, found), coco_scores(coco_truth, backwards)
    np.testing.assert_array_equal(first.precision, second.precision)
    np.testing.assert_array_equal(first.recall, second.recall)


def test_scoring_leaves_the_garbage_collector_as_it_was():
    import gc

    images, num_classes = some_set()
    assert gc.isenabled()
    evaluate(images, num_classes)
    assert gc.isenabled()
    gc.disable()
    try:
        evaluate(images, num_classes)
        assert not gc.isenabled()
    finally:
        gc.enable()
