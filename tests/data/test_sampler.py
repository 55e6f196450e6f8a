from __future__ import annotations

import numpy as np
import pytest

from visiontrain.data.sampler import epoch_permutation, generator_of, keys_of, partners_of
from visiontrain.plan import plan_run
from visiontrain.sample import SampleKey


@pytest.mark.parametrize("tail", ["flush", "spread", "carry"])
def test_every_image_comes_exactly_once_in_every_epoch(tail):
    plan = plan_run(num_images=37, batch=4, nbs=16, epochs=3, warmup_epochs=1, tail=tail)
    keys = [key for micro_batch in keys_of(plan, seed=1) for key in micro_batch]
    for epoch in range(3):
        assert sorted(key.index for key in keys if key.epoch == epoch) == list(range(37))
        assert [key.place for key in keys if key.epoch == epoch] == list(range(37))


def test_the_order_of_images_does_not_depend_on_the_batch():
    runs = [plan_run(num_images=37, batch=batch, nbs=16, epochs=2) for batch in (1, 4, 16)]
    orders = [[key for micro_batch in keys_of(run, seed=1) for key in micro_batch] for run in runs]
    assert orders[0] == orders[1] == orders[2]


def test_keys_from_a_later_window_on_are_the_rest_of_the_run():
    plan = plan_run(num_images=37, batch=4, nbs=16, epochs=3, warmup_epochs=1)
    whole = list(keys_of(plan, seed=1))
    windows = [window for epoch in range(3) for window in plan.windows(epoch)]
    for first in (1, 3, len(windows) - 1):
        before = sum(len(window.sizes) for window in windows[:first])
        assert list(keys_of(plan, seed=1, first_window=first)) == whole[before:]


def test_permutations_differ_by_epoch_and_seed_and_are_the_same_every_time():
    first = epoch_permutation(100, 0, 0)
    assert not np.array_equal(first, epoch_permutation(100, 0, 1))
    assert not np.array_equal(first, epoch_permutation(100, 1, 0))
    epoch_permutation.cache_clear()
    assert np.array_equal(first, epoch_permutation(100, 0, 0))


def test_the_generator_of_a_sample_knows_nothing_of_its_place():
    draws = {generator_of(3, SampleKey(1, place, 7)).integers(1 << 60) for place in (0, 5, 90)}
    assert len(draws) == 1
    others = [SampleKey(2, 0, 7), SampleKey(1, 0, 8), SampleKey(1, 0, 7, occurrence=1)]
    assert draws.isdisjoint(generator_of(3, key).integers(1 << 60) for key in others)
    assert draws.isdisjoint([generator_of(4, SampleKey(1, 0, 7)).integers(1 << 60)])


def test_partners_stand_within_reach_in_the_permutation_and_are_never_the_image_itself():
    order = epoch_permutation(2000, 5, 3)
    place_of = np.argsort(order)
    for place in (0, 1000, 1999):
        key = SampleKey(3, place, int(order[place]))
        partners = partners_of(key, np.random.default_rng(0), 20_000, num_images=2000, seed=5)
        distance = (place_of[partners] - place + 1000) % 2000 - 1000
        assert set(distance.tolist()) == set(range(-128, 129)) - {0}


def test_partners_come_from_the_whole_of_a_small_set():
    key = SampleKey(0, 3, int(epoch_permutation(300, 5, 0)[3]))
    partners = partners_of(key, np.random.default_rng(0), 20_000, num_images=300, seed=5)
    assert set(partners) == set(range(300)) - {key.index}


def test_a_single_image_is_its_own_partner():
    assert partners_of(SampleKey(0, 0, 0), np.random.default_rng(0), 3, num_images=1, seed=0) == [0, 0, 0]
