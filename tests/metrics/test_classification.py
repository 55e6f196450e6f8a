"""Classification metrics equal slow loops, and say n/a where nothing can be measured."""

import json
import math
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from visiontrain.metrics.classification import (
    METRIC_COLUMNS,
    ClassificationEvaluator,
    average_precision,
    expected_calibration_error,
    reliability,
)
from visiontrain.sample import Batch, Record, Records

NAMES = ("a", "b", "c", "d", "e", "f", "g")


def records_of(labels):
    """One image for each entry, of these classes."""
    return Records(
        [
            Record(Path(f"{index}.jpg"), 8, 8, np.zeros((0, 4), np.float32), np.array(classes, np.int64))
            for index, classes in enumerate(labels)
        ]
    )


def batch_of(indices, *, unreadable=()):
    return Batch(
        images=torch.zeros(len(indices), 3, 8, 8, dtype=torch.uint8),
        targets={},
        paths=tuple(f"{index}.jpg" for index in indices),
        indices=tuple(indices),
        original_sizes=((8, 8),) * len(indices),
        matrices=torch.eye(3).expand(len(indices), 3, 3),
        unreadable=tuple(f"{index}.jpg" for index in unreadable),
    )


def predictions_of(probs):
    return [{"probs": torch.tensor(row, dtype=torch.float32)} for row in probs]


def evaluate(labels, probs, *, names=NAMES, multi_label=False, added=None):
    """Metrics where only the images `added` were (all unless given), in two batches."""
    evaluator = ClassificationEvaluator(records_of(labels), names, multi_label=multi_label)
    added = list(range(len(labels))) if added is None else added
    for part in (added[::2], added[1::2]):
        evaluator.add(predictions_of([probs[index] for index in part]), batch_of(part))
    return evaluator.compute()


def random_probs(seed, count):
    """Rows with ties, exact in float32; they need not add up to 1."""
    return np.random.default_rng(seed).integers(0, 17, (count, len(NAMES))) / 16


def best(row, count=1):
    """The classes scored highest; of equal ones the first."""
    return sorted(range(len(row)), key=lambda c: (-row[c], c))[:count]


def mean_of(values):
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known)


def slow_rates(found, labels, label):
    """Precision, recall and F1 of a class; `found` and `labels` are sets of classes for each image."""
    hits = sum(label in f and label in truth for f, truth in zip(found, labels, strict=True))
    num_found, num_true = sum(label in f for f in found), sum(label in truth for truth in labels)
    if not num_true:
        return (math.nan,) * 3
    precision, recall = hits / num_found if num_found else 0.0, hits / num_true
    return precision, recall, 2 * precision * recall / (precision + recall) if hits else 0.0


def slow_average_precision(positives, scores):
    """Over all distinct thresholds, by counting."""
    total = sum(positives)
    if not total:
        return math.nan
    area, recall = 0.0, 0.0
    for threshold in sorted(set(scores), reverse=True):
        above = [positive for positive, score in zip(positives, scores, strict=True) if score >= threshold]
        area += (sum(above) / total - recall) * sum(above) / len(above)
        recall = sum(above) / total
    return area


def assert_same(metrics, found, labels, probs):
    for label, row in enumerate(metrics.per_class):
        precision, recall, f1 = slow_rates(found, labels, label)
        ap = slow_average_precision([label in truth for truth in labels], [row[label] for row in probs])
        assert (row.precision, row.recall, row.f1, row.ap) == pytest.approx((precision, recall, f1, ap), nan_ok=True)
        assert row.images == sum(label in truth for truth in labels)
    for name, value in {"precision": metrics.precision, "recall": metrics.balanced_accuracy, "f1": metrics.f1}.items():
        assert value == pytest.approx(mean_of([getattr(row, name) for row in metrics.per_class])), name
    assert metrics.map == pytest.approx(mean_of([row.ap for row in metrics.per_class]))


@pytest.mark.parametrize("seed", range(4))
def test_metrics_of_one_class_an_image_equal_slow_loops(seed):
    labels = [[int(c)] for c in np.random.default_rng(seed + 100).integers(0, len(NAMES) - 1, 40)]  # none is the last
    probs = random_probs(seed, 40).tolist()
    metrics = evaluate(labels, probs)
    assert metrics.top1 == np.mean([best(row)[0] in truth for row, truth in zip(probs, labels, strict=True)])
    assert metrics.top5 == np.mean([truth[0] in best(row, 5) for row, truth in zip(probs, labels, strict=True)])
    assert_same(metrics, [best(row) for row in probs], labels, probs)
    assert math.isnan(metrics.per_class[-1].recall)
    for truth in range(len(NAMES)):
        for taken_for in range(len(NAMES)):
            pairs = [(t[0], best(row)[0]) for t, row in zip(labels, probs, strict=True)]
            assert metrics.confusion[truth, taken_for] == pairs.count((truth, taken_for))
    assert (metrics.confusion.shape, metrics.confusion.sum(), metrics.images) == ((7, 8), 40, 40)


@pytest.mark.parametrize("seed", range(4))
def test_metrics_of_several_classes_an_image_equal_slow_loops(seed):
    rng = np.random.default_rng(seed + 200)
    labels = [np.flatnonzero(rng.random(len(NAMES)) < 0.3).tolist() for _ in range(40)]
    probs = random_probs(seed, 40).tolist()
    metrics = evaluate(labels, probs, multi_label=True)
    labelled = [(row, truth) for row, truth in zip(probs, labels, strict=True) if truth]
    assert len(labelled) < 40
    assert metrics.top1 == np.mean([best(row)[0] in truth for row, truth in labelled])
    assert metrics.top5 == np.mean([bool(set(best(row, 5)) & set(truth)) for row, truth in labelled])
    assert_same(metrics, [[c for c, p in enumerate(row) if p >= 0.5] for row in probs], labels, probs)
    assert metrics.confusion is None


def test_the_calibration_error_is_the_gap_of_each_bin_weighted_by_its_images():
    rng = np.random.default_rng(0)
    confidences, is_right = np.append(rng.random(300), [0.0, 1.0, 1 / 15, 2 / 15]), rng.random(304) < 0.7
    expected = 0.0
    for index in range(15):
        low, high = index / 15, (index + 1) / 15
        inside = [(c, r) for c, r in zip(confidences, is_right, strict=True) if low < c <= high or (c == 0 == index)]
        if inside:
            gap = sum(c for c, _ in inside) / len(inside) - sum(r for _, r in inside) / len(inside)
            expected += abs(gap) * len(inside) / 304
    assert expected_calibration_error(confidences, is_right) == pytest.approx(expected)
    assert evaluate([[0], [1]], [[0.8, 0.2], [0.8, 0.2]], names=("a", "b")).ece == pytest.approx(0.3)


def test_equal_scores_are_passed_at_once_so_their_order_does_not_matter():
    assert average_precision(np.array([True, False, False]), np.array([0.5, 0.5, 0.1])) == 0.5
    assert average_precision(np.array([False, True, False]), np.array([0.5, 0.5, 0.1])) == 0.5
    assert average_precision(np.array([True, False]), np.array([0.9, 0.1])) == 1


@pytest.mark.parametrize("multi_label", [False, True])
def test_an_image_that_was_never_added_was_not_recognized(multi_label):
    labels, probs = [[0], [1], [0], [1]], [[0.9, 0.1], [0.2, 0.8], [0.9, 0.1], [0.2, 0.8]]
    metrics = evaluate(labels, probs, names=("a", "b"), multi_label=multi_label, added=[0, 1, 3])
    assert (metrics.top1, metrics.top5) == (0.75, 0.75)
    assert [row.recall for row in metrics.per_class] == [0.5, 1]
    assert [row.precision for row in metrics.per_class] == [1, 1]
    assert [row.ap for row in metrics.per_class] == [0.5, 1]
    assert metrics.ece == pytest.approx((0.1 + 0.2 + 0.2) / 3)
    if not multi_label:
        assert metrics.confusion.tolist() == [[1, 0, 1], [0, 2, 0]]


def test_a_class_of_whose_images_none_was_added_has_metrics_of_zero():
    metrics = evaluate([[0], [1]], [[0.9, 0.1], [0.2, 0.8]], names=("a", "b"), added=[0])
    row = metrics.per_class[1]
    assert (row.images, row.precision, row.recall, row.f1, row.ap) == (1, 0, 0, 0, 0)
    assert metrics.map == 0.5


@pytest.mark.parametrize("fault", ["unreadable", "not finite"])
def test_predictions_of_unreadable_images_and_such_that_are_no_numbers_are_dropped(fault):
    evaluator = ClassificationEvaluator(records_of([[0], [0]]), ("a", "b"))
    probs = [[0.9, 0.1], [math.nan, math.nan] if fault == "not finite" else [0.9, 0.1]]
    evaluator.add(predictions_of(probs), batch_of([0, 1], unreadable=[1] if fault == "unreadable" else []))
    assert evaluator.compute().confusion.tolist() == [[1, 0, 1], [0, 0, 0]]


def test_where_classes_exclude_each_other_an_image_without_a_label_is_left_out():
    metrics = evaluate([[0], [], [1]], [[0.9, 0.1], [0.9, 0.1], [0.2, 0.8]], names=("a", "b"))
    assert (metrics.images, metrics.top1, metrics.precision, metrics.map) == (2, 1, 1, 1)


def test_fewer_than_five_classes_are_all_among_the_best_five():
    assert evaluate([[0], [1]], [[0.1, 0.9], [0.9, 0.1]], names=("a", "b"))["metrics/accuracy_top5"] == 1


def test_without_images_every_metric_is_not_available():
    metrics = evaluate([], [])
    for value in (metrics.top1, metrics.top5, metrics.balanced_accuracy, metrics.f1, metrics.map, metrics.ece):
        assert math.isnan(value)


def test_the_metrics_are_a_mapping_of_their_csv_names():
    metrics = evaluate([[0], [1]], [[0.9, 0.1], [0.9, 0.1]], names=("a", "b"))
    assert dict(metrics) == {"metrics/accuracy_top1": 0.5, "metrics/accuracy_top5": 1.0}
    assert tuple(metrics) == METRIC_COLUMNS
    assert len(metrics) == 2


def test_what_is_added_after_computing_begins_a_new_round():
    evaluator = ClassificationEvaluator(records_of([[0], [1]]), ("a", "b"))
    evaluator.add(predictions_of([[0.9, 0.1], [0.1, 0.9]]), batch_of([0, 1]))
    assert evaluator.compute().top1 == evaluator.compute().top1 == 1
    evaluator.add(predictions_of([[0.9, 0.1]]), batch_of([0]))
    assert evaluator.compute().top1 == 0.5


@pytest.mark.parametrize("multi_label", [False, True])
def test_what_an_evaluator_collected_goes_to_another_as_plain_arrays(multi_label):
    rng = np.random.default_rng(8)
    labels = [rng.choice(6, 2 if multi_label else 1, replace=False).tolist() for _ in range(20)]
    probs, records = random_probs(8, 20).tolist(), records_of(labels)
    parts = [ClassificationEvaluator(records, NAMES, multi_label=multi_label) for _ in range(3)]
    for index in range(1, 20):  # the first image was added by nobody
        parts[index % 3].add(predictions_of([probs[index]]), batch_of([index]))
    state = pickle.loads(pickle.dumps(parts[1].state()))
    assert all(isinstance(values, np.ndarray) for values in state.values())
    parts[0].merge(state)
    parts[0].merge(parts[2].state())
    metrics, whole = parts[0].compute(), evaluate(labels, probs, multi_label=multi_label, added=list(range(1, 20)))
    assert json.dumps(metrics.details()) == json.dumps(whole.details())  # texts: nan is not nan
    assert metrics.per_image == whole.per_image
    parts[0].merge(ClassificationEvaluator(records, NAMES, multi_label=multi_label).state())  # a new round
    assert parts[0].compute().top1 == 0


@pytest.mark.parametrize("multi_label", [False, True])
def test_resampled_metrics_are_those_of_the_copied_images(multi_label):
    rng = np.random.default_rng(7)
    labels = [rng.choice(6, 2 if multi_label else 1, replace=False).tolist() for _ in range(20)]
    labels[3:6] = [[]] * 3 if multi_label else labels[3:6]
    probs = random_probs(7, 20).tolist()
    added = list(range(1, 20))
    metrics = evaluate(labels, probs, multi_label=multi_label, added=added)
    weights = rng.multinomial(20, np.full(20, 1 / 20), size=4)
    resampled = metrics.resampled(weights)
    for place, row in enumerate(weights):
        copies = np.repeat(np.arange(20), row).tolist()
        expected = evaluate(
            [labels[c] for c in copies],
            [probs[c] for c in copies],
            multi_label=multi_label,
            added=[new for new, old in enumerate(copies) if old in added],
        )
        assert {name: values[place] for name, values in resampled.overall.items()} == pytest.approx(dict(expected))
        recalls = [one.recall for one in expected.per_class]
        assert resampled.per_class[place].tolist() == pytest.approx(recalls, nan_ok=True)


def test_intervals_are_of_the_images_that_have_a_label_and_hold_at_the_ends():
    labels, probs = [[0]] * 12 + [[]] * 3, [[0.9, 0.1]] * 15
    top1, top5 = evaluate(labels, probs, names=("a", "b"), multi_label=True).intervals
    assert (top1.name, top5.name) == METRIC_COLUMNS
    assert (top1.high, top1.low) == (1, pytest.approx(12 / (12 + 1.959964**2), abs=1e-6))
    assert evaluate(labels[:9], probs[:9], names=("a", "b")).intervals == ()


def test_an_image_has_the_errors_of_its_labels():
    one_each = evaluate(
        [[0], [1], [0], []], [[0.9, 0.1], [0.9, 0.1], [0.9, 0.1], [0.9, 0.1]], names=("a", "b"), added=[0, 1, 3]
    )
    counts = [(one.misses, one.false_alarms, one.wrong_classes) for one in one_each.per_image]
    assert counts == [(0, 0, 0), (0, 0, 1), (1, 0, 0), (0, 0, 0)]
    several = evaluate(
        [[0, 1], [2], []], [[0.9, 0.1, 0.9], [0.1, 0.1, 0.9], [0.9, 0.1, 0.1]], names=("a", "b", "c"), multi_label=True
    )
    counts = [(one.misses, one.false_alarms, one.wrong_classes) for one in several.per_image]
    assert counts == [(0, 0, 1), (0, 0, 0), (0, 1, 0)]


@pytest.mark.parametrize("multi_label", [False, True])
def test_the_details_are_plain_and_hold_the_table(multi_label):
    metrics = evaluate([[0], [1]] * 6, [[0.9, 0.1], [0.9, 0.1]] * 6, names=("a", "b"), multi_label=multi_label)
    details = json.loads(json.dumps(metrics.details()))
    assert details["confusion"] == (None if multi_label else [[6, 0, 0], [6, 0, 0]])
    assert [row["recall"] for row in details["per_class"]] == [1, 0]
    assert details["intervals"]["metrics/accuracy_top1"][0] < 0.5 < details["intervals"]["metrics/accuracy_top1"][1]


def test_a_round_ends_with_the_state_that_is_handed_over():
    evaluator = ClassificationEvaluator(records_of([[0], [1]]), ("a", "b"))
    evaluator.add(predictions_of([[0.9, 0.1]]), batch_of([0]))
    assert evaluator.state()["images"].tolist() == [0]
    assert evaluator.state()["images"].tolist() == []
    evaluator.add(predictions_of([[0.1, 0.9]]), batch_of([1]))
    assert evaluator.state()["images"].tolist() == [1]


def test_what_is_known_of_a_round_is_not_changed_by_the_next():
    evaluator = ClassificationEvaluator(records_of([[0], [1]]), ("a", "b"))
    evaluator.add(predictions_of([[0.9, 0.1], [0.1, 0.9]]), batch_of([0, 1]))
    first = evaluator.compute()
    evaluator.add(predictions_of([[0.1, 0.9]]), batch_of([0]))
    evaluator.compute()
    assert [one.num_errors for one in first.per_image] == [0, 0]
    assert first.scored.probs[0].tolist() == pytest.approx([0.9, 0.1])


def test_bins_of_calibration_are_open_below_and_closed_above():
    bins = reliability(np.array([0.0, 0.25, 0.26, 0.5, 1.0]), np.array([1, 0, 1, 1, 0], bool), 4)
    assert bins.counts.tolist() == [2, 2, 0, 1]
    np.testing.assert_allclose(bins.confidence, [0.125, 0.38, np.nan, 1.0])
    np.testing.assert_allclose(bins.accuracy, [0.5, 1.0, np.nan, 0.0])
