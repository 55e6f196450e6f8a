"""The plan's laws: every image once an epoch, windows first and in images, the ramp, the tail, and what is refused."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from visiontrain.errors import ConfigError
from visiontrain.plan import ALL, TAILS, Part, accumulate_of, cut_evenly, plan_run, plan_windows

runs = st.fixed_dictionaries(
    {
        "num_images": st.integers(1, 400),
        "batch": st.integers(1, 40),
        "nbs": st.integers(1, 200),
        "epochs": st.integers(1, 6),
        "warmup_epochs": st.floats(0, 5) | st.integers(0, 4),
        "tail": st.sampled_from(TAILS),
    }
)
many = settings(max_examples=500)


def windows_of(plan):
    return [window for epoch in range(plan.epochs) for window in plan.windows(epoch)]


def full_at(plan, x):
    """Images that a window opening at image x should hold: rule 3, written down once more."""
    accumulate = max(1, round(plan.nbs / plan.batch))
    warmup = plan.warmup_images
    if x < warmup:
        return max(1, round(1 + (accumulate - 1) * x / warmup)) * plan.batch
    return accumulate * plan.batch


@many
@given(runs)
def test_every_image_is_in_exactly_one_micro_batch_of_each_epoch(run):
    plan = plan_run(**run)
    positions = [
        position
        for window in windows_of(plan)
        for batch in window.micro_batches
        for position in range(batch.start, batch.start + batch.size)
    ]
    assert positions == list(range(plan.num_images * plan.epochs))


@many
@given(runs)
def test_micro_batches_of_a_window_are_as_few_and_as_equal_as_can_be(run):
    for window in windows_of(plan_run(**run)):
        assert max(window.sizes) - min(window.sizes) <= 1
        assert 1 <= min(window.sizes) <= max(window.sizes) <= run["batch"]
        assert len(window.sizes) == -(-window.size // run["batch"])
        assert [batch.is_last for batch in window.micro_batches] == [False] * (len(window.sizes) - 1) + [True]


@many
@given(runs)
def test_windows_follow_the_ramp_and_are_larger_only_where_a_short_tail_joined(run):
    plan = plan_run(**run)
    n = plan.num_images
    for window in windows_of(plan):
        is_spread = plan.tail == "spread" and window.epoch * n >= plan.warmup_images
        if is_spread:
            continue  # has a law of its own
        end = plan.total_images if plan.tail == "carry" else (window.epoch + 1) * n
        full = full_at(plan, window.start)
        if window.stop < end:
            assert window.size == full
        else:
            assert window.size - full < max(2, plan.nbs / 8)


@many
@given(runs)
def test_a_window_never_holds_fewer_images_than_the_shortest_tail_unless_it_is_alone_or_full(run):
    plan = plan_run(**run | {"tail": "flush"})
    for epoch in range(plan.epochs):
        *before, last = plan.windows(epoch)
        if before and last.size < full_at(plan, last.start):
            assert last.size >= max(2, plan.nbs / 8)


@many
@given(runs)
def test_windows_are_numbered_and_follow_one_another_without_a_gap(run):
    plan = plan_run(**run)
    windows = windows_of(plan)
    assert [window.index for window in windows] == list(range(plan.num_updates))
    assert windows[0].start == 0
    assert windows[-1].stop == plan.total_images
    assert all(before.stop == after.start for before, after in pairwise(windows))
    assert all(window.epoch == window.start // plan.num_images for window in windows)


@many
@given(runs)
def test_every_epoch_is_closed_by_exactly_the_window_that_holds_its_last_image(run):
    plan = plan_run(**run)
    closed = 0
    for window in windows_of(plan):
        ends = [e for e in range(plan.epochs) if window.start < (e + 1) * plan.num_images <= window.stop]
        closed += len(ends)
        assert plan.epochs_within(window.stop) == closed
    assert closed == plan.epochs


@settings(max_examples=50)
@given(runs)
def test_every_window_is_found_by_the_image_it_begins_with_and_no_other_image_finds_one(run):
    plan = plan_run(**run)
    starts = {window.start: window.index for window in windows_of(plan)}
    assert {image: plan.window_at(image) for image in range(plan.total_images)} == {
        image: starts.get(image) for image in range(plan.total_images)
    }


@given(runs, st.data())
def test_without_a_ramp_windows_are_the_same_for_every_batch_that_divides_nbs(run, data):
    divisors = [batch for batch in range(1, run["nbs"] + 1) if run["nbs"] % batch == 0]
    first, second = (data.draw(st.sampled_from(divisors)) for _ in range(2))
    run = run | {"warmup_epochs": 0}
    one, other = plan_run(**run | {"batch": first}), plan_run(**run | {"batch": second})
    assert one.window_sizes == other.window_sizes


@given(runs)
def test_spread_makes_windows_of_near_equal_size_in_epochs_that_the_ramp_does_not_touch(run):
    plan = plan_run(**run | {"tail": "spread"})
    n, full = plan.num_images, plan.batch * plan.accumulate
    for epoch in range(plan.epochs):
        if epoch * n < plan.warmup_images:
            continue
        sizes = plan.window_sizes[epoch]
        assert len(sizes) == max(1, round(n / full))
        assert max(sizes) - min(sizes) <= 1


@given(runs)
def test_flush_and_spread_never_let_a_window_cross_an_epoch(run):
    for tail in ("flush", "spread"):
        plan = plan_run(**run | {"tail": tail})
        assert all(sum(sizes) == plan.num_images for sizes in plan.window_sizes)


@given(runs)
def test_carry_makes_only_the_last_window_of_the_run_short(run):
    plan = plan_run(**run | {"tail": "carry", "warmup_epochs": 0})
    assert all(window.size == plan.full_window for window in windows_of(plan)[:-1])


@pytest.mark.parametrize(
    ("batch", "nbs", "expected"),
    [(8, 64, 8), (64, 8, 1), (1, 1, 1), (16, 40, 2), (16, 56, 4), (48, 64, 1), (128, 64, 1), (200, 64, 1)],
)
def test_accumulate_is_the_ratio_rounded_to_the_even_number_at_a_half_and_at_least_one(batch, nbs, expected):
    assert accumulate_of(batch, nbs) == expected


def test_the_last_images_of_an_epoch_make_a_window_of_their_own():
    plan = plan_run(num_images=20, batch=2, nbs=8, epochs=3)
    assert plan.window_sizes == ((8, 8, 4),) * 3
    assert plan.num_updates == 9


def test_a_tail_of_few_images_joins_the_window_before():
    plan = plan_run(num_images=65 + 64, batch=8, nbs=64)
    assert plan.window_sizes == ((64, 65),)
    assert [window.sizes for window in plan.windows(0)] == [(8,) * 8, (8, 8, *(7,) * 7)]


@pytest.mark.parametrize(("rest", "sizes"), [(7, (64, 71)), (8, (64, 64, 8))])
def test_a_tail_joins_when_it_has_fewer_images_than_an_eighth_of_nbs(rest, sizes):
    assert plan_run(num_images=128 + rest, batch=8, nbs=64).window_sizes == (sizes,)


def test_windows_of_one_image_stay_where_that_is_a_full_window():
    assert plan_run(num_images=3, batch=1, nbs=1).window_sizes == ((1, 1, 1),)


def test_an_epoch_shorter_than_a_window_still_has_an_update():
    plan = plan_run(num_images=3, batch=1, nbs=64, epochs=2)
    assert plan.window_sizes == ((3,), (3,))
    assert [window.sizes for window in plan.windows(0)] == [(1, 1, 1)]


def test_a_window_keeps_the_size_that_the_ramp_gives_where_it_opens():
    plan = plan_run(num_images=40, batch=1, nbs=16, epochs=2, warmup_epochs=1)
    assert plan.warmup_images == 40
    x, sizes = 0, []
    while x < 40:
        sizes.append(min(max(1, round(1 + 15 * x / 40)), 40 - x))
        x += sizes[-1]
    assert plan.window_sizes[0] == tuple(sizes)
    assert plan.window_sizes[0][0] == 1
    assert plan.window_sizes[1] == (16, 16, 8)


@pytest.mark.parametrize(
    ("epochs", "warmup_epochs", "images"),
    [(10, 3, 12), (10, 0, 0), (1, 3, 0), (2, 3, 4), (10, 0.3, 1), (10, 0.1, 0), (10, 1e308, 36)],
)
def test_warmup_lasts_as_asked_but_never_through_the_last_epoch(epochs, warmup_epochs, images):
    plan = plan_run(num_images=4, batch=2, nbs=2, epochs=epochs, warmup_epochs=warmup_epochs)
    assert plan.warmup_images == images


@pytest.mark.parametrize(("batch", "factor"), [(8, 1.0), (64, 1.0), (48, 0.75), (128, 2.0)])
def test_weight_decay_follows_the_images_of_a_full_window(batch, factor):
    assert plan_run(num_images=200, batch=batch, nbs=64).weight_decay_factor == factor


def test_with_carry_a_window_may_close_several_epochs():
    plan = plan_run(num_images=3, batch=2, nbs=8, epochs=5, tail="carry")
    assert plan.window_sizes == ((8,), (), (7,), (), ())
    assert [plan.epochs_within(window.stop) for window in windows_of(plan)] == [2, 5]
    assert plan.first_window == (0, 1, 1, 2, 2, 2)
    assert plan.first_image == (0, 8, 8, 15, 15, 15)


def test_a_window_that_ends_with_its_epoch_closes_it_and_no_other():
    plan = plan_run(num_images=4, batch=2, nbs=4, epochs=2)
    assert [plan.epochs_within(window.stop) for window in windows_of(plan)] == [1, 2]


@given(runs)
def test_plan_windows_walks_the_same_windows(run):
    assert list(plan_windows(**run)) == windows_of(plan_run(**run))


@given(st.integers(1, 500), st.integers(1, 40))
def test_parts_of_an_even_cut_differ_by_at_most_one_and_larger_ones_come_first(size, parts):
    sizes = cut_evenly(size, parts)
    assert sum(sizes) == size
    assert len(sizes) == parts
    assert max(sizes) - min(sizes) <= 1
    assert list(sizes) == sorted(sizes, reverse=True)


@pytest.mark.parametrize("value", [0, -1, True, 64.5, float("inf"), None, "8"])
@pytest.mark.parametrize("name", ["num_images", "batch", "nbs", "epochs"])
def test_a_count_that_is_no_positive_integer_is_refused_by_name(name, value):
    with pytest.raises(ConfigError, match=rf"^{name} = .* is not a positive integer; it is the"):
        plan_run(**{"num_images": 10, "batch": 2, "nbs": 4, name: value})


@pytest.mark.parametrize("value", [-0.1, float("inf"), float("nan"), "3", None, True])
def test_a_warmup_that_is_no_finite_number_is_refused(value):
    with pytest.raises(ConfigError, match=r"warmup_epochs = .* is not a finite number from 0 up; 0 means no warmup"):
        plan_run(num_images=10, batch=2, nbs=4, warmup_epochs=value)


def test_an_unknown_tail_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match="tail = 'drop' is unknown; choose one of flush, spread, carry"):
        plan_run(num_images=10, batch=2, nbs=4, tail="drop")


def test_all_faults_are_told_at_once_and_before_the_first_window_is_asked_for():
    with pytest.raises(ConfigError) as caught:
        plan_windows(num_images=0, batch=-1, nbs=0, epochs=0, warmup_epochs=-1, tail="drop")
    assert [fault.split()[0] for fault in caught.value.faults] == [
        *("num_images", "batch", "nbs", "epochs", "warmup_epochs", "tail")
    ]


groups = st.integers(1, 6)
"""Numbers of processes."""


def parts_of(window, processes, most=None):
    """For each micro-batch what every process takes of it."""
    shares = [Part(process, processes, most).of(window) for process in range(processes)]
    return list(zip(*shares, strict=True))


@given(runs, groups, st.none() | st.integers(1, 40))
def test_the_parts_of_all_processes_are_the_images_of_the_window_once_each(run, processes, most):
    for window in plan_run(**run).windows(0):
        images = [
            image
            for micro_batch in parts_of(window, processes, most)
            for part in micro_batch
            for image in range(part.start, part.start + part.size)
        ]
        assert images == list(range(window.start, window.stop))


@given(runs, groups, st.none() | st.integers(1, 40))
def test_parts_of_a_micro_batch_differ_by_at_most_one_image_and_end_the_window_together(run, processes, most):
    for window in plan_run(**run).windows(0):
        micro_batches = parts_of(window, processes, most)
        for parts in micro_batches:
            assert max(part.size for part in parts) - min(part.size for part in parts) <= 1
        ends = [{part.is_last for part in parts} for parts in micro_batches]
        assert ends == [{False}] * (len(micro_batches) - 1) + [{True}]


@given(runs, groups)
def test_processes_share_the_micro_batches_that_were_planned(run, processes):
    for window in plan_run(**run).windows(0):
        shared = [sum(part.size for part in parts) for parts in parts_of(window, processes)]
        assert tuple(shared) == window.sizes
        assert ALL.of(window) == window.micro_batches


@given(runs, groups, st.integers(1, 40))
def test_a_window_is_cut_into_more_micro_batches_where_fewer_images_fit(run, processes, most):
    for window in plan_run(**run).windows(0):
        shared = [sum(part.size for part in parts) for parts in parts_of(window, processes, most)]
        assert max(shared) <= most
        if most >= max(window.sizes):
            assert tuple(shared) == window.sizes
        else:
            assert len(shared) == sum(-(-size // most) for size in window.sizes)


def test_where_there_are_fewer_images_than_processes_some_take_part_with_none():
    (window,) = plan_run(num_images=5, batch=3, nbs=5).windows(0)
    assert window.sizes == (3, 2)
    taken = [[(part.start, part.size) for part in Part(process, 4).of(window)] for process in range(4)]
    assert taken == [[(0, 1), (3, 1)], [(1, 1), (4, 1)], [(2, 1), (5, 0)], [(3, 0), (5, 0)]]


@given(runs, groups)
def test_the_smallest_share_is_the_least_that_a_process_with_images_has_of_a_micro_batch(run, processes):
    plan = plan_run(**run)
    sizes = {
        size for window in windows_of(plan) for parts in parts_of(window, processes) for size in {p.size for p in parts}
    }
    assert plan.smallest_share(processes) == min(sizes - {0})
