import pytest
import torch
from torch import nn

from visiontrain.models.build import build_network
from visiontrain.models.norm import set_norm_
from visiontrain.models.probe import takes_size, values_of_batch_norm


@pytest.fixture
def network():
    return build_network({"layers": [[-1, 1, "Conv", [16, 3, 4]], [-1, 1, "Classify", [16]]]}, ("a", "b"))


def test_the_fewest_values_of_a_channel_are_those_of_the_coarsest_map(network):
    assert [values_of_batch_norm(network, size) for size in (4, 8, 12)] == [1, 4, 9]


def test_a_micro_batch_of_one_image_with_one_value_is_what_torch_refuses(network):
    assert values_of_batch_norm(network, 4) == 1
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        network.train()(torch.zeros(1, 3, 4, 4))


@pytest.mark.parametrize("kind", ["group", "frozen"])
def test_layers_that_look_at_no_micro_batch_need_no_values(network, kind):
    set_norm_(network, kind)
    assert values_of_batch_norm(network, 4) is None


def test_a_size_that_leaves_nothing_of_a_map_is_found_without_computing():
    network = nn.Sequential(nn.Conv2d(3, 4, 5), nn.MaxPool2d(2))
    assert [size for size in range(1, 9) if takes_size(network, size)] == [6, 7, 8]


def test_probing_leaves_the_network_as_it_was(network):
    network.train()
    network.layers[0].eval()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    values_of_batch_norm(network, 8)
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    assert network.training
    assert not network.layers[0].training
    assert not any(module._forward_pre_hooks for module in network.modules())
