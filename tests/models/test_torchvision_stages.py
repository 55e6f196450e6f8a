"""Parts of torchvision's networks: cut where strides change, exact, with torchvision's names."""

from __future__ import annotations

import pytest
import torch
import torchvision
from torchvision.models.feature_extraction import create_feature_extractor

from visiontrain.errors import ConfigError
from visiontrain.models.build import build_network
from visiontrain.models.detectors import torchvision_detectors
from visiontrain.models.torchvision_stages import TorchvisionStage, channels_at, links_of, take_stage

STRIDES = (4, 8, 16, 32)
NODES = {  # of the last operation at each of these strides, as torchvision's own extraction calls them
    "resnet18": ("layer1", "layer2", "layer3", "layer4"),
    "mobilenet_v3_small": ("features.1", "features.3", "features.8", "features.12"),
    "convnext_tiny": ("features.1", "features.3", "features.5", "features.7"),
    "densenet121": ("features.denseblock1", "features.denseblock2", "features.denseblock3", "features.norm5"),
    "efficientnet_b0": ("features.2", "features.3", "features.5", "features.8"),
    "regnet_y_400mf": tuple(f"trunk_output.block{index}" for index in range(1, 5)),
    "shufflenet_v2_x0_5": ("maxpool", "stage2", "stage3", "conv5"),
}
QUICK = ("resnet18", "mobilenet_v3_small")


def parts_of(name, seed=0):
    remains = {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return [
            take_stage(name, after=after, stride=stride, remains=remains)
            for after, stride in zip((1, *STRIDES), STRIDES, strict=False)
        ]


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in NODES]
)
def test_the_parts_give_the_maps_that_torchvisions_own_feature_extraction_gives(name):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        whole = torchvision.models.get_model(name, weights=None).eval()
    extract = create_feature_extractor(whole, list(NODES[name]))
    images = torch.rand(2, 3, 64, 96, generator=torch.Generator().manual_seed(0))
    features = images
    with torch.no_grad():
        expected = extract(images)
        for stage, stride, node in zip(parts_of(name), STRIDES, NODES[name], strict=True):
            features = stage.eval()(features)
            assert torch.equal(features, expected[node])
            assert features.shape == (2, channels_at(name, stride), 64 // stride, 96 // stride)


@pytest.mark.parametrize("name", QUICK)
def test_the_parts_hold_all_tensors_of_the_features_once_and_by_torchvisions_names(name):
    whole = torchvision.models.get_model(name, weights=None).state_dict()
    held = [key for stage in parts_of(name) for key in stage.state_dict()]
    assert held == [key for key in whole if not key.startswith(("fc.", "classifier."))]


def test_no_two_parts_share_a_module_even_if_they_are_the_same_part():
    remains = {}
    first, again = (take_stage("mobilenet_v3_small", after=1, stride=8, remains=remains) for _ in range(2))
    assert set(map(id, first.parameters())).isdisjoint(map(id, again.parameters()))


def test_finding_the_strides_leaves_the_random_state_alone():
    links_of.cache_clear()
    state = torch.get_rng_state()
    links_of("shufflenet_v2_x0_5")
    assert torch.equal(torch.get_rng_state(), state)


def test_a_file_of_ones_own_may_name_parts():
    rows = [
        [-1, 1, "Torchvision", ["mobilenet_v3_small", 8]],
        [-1, 1, "Torchvision", ["mobilenet_v3_small", 16]],
        [[0, 1], 1, "Detect", []],
    ]
    network = build_network({"layers": rows}, ("a",))
    assert network.strides == (8, 16)
    assert [isinstance(layer, TorchvisionStage) for layer in network.layers] == [True, True, False]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[-1, 1, "Torchvision", ["resnet81", 8]]], "names 'resnet81', and torchvision has no"),
        (
            [[-1, 1, "Torchvision", ["mobilenet_v3_small", 5]]],
            r"no map of stride 5 behind stride 1; .* has \[2, 4, 8, 16, 32\]",
        ),
        (
            [[-1, 1, "Conv", [8, 3, 2]], [-1, 1, "Torchvision", ["mobilenet_v3_small", 2]]],
            "no map of stride 2 behind stride 2",
        ),
        (
            [[-1, 1, "Conv", [8, 3, 2]], [-1, 1, "Torchvision", ["mobilenet_v3_small", 4]]],
            "reads 8 channels; .* reads 16",
        ),
        (
            [[-1, 1, "Torchvision", ["squeezenet1_1", 8]]],
            "names squeezenet1_1, whose features are no chain of square maps",
        ),
        (  # they are, but it changes the images before
            [[-1, 1, "Torchvision", ["googlenet", 8]]],
            "names googlenet, whose features are no chain of square maps",
        ),
    ],
)
def test_a_part_that_does_not_exist_or_fit_is_refused(rows, message):
    with pytest.raises(ConfigError, match=message):
        build_network({"layers": [*rows, [-1, 1, "Detect", []]]}, ("a",))


@pytest.mark.slow
def test_exactly_the_families_that_are_offered_give_maps_of_these_strides():
    largest = ("vit_", "regnet_y_128gf")  # of gigabytes
    for name in torchvision.models.list_models(module=torchvision.models):
        if name.startswith(largest):
            continue
        try:
            strides = {link.stride for link in links_of(name)}
        except ValueError:
            strides = set()
        assert (set(STRIDES) <= strides) == (f"det-{name}" in torchvision_detectors()), name
