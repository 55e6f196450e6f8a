"""The schedule: a pure function of the images up to a window's end."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.optim import SGD, AdamW

from visiontrain.engine.optimizer import Part, parameter_groups
from visiontrain.engine.schedule import Schedule, lr_factor
from visiontrain.plan import TAILS, plan_run


def schedule_of(plan, **keys):
    values = {"lr0": 0.01, "lrf": 0.1, "momentum": 0.937, "warmup_momentum": 0.8, "warmup_bias_lr": 0.0}
    return Schedule(
        **values | {"is_cosine": False} | keys, warmup_images=plan.warmup_images, total_images=plan.total_images
    )


def rates_of(plan, **keys):
    schedule = schedule_of(plan, **keys)
    return [schedule.at(window.stop) for epoch in range(plan.epochs) for window in plan.windows(epoch)]


plans = st.builds(
    plan_run,
    num_images=st.integers(1, 200),
    batch=st.integers(1, 16),
    nbs=st.integers(1, 64),
    epochs=st.integers(1, 5),
    warmup_epochs=st.floats(0, 5),
    tail=st.sampled_from(TAILS),
)


@given(plans, st.booleans())
def test_the_first_rate_is_never_zero_and_the_last_is_exactly_the_final_one(plan, is_cosine):
    rates = rates_of(plan, is_cosine=is_cosine)
    assert rates[0].lr > 0
    assert rates[-1].lr == 0.01 * 0.1
    assert rates[-1].momentum == 0.937


@given(plans, st.booleans())
def test_no_rate_exceeds_the_one_that_was_asked_for(plan, is_cosine):
    for rates in rates_of(plan, is_cosine=is_cosine):
        assert 0 < rates.lr <= 0.01
        assert rates.bias_lr == rates.lr  # with warmup_bias_lr 0


@pytest.mark.parametrize("is_cosine", [False, True])
def test_the_rate_at_an_image_does_not_depend_on_the_window(is_cosine):
    by_end = {}
    for nbs in (8, 16, 64):
        plan = plan_run(num_images=64, batch=8, nbs=nbs, epochs=4, warmup_epochs=1)
        schedule = schedule_of(plan, is_cosine=is_cosine)
        for epoch in range(4):
            for window in plan.windows(epoch):
                assert by_end.setdefault(window.stop, schedule.at(window.stop)) == schedule.at(window.stop)


def test_a_line_and_half_a_cosine_pass_their_middle_at_half_time():
    plan = plan_run(num_images=100, batch=1, nbs=1, epochs=2)
    for is_cosine in (False, True):
        assert schedule_of(plan, is_cosine=is_cosine).at(100).lr == pytest.approx(0.01 * (0.1 + 0.9 / 2))
    quarter = (1 + math.cos(math.pi / 4)) / 2
    assert schedule_of(plan, is_cosine=True).at(50).lr == pytest.approx(0.01 * (0.1 + 0.9 * quarter))


def test_warmup_rises_in_proportion_to_the_images():
    plan = plan_run(num_images=100, batch=1, nbs=1, epochs=10, warmup_epochs=2)
    schedule = schedule_of(plan, lrf=1.0, warmup_bias_lr=0.1)
    assert [schedule.at(x).lr for x in (50, 100, 200, 300)] == pytest.approx([0.0025, 0.005, 0.01, 0.01])
    assert [schedule.at(x).momentum for x in (50, 100, 200, 300)] == pytest.approx([0.83425, 0.8685, 0.937, 0.937])
    assert [schedule.at(x).bias_lr for x in (50, 100, 200, 300)] == pytest.approx([0.0775, 0.055, 0.01, 0.01])


def test_without_warmup_the_rates_are_the_nominal_ones_from_the_start():
    plan = plan_run(num_images=100, batch=1, nbs=1, epochs=10, warmup_epochs=0)
    rates = schedule_of(plan, warmup_bias_lr=0.1).at(1)
    assert rates.momentum == 0.937
    assert rates.lr == rates.bias_lr == pytest.approx(0.01, rel=1e-2)


def network():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2))


@pytest.mark.parametrize("shift", range(3))
def test_groups_get_their_rates_by_name_whatever_their_order(shift):
    groups = parameter_groups(network(), weight_decay=0.1)
    groups = groups[shift:] + groups[:shift]
    optimizer = SGD(groups, lr=1.0, momentum=0.5)
    plan = plan_run(num_images=100, batch=10, nbs=10, epochs=10, warmup_epochs=2)
    schedule = schedule_of(plan, warmup_bias_lr=0.1)
    windows = list(plan.windows(0)) + list(plan.windows(5))
    for window in (windows[0], windows[-1]):
        rates = schedule.apply(optimizer, window)
        assert rates == schedule.at(window.stop)
        for group in optimizer.param_groups:
            assert group["lr"] == (rates.bias_lr if group["name"] == "biases" else rates.lr)
            assert group["momentum"] == rates.momentum
    assert {group["lr"] for group in optimizer.param_groups} == {rates.lr}  # after warmup all are equal


def test_adam_takes_the_momentum_as_its_first_beta():
    optimizer = AdamW(parameter_groups(network(), weight_decay=0.1), lr=1.0, betas=(0.5, 0.99))
    plan = plan_run(num_images=100, batch=10, nbs=10, epochs=10, warmup_epochs=2)
    rates = schedule_of(plan).apply(optimizer, next(plan.windows(0)))
    assert {group["betas"] for group in optimizer.param_groups} == {(rates.momentum, 0.99)}


@pytest.mark.parametrize(("scaling", "factor"), [("none", 1.0), ("linear", 4.0), ("sqrt", 2.0)])
def test_lr_scaling_is_a_function_of_the_images_in_a_full_window(scaling, factor):
    assert lr_factor(plan_run(num_images=1000, batch=256, nbs=64), scaling) == factor
    assert lr_factor(plan_run(num_images=1000, batch=8, nbs=64), scaling) == 1.0


def test_a_rate_set_by_the_schedule_is_the_one_the_optimizer_uses():
    param = nn.Parameter(torch.zeros(()))
    optimizer = SGD([{"name": "weights", "params": [param]}], lr=99.0)
    plan = plan_run(num_images=8, batch=8, nbs=8)
    rates = schedule_of(plan).apply(optimizer, next(plan.windows(0)))
    param.grad = torch.ones(())
    optimizer.step()
    assert param.item() == pytest.approx(-rates.lr)


def test_a_part_gets_its_fraction_of_the_rates_and_the_reported_ones_stay_whole():
    parts = {name: Part("trunk", 0.5) for name, _ in network().named_parameters() if not name.startswith("3.")}
    optimizer = SGD(parameter_groups(network(), weight_decay=0.1, parts=parts), lr=1.0, momentum=0.5)
    plan = plan_run(num_images=100, batch=10, nbs=10, epochs=10, warmup_epochs=2)
    schedule = schedule_of(plan, warmup_bias_lr=0.1)
    rates = schedule.apply(optimizer, next(plan.windows(0)))
    assert rates == schedule.at(10)
    assert {group["name"]: group["lr"] for group in optimizer.param_groups} == {
        "trunk/weights": rates.lr * 0.5,
        "trunk/norms": rates.lr * 0.5,
        "trunk/biases": rates.bias_lr * 0.5,
        "weights": rates.lr,
        "biases": rates.bias_lr,
    }
