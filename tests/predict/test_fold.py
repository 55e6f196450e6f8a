import copy

import pytest
import torch
import torchvision
from torch import nn
from torchvision.models.densenet import DenseNet
from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet

from visiontrain.models.classifiers import build_classifier
from visiontrain.models.detectors import build_detector
from visiontrain.models.layers import ConvNorm
from visiontrain.models.norm import set_norm_
from visiontrain.predict.fold import fold_norms_


def with_statistics(network):
    """Running statistics and weights of normalizations that are not those of a fresh network."""
    generator = torch.Generator().manual_seed(0)
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            for values, low in ((layer.running_mean, -0.3), (layer.running_var, 0.5), (layer.weight, 0.5)):
                values.data.copy_(torch.rand(values.shape, generator=generator) + low)
            layer.bias.data.uniform_(-0.2, 0.2, generator=generator)
    return network.eval().double()


def outputs_of(network, images):
    with torch.inference_mode():
        outputs = network(images)
    return [outputs] if isinstance(outputs, torch.Tensor) else [one for one in outputs if isinstance(one, torch.Tensor)]


@pytest.mark.parametrize(
    ("network", "num_norms", "num_folded"),
    [
        (lambda: build_detector("det-n", ("a", "b")), 63, 63),
        (lambda: build_classifier("cls-n", ("a", "b")), 26, 26),
        (lambda: ResNet(BasicBlock, [1, 1, 1, 1], num_classes=3), 12, 12),
        (lambda: ResNet(Bottleneck, [1, 1, 1, 1], num_classes=3), 17, 17),
        (lambda: torchvision.models.mobilenet_v2(num_classes=3), 52, 52),
        (lambda: DenseNet(block_config=(1, 2), num_classes=3), 9, 1),  # before convolutions, but for the first
    ],
)
def test_a_folded_network_gives_the_same_numbers(network, num_norms, num_folded):
    network = with_statistics(network())
    assert sum(isinstance(layer, nn.BatchNorm2d) for layer in network.modules()) == num_norms
    images = torch.rand(2, 3, 64, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    before = outputs_of(network, images)
    assert fold_norms_(network) == num_folded
    assert sum(isinstance(layer, nn.BatchNorm2d) for layer in network.modules()) == num_norms - num_folded
    for one, other in zip(before, outputs_of(network, images), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_a_frozen_normalization_is_folded_and_a_group_one_is_left():
    frozen, group = (with_statistics(ConvNorm(3, 16)) for _ in range(2))
    for layer, kind in ((frozen, "frozen"), (group, "group")):
        set_norm_(layer, kind)
    assert (fold_norms_(frozen), fold_norms_(group)) == (1, 0)


def test_a_normalization_without_statistics_is_left():
    layers = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4, track_running_stats=False))
    assert fold_norms_(layers) == 0


def test_only_what_directly_follows_a_convolution_is_folded():
    layers = with_statistics(
        nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 4, 3), nn.ReLU(), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 1))
    )
    images = torch.rand(1, 3, 8, 8, dtype=torch.float64)
    before = copy.deepcopy(layers)(images)
    assert fold_norms_(layers) == 0
    torch.testing.assert_close(layers(images), before, rtol=0, atol=0)


def test_a_network_in_training_is_put_into_evaluation():
    layers = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)).train()
    assert fold_norms_(layers) == 1
    assert not layers.training
