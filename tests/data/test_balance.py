from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from visiontrain.data.balance import drawn_order, image_weights, occurrences_of
from visiontrain.sample import Record, Records


def records_of(*labels):
    return Records(
        [
            Record(Path(f"{place}.png"), 9, 9, np.zeros((len(one), 4), np.float32), np.array(one, np.int64))
            for place, one in enumerate(labels)
        ]
    )


def test_with_power_one_and_single_labels_all_classes_weigh_the_same():
    records = records_of(*[[0]] * 12, *[[1]] * 3, [2])
    weights = image_weights(records, power=1.0)
    totals = [weights[[record.classes[0] == label for record in records]].sum() for label in range(3)]
    np.testing.assert_allclose(totals, totals[0])


def test_an_image_weighs_as_its_rarest_class_and_background_as_the_most_frequent():
    records = records_of([0], [0], [0, 0], [0, 2, 2], [])
    np.testing.assert_allclose(image_weights(records, power=0.5), [1, 1, 1, 2, 1])
    np.testing.assert_array_equal(image_weights(records, power=0.0), np.ones(5))


def test_a_set_without_labels_is_seen_evenly():
    np.testing.assert_array_equal(image_weights(records_of([], []), power=1.0), [1, 1])


@pytest.mark.parametrize("seed", range(5))
def test_every_image_comes_as_often_as_its_weight_says_to_less_than_one(seed):
    weights = np.random.default_rng(seed).uniform(1, 20, 400)
    counts = np.bincount(drawn_order(weights, seed, 7), minlength=400)
    expected = weights / weights.sum() * 400
    assert counts.sum() == 400
    assert np.abs(counts - expected).max() < 1


def test_over_many_epochs_the_counts_follow_the_weights():
    weights = np.array([1.0, 2, 3, 4] * 5)
    counts = sum(np.bincount(drawn_order(weights, 0, epoch), minlength=20) for epoch in range(800))
    np.testing.assert_allclose(counts / counts.sum(), weights / weights.sum(), rtol=0.06)


def test_which_image_is_left_out_of_an_epoch_does_not_hang_on_its_neighbor():
    counts = [np.bincount(drawn_order(np.array([1.0, 1, 3, 3]), 0, epoch), minlength=4) for epoch in range(60)]
    assert {int(count[:2].sum()) for count in counts} == {0, 1, 2}  # each comes in every second epoch


def test_the_times_that_an_image_comes_are_spread_over_the_epoch():
    order = drawn_order(np.array([30.0] + [1.0] * 60), 0, 0)
    places = np.flatnonzero(order == 0)
    assert len(places) > 15
    assert np.ptp(places) > 45


def test_the_order_is_a_function_of_seed_and_epoch():
    weights = np.linspace(1, 3, 50)
    assert np.array_equal(drawn_order(weights, 1, 2), drawn_order(weights, 1, 2))
    assert not np.array_equal(drawn_order(weights, 1, 2), drawn_order(weights, 2, 2))
    assert not np.array_equal(drawn_order(weights, 1, 2), drawn_order(weights, 1, 3))


def test_occurrences_count_up_in_the_order_of_places():
    order = np.random.default_rng(0).integers(0, 9, 60)
    seen: Counter[int] = Counter()
    for index, occurrence in zip(order.tolist(), occurrences_of(order).tolist(), strict=True):
        assert occurrence == seen[index]
        seen[index] += 1
