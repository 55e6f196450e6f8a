import copy

import pytest
import torch
from torch import nn
from torch.optim import SGD, AdamW

from visiontrain.engine.eager import EagerAdamW, EagerSGD

PAIRS = [
    (EagerSGD, SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "foreach": True}),
    (EagerAdamW, AdamW, {"lr": 0.1, "betas": (0.9, 0.999), "foreach": True}),
]


def train(network, optimizer, steps):
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        optimizer.zero_grad()
        network(torch.randn(4, 3, generator=generator)).square().sum().backward()
        optimizer.step()


@pytest.mark.parametrize(("eager", "plain", "options"), PAIRS)
def test_steps_are_those_of_torch_to_the_bit(eager, plain, options):
    mine = nn.Linear(3, 2)
    theirs = copy.deepcopy(mine)
    optimizers = eager(mine.parameters(), **options), plain(theirs.parameters(), **options)
    for network, optimizer in zip((mine, theirs), optimizers, strict=True):
        train(network, optimizer, 5)
    assert torch.equal(mine.weight, theirs.weight)
    states = [optimizer.state_dict() for optimizer in optimizers]
    assert states[0]["param_groups"] == states[1]["param_groups"]
    torch.testing.assert_close(states[0]["state"], states[1]["state"], rtol=0, atol=0)


@pytest.mark.parametrize(("eager", "plain", "options"), PAIRS)
def test_a_state_of_torchs_optimizer_is_gone_on_with(eager, plain, options):
    whole = nn.Linear(3, 2)
    first = plain(whole.parameters(), **options)
    train(whole, first, 3)
    resumed = copy.deepcopy(whole)
    second = eager(resumed.parameters(), **options)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    train(whole, first, 3)
    train(resumed, second, 3)
    assert torch.equal(whole.weight, resumed.weight)


@pytest.mark.parametrize(("eager", "plain", "options"), PAIRS)
def test_a_step_records_nothing_for_a_backward_pass_and_leaves_the_mode_as_it_was(eager, plain, options):
    network = nn.Linear(3, 2)
    train(network, eager(network.parameters(), **options), 1)
    assert network.weight.grad_fn is None
    assert torch.is_grad_enabled()


@pytest.mark.parametrize(("eager", "plain", "options"), PAIRS)
def test_a_group_that_is_none_is_refused_as_ever(eager, plain, options):
    weight = nn.Parameter(torch.zeros(2))
    optimizer = eager([weight], **options)
    with pytest.raises(ValueError, match="more than one parameter group"):
        optimizer.add_param_group({"params": [weight]})
