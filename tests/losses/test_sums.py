"""A loss sum: what `from_mean` makes adds up to the mean of the whole."""

import pytest
import torch

from visiontrain.losses.sums import LossSum


def test_sums_made_of_means_add_up_to_the_mean_of_all():
    values = torch.tensor([1.0, 2.0, 6.0], dtype=torch.float64)
    sums = [LossSum.from_mean(part.mean(), len(part)) for part in (values[:1], values[1:])]
    total = sum(loss.total for loss in sums) / sum(loss.normalizer for loss in sums)
    assert total.item() == pytest.approx(values.mean().item(), rel=1e-15)


def test_from_mean_keeps_the_gradient_of_the_total_and_cuts_that_of_everything_else():
    mean = torch.tensor(2.0, requires_grad=True)
    loss = LossSum.from_mean(mean, torch.tensor(3.0, requires_grad=True), half=mean / 2)
    loss.total.backward()
    assert mean.grad == 3
    assert not loss.normalizer.requires_grad
    assert not loss.parts["half"].requires_grad
    assert loss.parts["half"] == 3


def test_a_sum_has_no_floor_unless_it_declares_one():
    loss = LossSum(torch.tensor(1.0), torch.tensor(0.0))
    assert loss.floor == 0
    assert loss.scale_hint == 1


def test_a_number_may_stand_for_the_normalizer():
    total = torch.tensor(6.0, dtype=torch.float64)
    assert LossSum(total, 3).normalizer.dtype == torch.float64
    assert (total / LossSum(total, 3).normalizer).item() == 2.0
