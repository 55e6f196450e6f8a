"""Gradients are exchanged in a window's last micro-batch, all of them, or the window is not applied."""

from __future__ import annotations

import pytest
import torch
import torch.distributed
from torch import nn
from torch.distributed import HashStore  # type: ignore[attr-defined]
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD

from visiontrain.engine.exchange import Exchange
from visiontrain.engine.window import GradientWindow
from visiontrain.losses.sums import LossSum


@pytest.fixture(autouse=True)
def _group_of_one():
    """A process group that DistributedDataParallel takes for one of several."""
    torch.distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


class Branches(nn.Module):
    """A trunk, and heads of which a forward pass takes those that are named."""

    def __init__(self, count=2):
        super().__init__()
        torch.manual_seed(0)
        self.trunk = nn.Linear(4, 3, bias=False)
        self.heads = nn.ModuleList(nn.Linear(3, 1, bias=False) for _ in range(count))

    def forward(self, images, heads):
        features = self.trunk(images)
        return torch.stack([self.heads[head](features).sum() for head in heads]).sum()


def window_over(network, **keys):
    model = DistributedDataParallel(network, **keys)
    return model, GradientWindow(SGD(network.parameters(), lr=0.1), model=model)


def add(window, model, *heads, last):
    with window.micro_batch(last=last):
        window.add(LossSum(model(torch.ones(2, 4), heads), 2.0), num_images=2)


def test_a_window_is_applied_where_its_last_micro_batch_reaches_every_parameter():
    network, alone = Branches(), Branches()
    model, window = window_over(network)
    add(window, model, 0, last=False)
    add(window, model, 0, 1, last=True)
    assert window.step().applied

    plain = GradientWindow(SGD(alone.parameters(), lr=0.1), model=alone)
    add(plain, alone, 0, last=False)
    add(plain, alone, 0, 1, last=True)
    assert plain.step().applied
    torch.testing.assert_close(dict(network.named_parameters()), dict(alone.named_parameters()))


def test_a_parameter_that_only_an_earlier_micro_batch_reaches_is_named_with_the_remedy():
    model, window = window_over(Branches())
    add(window, model, 0, 1, last=False)
    add(window, model, 0, last=True)
    with pytest.raises(RuntimeError, match=r"gave no gradient to heads\.1\.weight, so processes .*\(0 times an output"):
        window.step()


def test_of_many_parameters_that_are_not_reached_a_few_are_named():
    model, window = window_over(Branches(count=8))
    add(window, model, 0, last=True)
    with pytest.raises(RuntimeError, match=r"to heads\.1\.weight, .*heads\.5\.weight and 2 more, so"):
        window.step()


def test_a_parameter_times_zero_and_one_that_is_frozen_are_well():
    network = Branches(count=3)
    network.heads[2].weight.requires_grad_(False)
    model, window = window_over(network)
    with window.micro_batch(last=True):
        outputs = model(torch.ones(2, 4), (0,)) + 0 * network.heads[1].weight.sum()
        window.add(LossSum(outputs, 2.0), num_images=2)
    assert window.step().applied


def test_a_window_without_a_last_micro_batch_is_not_applied():
    network = Branches()
    before = network.trunk.weight.clone()
    model, window = window_over(network)
    add(window, model, 0, 1, last=False)
    with pytest.raises(RuntimeError, match=r"no micro-batch of the window was its last .*use micro_batch\(last=True\)"):
        window.step()
    assert torch.equal(network.trunk.weight, before)


def test_what_a_window_that_was_dropped_had_reached_does_not_count_for_the_next():
    model, window = window_over(Branches())
    add(window, model, 0, 1, last=True)
    window.rollback()
    add(window, model, 0, last=True)
    with pytest.raises(RuntimeError, match=r"gave no gradient to heads\.1\.weight"):
        window.step()


def test_a_window_that_was_dropped_may_be_added_again():
    model, window = window_over(Branches())
    for _ in range(2):
        add(window, model, 0, last=False)
        window.rollback()
    add(window, model, 0, 1, last=True)
    assert window.step().applied


def test_the_last_micro_batch_of_a_window_is_not_that_of_the_window_after():
    model, window = window_over(Branches())
    add(window, model, 0, 1, last=True)
    assert window.step().applied
    add(window, model, 0, 1, last=False)
    with pytest.raises(RuntimeError, match="no micro-batch of the window was its last one"):
        window.step()


def test_a_window_whose_micro_batches_nobody_named_has_no_last_one_either():
    model, window = window_over(Branches())
    add(window, model, 0, 1, last=True)
    assert window.step().applied
    window.add(LossSum(model(torch.ones(2, 4), (0, 1)), torch.tensor(2.0)), num_images=2)
    with pytest.raises(RuntimeError, match="no micro-batch of the window was its last one"):
        window.step()


def test_gradients_are_exchanged_once_a_window_however_many_micro_batches_it_has():
    model, window = window_over(Branches())
    exchanged = []

    def count(state, bucket):
        exchanged.append(bucket.index())
        return allreduce_hook(None, bucket)

    model.register_comm_hook(None, count)
    for num_micro_batches in (1, 3, 2):
        for number in range(num_micro_batches):
            add(window, model, 0, 1, last=number == num_micro_batches - 1)
        window.step()
    assert exchanged == [0, 0, 0]


def test_a_model_that_looks_for_unused_parameters_is_refused_with_the_remedy():
    with pytest.raises(ValueError, match=r"looks for unused parameters, .*make it with find_unused_parameters=False"):
        window_over(Branches(), find_unused_parameters=True)


@pytest.fixture
def thawed():
    """A network of which a head has thawed after the first window, its model made anew, and the window that uses it."""
    network = Branches()
    network.heads[1].weight.requires_grad_(False)
    model, window = window_over(network)
    add(window, model, 0, last=True)
    assert window.step().applied
    network.heads[1].weight.requires_grad_(True)
    model = DistributedDataParallel(network)
    window.use(model)
    return network, model, window


def test_what_has_thawed_learns_by_the_model_made_anew(thawed):
    network, model, window = thawed
    before = network.heads[1].weight.clone()
    add(window, model, 0, 1, last=True)
    assert window.step().applied
    assert not torch.equal(network.heads[1].weight, before)


def test_what_has_thawed_must_be_reached_from_then_on(thawed):
    _, model, window = thawed
    add(window, model, 0, last=True)
    with pytest.raises(RuntimeError, match=r"gave no gradient to heads\.1\.weight"):
        window.step()


def test_another_model_is_not_taken_in_the_middle_of_a_window():
    model, window = window_over(Branches())
    add(window, model, 0, 1, last=False)
    with pytest.raises(AssertionError, match="a window is open"):
        window.use(model)


def test_a_model_by_itself_has_nothing_to_exchange():
    exchange = Exchange(nn.Linear(2, 2))
    with exchange.micro_batch(last=False):
        pass
    exchange.check()
