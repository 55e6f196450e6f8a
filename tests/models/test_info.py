import torch
from torch import nn

from visiontrain.models.build import build_network
from visiontrain.models.info import model_info


def test_a_convolution_costs_two_operations_for_each_weight_and_place():
    network = nn.Sequential(FromBytes(), nn.Conv2d(3, 5, 3, padding=1, bias=False))
    info = model_info(network, 16)
    assert info.gflops * 1e9 == 2 * 3 * 5 * 9 * 16 * 16
    assert (info.layers, info.parameters) == (2, 3 * 5 * 9)


def test_the_small_detector_keeps_its_budget():
    info = model_info(build_network("det-n", [str(index) for index in range(80)]), 640)
    assert info.parameters <= 2_700_000
    assert info.gflops <= 6.6
    assert str(info) == f"{info.layers} layers, {info.parameters:,} parameters, {info.gflops:.1f} GFLOPs at 640 pixels"


def test_measuring_leaves_the_network_as_it_was():
    network = build_network("det-n", ("a",)).train()
    network.layers[0].eval()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    model_info(network, 64)
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    assert network.training
    assert not network.layers[0].training
    assert network.layers[1].norm.training


class FromBytes(nn.Module):
    def forward(self, images):
        return images.float()
