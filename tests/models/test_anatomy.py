"""What counts as a layer, and where the backbone ends."""

import pytest
from torch import nn

from visiontrain.models.anatomy import anatomy_of
from visiontrain.models.build import build_network
from visiontrain.models.torchvision_models import build_torchvision

NAMES = ("a", "b")


def test_the_backbone_of_the_default_detector_ends_where_its_neck_begins():
    anatomy = anatomy_of(build_network("det-n", NAMES))
    assert anatomy.num_backbone == 10  # the trunk of det.yaml
    assert anatomy.layers == tuple(f"layers.{index}" for index in range(23))


def test_the_backbone_of_the_default_classifier_is_all_but_its_head():
    anatomy = anatomy_of(build_network("cls-n", NAMES))
    assert (anatomy.num_backbone, len(anatomy.layers)) == (9, 10)


def test_a_network_without_a_neck_has_a_backbone_up_to_its_head():
    rows = [*([-1, 1, "Conv", [8, 3, 2]] for _ in range(3)), [[1, 2], 1, "Detect", []]]
    assert anatomy_of(build_network({"layers": rows}, NAMES)).num_backbone == 3


@pytest.mark.parametrize(
    ("name", "num_layers", "first", "last"),
    [
        ("resnet18", 11, "conv1", "fc"),
        ("mobilenet_v3_small", 15, "features.0", "classifier.3"),
        ("squeezenet1_1", 10, "features.0", "classifier.1"),
    ],
)
def test_the_layers_of_torchvision_are_its_blocks_and_the_backbone_is_all_but_the_last(name, num_layers, first, last):
    network = build_torchvision(name, NAMES)
    anatomy = anatomy_of(network)
    assert len(anatomy.layers) == num_layers
    assert anatomy.layers[0] == f"network.{first}"
    assert anatomy.layers[anatomy.num_backbone :] == (f"network.{last}",)
    inside = [any(name.startswith(f"{path}.") for path in anatomy.layers) for name, _ in network.named_parameters()]
    assert all(inside)


def test_a_layer_holds_what_its_path_begins_and_not_what_its_letters_begin():
    anatomy = anatomy_of(build_network("det-n", NAMES))
    assert anatomy.layer_of("layers.1.conv.weight") == 1
    assert anatomy.layer_of("layers.10") == 10
    assert anatomy.layer_of("layers.22.class_branches.0.2.bias") == 22


def test_what_stands_in_no_layer_counts_to_the_first():
    network = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    network.register_parameter("token", nn.Parameter(nn.Linear(2, 2).weight.detach()))
    anatomy = anatomy_of(network)
    assert (anatomy.layers, anatomy.num_backbone) == (("0", "2"), 1)
    assert anatomy.layer_of("token") == 0
