"""The average of the weights follows its formula once an update, in fp32, and touches nothing else."""

import pytest
import torch
from torch import nn

from visiontrain.engine.ema import Ema, LiveWeights, decay_after


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5))


def move(net):
    """Change everything that training changes."""
    with torch.no_grad():
        for tensor in net.state_dict().values():
            tensor.add_(1)


@pytest.mark.parametrize(("updates", "decay"), [(0, 0.1), (1, 2 / 11), (90, 0.91), (10**6, 0.9999)])
def test_the_decay_follows_its_formula_up_to_a_cap(updates, decay):
    assert decay_after(updates) == pytest.approx(decay, rel=1e-12)


def test_the_average_follows_parameters_and_running_statistics_by_the_formula():
    net = network()
    average = Ema(net)
    expected = {name: tensor.clone().double() for name, tensor in net.state_dict().items()}
    for update in range(1, 6):
        move(net)
        average.update(net)
        decay = min(0.9999, (1 + update) / (10 + update))
        for name, tensor in net.state_dict().items():
            expected[name] = decay * expected[name] + (1 - decay) * tensor
    assert average.updates == 5
    for name, tensor in average.model.state_dict().items():
        if tensor.is_floating_point():
            torch.testing.assert_close(tensor.double(), expected[name], rtol=1e-5, atol=1e-6)
    assert average.model[1].num_batches_tracked == net[1].num_batches_tracked == 5


def test_the_average_is_a_network_of_its_own_that_is_never_trained():
    net = network().train()
    average = Ema(net)
    before = {name: tensor.clone() for name, tensor in average.model.state_dict().items()}
    move(net)
    torch.testing.assert_close(dict(average.model.state_dict()), before, rtol=0, atol=0)
    assert not any(module.training for module in average.model.modules())
    assert not any(param.requires_grad for param in average.model.parameters())
    assert net.training


def test_an_update_leaves_the_live_network_alone():
    net = network()
    average = Ema(net)
    move(net)
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    average.update(net)
    torch.testing.assert_close(dict(net.state_dict()), before, rtol=0, atol=0)
    assert all(param.requires_grad for param in net.parameters())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_average_of_half_precision_weights_is_kept_in_fp32(dtype):
    net = nn.Linear(4, 4).to(dtype)
    average = Ema(net)
    assert average.model.weight.dtype == torch.float32
    for _ in range(100):
        average.update(net)
    average.updates = 10**6  # steps of 1e-4, which half precision would round away
    with torch.no_grad():
        net.weight.add_(1)
    before = average.model.weight.clone()
    average.update(net)
    assert (average.model.weight > before).all()
    assert net.weight.dtype == dtype


def test_the_live_weights_are_the_network_itself_and_count_updates_too():
    net = network()
    live = LiveWeights(net)
    move(net)
    live.update(net)
    assert live.model is net
    assert live.updates == 1
