"""Weights into a network of other classes: by name and shape, rows of classes by the classes' names; all is told."""

import pytest
import torch

from visiontrain.errors import ConfigError
from visiontrain.models.build import build_network
from visiontrain.models.torchvision_models import build_torchvision
from visiontrain.models.transfer import transfer_

DETECTOR = {
    "layers": [
        *([-1, 1, "Conv", [8, 3, 2]] for _ in range(3)),
        [[1, 2], 1, "Detect", []],
    ]
}
CLASSIFIER = {"layers": [[-1, 1, "Conv", [16, 3, 4]], [-1, 1, "Classify", [32]]]}
MAKERS = {
    "detector": lambda names: build_network(DETECTOR, names),
    "classifier": lambda names: build_network(CLASSIFIER, names),
    "torchvision": lambda names: build_torchvision("shufflenet_v2_x0_5", names),
}


def trained(kind, names):
    """The weights of a network that could not be fresh ones; rows of classes are told apart."""
    state = MAKERS[kind](names).state_dict()
    for index, (name, tensor) in enumerate(state.items()):
        if tensor.is_floating_point():
            state[name] = torch.arange(tensor.numel(), dtype=tensor.dtype).view(tensor.shape) + 1000 * (index + 1)
    return state


def copied(network, weights):
    own = network.state_dict()
    return {name for name in own if own[name].shape == weights[name].shape and torch.equal(own[name], weights[name])}


@pytest.mark.parametrize("kind", MAKERS)
def test_rows_of_classes_go_by_name_and_all_else_by_shape(kind):
    weights, network = trained(kind, ("red", "green", "blue")), MAKERS[kind](("white", "blue", "red", "black"))
    fresh = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    found = transfer_(network, weights, names=("red", "green", "blue"), source="best.pt")

    assert (found.kept, found.new, found.dropped) == (("blue", "red"), ("white", "black"), ("green",))
    assert (dict(found.reshaped), found.missing, found.unused) == ({}, (), ())
    now = network.state_dict()
    by_class = {name for name in now if len(now[name].shape) and weights[name].shape != now[name].shape}
    assert len(by_class) == len(found.by_class) == (4 if kind == "detector" else 2)
    for name in by_class:
        assert torch.equal(now[name][1], weights[name][2]), name
        assert torch.equal(now[name][2], weights[name][0]), name
        assert torch.equal(now[name][[0, 3]], fresh[name][[0, 3]]), name
    assert copied(network, weights) == set(now) - by_class
    assert found.num_matched == sum(now[name].numel() // (2 if name in by_class else 1) for name in now)


@pytest.mark.parametrize("kind", MAKERS)
def test_the_same_classes_in_another_order_are_put_in_order(kind):
    weights, network = trained(kind, ("red", "green")), MAKERS[kind](("green", "red"))
    found = transfer_(network, weights, names=("red", "green"), source="best.pt")
    assert (found.kept, found.new, found.dropped) == (("green", "red"), (), ())
    assert found.num_matched == found.num_parameters
    now = network.state_dict()
    rows = [name for name in now if name.endswith(found.by_class[0].rpartition(".")[2]) and len(now[name]) == 2]
    assert rows
    for name in (name for name in now if any(name.endswith(one) for one in found.by_class)):
        assert torch.equal(now[name], weights[name].flip(0)), name


def test_without_names_classes_go_by_their_number():
    weights = trained("classifier", ("red", "green"))
    network = MAKERS["classifier"](("a", "b"))
    assert not transfer_(network, weights, names=None, source="x").by_class
    assert torch.equal(network.state_dict()["layers.1.linear.weight"], weights["layers.1.linear.weight"])
    other = MAKERS["classifier"](("a", "b", "c"))
    found = transfer_(other, weights, names=None, source="x")
    assert found.reshaped["layers.1.linear.weight"] == ((2, 32), (3, 32))
    assert (found.kept, found.new, found.dropped) == ((), (), ())


def test_the_trunk_of_a_classifier_goes_into_a_detector_and_what_does_not_fit_is_told():
    weights = trained("classifier", ("red",))
    rows = [[-1, 1, "Conv", [16, 3, 4]], *DETECTOR["layers"]]
    network = build_network({"layers": [*rows[:-1], [[2, 3], 1, "Detect", []]]}, ("red",))
    found = transfer_(network, weights, names=("red",), source="x")
    assert set(found.matched) == {name for name in weights if name.startswith("layers.0.")}
    assert found.kept == ()
    assert found.dropped == ("red",)
    assert set(found.unused) == set(weights) - set(network.state_dict())
    assert "layers.4.box_branches.0.2.weight" in found.missing
    assert found.document()["unused"] == list(found.unused)


def test_where_nothing_fits_the_network_stays_as_it_was():
    network = MAKERS["detector"](("red",))
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    with pytest.raises(ConfigError, match=r"best\.pt: none of its tensors fits the network; it holds 1 \(blocks"):
        transfer_(network, {"blocks.0": torch.ones(3)}, names=("red",), source="best.pt")
    assert all(torch.equal(before[name], tensor) for name, tensor in network.state_dict().items())
