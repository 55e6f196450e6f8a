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


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_number_is_kept_exactly_whatever_precision_the_loss_is_in(dtype):
    assert LossSum(torch.zeros((), dtype=dtype), 262_145).normalizer.item() == 262_145
    assert LossSum.from_mean(torch.ones((), dtype=dtype), 262_145).total.item() == 262_145


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((3.0, 4), TypeError, "total is 3.0; it should be the loss's sum, one number"),
        ((torch.ones(3), 4), TypeError, r"total is of shape \(3,\); .* use reduction='sum'"),
        ((torch.ones(()), "4"), TypeError, "normalizer is '4'; it should be a number"),
        ((torch.ones(()), -1.0), ValueError, "normalizer = -1.0 is negative"),
        ((torch.ones(()), 1.0, torch.ones(())), TypeError, "parts is a Tensor; it should be a mapping"),
    ],
)
def test_what_is_no_sum_is_refused_where_it_is_made(arguments, error, text):
    with pytest.raises(error, match=text):
        LossSum(*arguments)


def test_a_sum_has_no_floor_unless_it_declares_one():
    loss = LossSum(torch.tensor(1.0), torch.tensor(0.0))
    assert loss.floor == 0
    assert loss.scale_hint == 1


def test_a_number_may_stand_for_the_normalizer():
    total = torch.tensor(6.0, dtype=torch.float64)
    assert LossSum(total, 3).normalizer.dtype == torch.float64
    assert (total / LossSum(total, 3).normalizer).item() == 2.0
