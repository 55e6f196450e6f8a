"""The loss scale: a window ends with one verdict on it, or none."""

import pytest
import torch
from torch import nn
from torch.optim import SGD

from visiontrain.engine.loss_scale import Scaled, Unscaled, loss_scale_of


def optimizer_with_gradient(value):
    param = nn.Parameter(torch.zeros(1))
    param.grad = torch.full((1,), value)
    return SGD([param], lr=0.1)


def test_a_scaler_that_is_missing_or_disabled_gives_the_twin_that_changes_nothing():
    assert isinstance(loss_scale_of(torch.amp.GradScaler("cpu")), Scaled)
    for scaler in (None, torch.amp.GradScaler("cpu", enabled=False)):
        twin = loss_scale_of(scaler)
        assert isinstance(twin, Unscaled)
        assert twin.value is None
        total = torch.ones(())
        assert twin.scale(total) is total


@pytest.mark.parametrize(("may_change", "expected"), [(True, 512.0), (False, 1024.0)])
def test_an_overflow_halves_the_scale_only_where_it_says_something_about_it(may_change, expected):
    scale = Scaled(torch.amp.GradScaler("cpu", init_scale=1024.0))
    for _ in range(2):  # the second window can be unscaled, too
        optimizer = optimizer_with_gradient(float("inf"))
        scale.scale(torch.ones(()))
        scale.unscale_(optimizer)
        scale.close(may_change=may_change)
        assert scale.value == expected
        expected = expected / 2 if may_change else expected


def test_a_window_without_gradients_may_be_closed():
    scale = Scaled(torch.amp.GradScaler("cpu", init_scale=1024.0))
    scale.close(may_change=True)
    assert scale.value == 1024.0
