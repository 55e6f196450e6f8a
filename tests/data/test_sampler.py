from __future__ import annotations

import pickle

import numpy as np
import pytest

from visiontrain.data.multi_scale import WindowSizes
from visiontrain.data.sampler import KEPT_EPOCHS, Sampler, epoch_permutation, generator_of
from visiontrain.plan import Part, plan_run
from visiontrain.sample import SampleKey


@pytest.mark.parametrize("tail", ["flush", "spread", "carry"])
def test_every_image_comes_exactly_once_in_every_epoch(tail):
    plan = plan_run(num_images=37, batch=4, nbs=16, epochs=3, warmup_epochs=1, tail=tail)
    keys = [key for micro_batch in Sampler(37, seed=1).micro_batches(plan) for key in micro_batch]
    for epoch in range(3):
        assert sorted(key.index for key in keys if key.epoch == epoch) == list(range(37))
        assert [key.place for key in keys if key.epoch == epoch] == list(range(37))


def test_the_order_of_images_does_not_depend_on_the_batch():
    runs = [plan_run(num_images=37, batch=batch, nbs=16, epochs=2) for batch in (1, 4, 16)]
    orders = [[key for micro_batch in Sampler(37, seed=1).micro_batches(run) for key in micro_batch] for run in runs]
    assert orders[0] == orders[1] == orders[2]


def test_keys_from_a_later_window_on_are_the_rest_of_the_run():
    plan = plan_run(num_images=37, batch=4, nbs=16, epochs=3, warmup_epochs=1)
    whole = list(Sampler(37, seed=1).micro_batches(plan))
    windows = [window for epoch in range(3) for window in plan.windows(epoch)]
    for first in (1, 3, len(windows) - 1):
        before = sum(len(window.sizes) for window in windows[:first])
        assert list(Sampler(37, seed=1).micro_batches(plan, first_window=first)) == whole[before:]


@pytest.mark.parametrize("most", [None, 4, 3])
@pytest.mark.parametrize("processes", [1, 2, 3, 5])
def test_the_keys_of_all_processes_are_those_of_one(processes, most):
    plan = plan_run(num_images=37, batch=4, nbs=16, epochs=2, warmup_epochs=1)
    sizes = WindowSizes(64, 32, seed=1)
    alone = [key for micro_batch in Sampler(37, seed=1, sizes=sizes).micro_batches(plan) for key in micro_batch]
    shares = [
        list(Sampler(37, seed=1, sizes=sizes).micro_batches(plan, part=Part(process, processes, most)))
        for process in range(processes)
    ]
    together = [key for parts in zip(*shares, strict=True) for part in parts for key in part]
    assert together == alone


def test_a_process_goes_on_at_a_later_window_with_the_rest_of_its_own():
    plan = plan_run(num_images=37, batch=4, nbs=16, epochs=2)
    part = Part(1, 3)
    whole = list(Sampler(37, seed=1).micro_batches(plan, part=part))
    before = sum(len(window.sizes) for window in plan.windows(0))
    first = plan.first_window[1]
    assert list(Sampler(37, seed=1).micro_batches(plan, first_window=first, part=part)) == whole[before:]


def test_permutations_differ_by_epoch_and_seed_and_are_the_same_every_time():
    first = epoch_permutation(100, 0, 0)
    assert not np.array_equal(first, epoch_permutation(100, 0, 1))
    assert not np.array_equal(first, epoch_permutation(100, 1, 0))
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
        partners = Sampler(2000, seed=5).partners(key, np.random.default_rng(0), 20_000)
        distance = (place_of[partners] - place + 1000) % 2000 - 1000
        assert set(distance.tolist()) == set(range(-128, 129)) - {0}


def test_partners_come_from_the_whole_of_a_small_set():
    key = SampleKey(0, 3, int(epoch_permutation(300, 5, 0)[3]))
    partners = Sampler(300, seed=5).partners(key, np.random.default_rng(0), 20_000)
    assert set(partners) == set(range(300)) - {key.index}


def test_a_single_image_is_its_own_partner():
    assert Sampler(1, seed=0).partners(SampleKey(0, 0, 0), np.random.default_rng(0), 3) == [0, 0, 0]


def test_weighted_images_repeat_under_keys_of_their_own_and_the_epoch_stays_as_long():
    weights = np.array([4.0, 1, 1, 1, 1])
    sampler = Sampler(5, seed=3, weights=weights)
    plan = plan_run(num_images=5, batch=2, nbs=4, epochs=2, tail="carry")
    keys = [key for micro_batch in sampler.micro_batches(plan) for key in micro_batch]
    assert len(set(keys)) == len(keys) == 10
    for epoch in range(2):
        occurrences = [key.occurrence for key in keys if key.epoch == epoch and key.index == 0]
        assert occurrences == list(range(len(occurrences)))
        assert len(occurrences) in (2, 3)  # 5 · 4 / 8
    assert not np.array_equal(sampler.order(0), sampler.order(1))


@pytest.mark.parametrize("weights", [None, np.linspace(1, 3, 300)], ids=["uniform", "weighted"])
def test_a_sampler_keeps_few_orders_and_is_the_same_after_the_way_to_a_worker(weights):
    sampler = Sampler(300, seed=3, weights=weights)
    orders = [sampler.order(epoch) for epoch in range(9)]
    assert len(sampler._orders) == KEPT_EPOCHS
    assert not any(order.flags.writeable for order in orders)
    again = pickle.loads(pickle.dumps(sampler))
    assert len(pickle.dumps(sampler)) < 4000
    assert all(np.array_equal(again.order(epoch), order) for epoch, order in enumerate(orders))


def test_weights_of_other_images_are_not_taken():
    with pytest.raises(AssertionError, match="one weight for each image"):
        Sampler(5, seed=3, weights=np.ones(4))


def test_partners_of_weighted_images_stand_near_them_in_their_own_order():
    sampler = Sampler(2000, seed=5, weights=np.linspace(1, 9, 2000))
    order = sampler.order(1)
    partners = sampler.partners(sampler.key(2000 + 1000), np.random.default_rng(0), 5000)
    assert set(partners) == set(order[1000 - 128 : 1000 + 129].tolist()) - {order[1000]} | (
        {order[1000]} & set(np.delete(order[1000 - 128 : 1000 + 129], 128).tolist())
    )


def test_all_images_of_a_window_have_its_size_whatever_the_batch():
    sizes = WindowSizes(64, 32, seed=1)
    sampler = Sampler(37, seed=1, sizes=sizes)
    seen = []
    for batch in (1, 4, 8):
        plan = plan_run(num_images=37, batch=batch, nbs=8, epochs=4, warmup_epochs=0)
        seen.append([key.size for micro_batch in sampler.micro_batches(plan) for key in micro_batch])
        for window in plan.all_windows():
            assert {key.size for key in sampler.keys(window)} == {sizes.of(window)}
    assert seen[0] == seen[1] == seen[2]
    assert set(seen[0]) == set(sizes.all)
