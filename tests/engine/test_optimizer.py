"""Parameter groups, and which optimizer is chosen when."""

import pytest
import torch
from torch import nn
from torch.optim import SGD, AdamW

from visiontrain.engine.muon import Muon
from visiontrain.engine.optimizer import (
    AUTO_MANY_UPDATES,
    OPTIMIZERS,
    OptimizerChoice,
    Part,
    build_optimizer,
    choose_optimizer,
    parameter_groups,
)

NOTHING_TYPED = {"lr0": 0.01, "momentum": 0.937, "is_lr_typed": False, "is_momentum_typed": False}


class Shared(nn.Module):
    """Norms, biases, a depthwise kernel, a scale of its own, one weight used twice, and a frozen layer."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, bias=False)
        self.depthwise = nn.Conv2d(8, 8, 3, groups=8)
        self.norm = nn.BatchNorm2d(8)
        self.group_norm = nn.GroupNorm(2, 8)
        self.linear, self.twin = nn.Linear(8, 8), nn.Linear(8, 8)
        self.twin.weight = self.linear.weight
        self.scale = nn.Parameter(torch.ones(8))
        self.frozen = nn.Linear(8, 8).requires_grad_(False)


def members(groups):
    return {group["name"]: group["params"] for group in groups}


def test_every_trainable_parameter_is_in_exactly_one_group():
    network = Shared()
    grouped = [param for group in parameter_groups(network, weight_decay=0.1) for param in group["params"]]
    trainable = [param for param in network.parameters() if param.requires_grad]
    assert len(grouped) == len(trainable)
    assert set(grouped) == set(trainable)


def test_norms_and_biases_are_not_decayed_and_have_groups_of_their_own():
    network = Shared()
    groups = parameter_groups(network, weight_decay=0.1)
    assert {group["name"]: group["weight_decay"] for group in groups} == {
        "weights": 0.1,
        "depthwise": 0.1,
        "norms": 0.0,
        "biases": 0.0,
    }
    named = members(groups)
    assert set(named["norms"]) == {network.norm.weight, network.group_norm.weight, network.scale}
    assert set(named["weights"]) == {network.conv.weight, network.linear.weight}
    assert set(named["depthwise"]) == {network.depthwise.weight}
    assert all(param.ndim == 1 for param in named["biases"])


def test_groups_without_members_are_left_out():
    assert list(members(parameter_groups(nn.Linear(2, 2, bias=False), weight_decay=0.1))) == ["weights"]


def test_only_kernels_that_mix_channels_are_made_orthogonal():
    orthogonal = [group["name"] for group in parameter_groups(Shared(), weight_decay=0.1) if group["is_orthogonal"]]
    assert orthogonal == ["weights"]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_that_is_named_is_taken_with_the_rates_as_they_are(name):
    choice = choose_optimizer(name, num_updates=10, **NOTHING_TYPED)
    assert choice == OptimizerChoice(name, 0.01, 0.937)
    optimizer = build_optimizer(Shared(), choice, weight_decay=0.1)
    assert isinstance(optimizer, {"SGD": SGD, "AdamW": AdamW, "Muon": Muon}[name])
    assert {group["lr"] for group in optimizer.param_groups} == {0.01}
    assert {group.get("momentum", group.get("betas", (None,))[0]) for group in optimizer.param_groups} == {0.937}
    assert {group["name"]: group["weight_decay"] for group in optimizer.param_groups}["norms"] == 0.0


@pytest.mark.parametrize("name", ["auto", *OPTIMIZERS])
@pytest.mark.parametrize("num_updates", [1, AUTO_MANY_UPDATES])
def test_what_was_typed_is_never_overridden(name, num_updates):
    typed = {"lr0": 1e-4, "momentum": 0.5, "is_lr_typed": True, "is_momentum_typed": True}
    choice = choose_optimizer(name, num_updates=num_updates, **typed)
    assert (choice.lr0, choice.momentum) == (1e-4, 0.5)


def test_one_typed_rate_leaves_the_other_to_auto():
    free = choose_optimizer("auto", num_updates=1, **NOTHING_TYPED)
    choice = choose_optimizer("auto", num_updates=1, **NOTHING_TYPED | {"lr0": 1.0, "is_lr_typed": True})
    assert (choice.lr0, choice.momentum) == (1.0, free.momentum)
    choice = choose_optimizer("auto", num_updates=1, **NOTHING_TYPED | {"momentum": 0.1, "is_momentum_typed": True})
    assert (choice.lr0, choice.momentum) == (free.lr0, 0.1)


def test_auto_goes_by_the_number_of_updates_and_says_so():
    few = choose_optimizer("auto", num_updates=AUTO_MANY_UPDATES - 1, **NOTHING_TYPED)
    many = choose_optimizer("auto", num_updates=AUTO_MANY_UPDATES, **NOTHING_TYPED)
    assert (few.name, many.name) == ("Muon", "SGD")
    assert str(AUTO_MANY_UPDATES - 1) in few.reason
    assert str(AUTO_MANY_UPDATES) in many.reason


def test_an_unknown_optimizer_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="'Foo' is none of SGD, AdamW, Muon"):
        build_optimizer(Shared(), OptimizerChoice("Foo", 0.1, 0.9), weight_decay=0.0)


def test_parts_with_rates_of_their_own_have_groups_named_after_them():
    network = Shared()
    parts = {"conv.weight": Part("trunk", 0.1), "norm.weight": Part("trunk", 0.1), "norm.bias": Part("trunk", 0.1)}
    groups = parameter_groups(network, weight_decay=0.1, parts=parts)
    keys = ("lr_scale", "weight_decay", "is_orthogonal")
    assert {group["name"]: tuple(group[key] for key in keys) for group in groups} == {
        "trunk/weights": (0.1, 0.1, True),
        "trunk/norms": (0.1, 0.0, False),
        "trunk/biases": (0.1, 0.0, False),
        "weights": (1.0, 0.1, True),
        "depthwise": (1.0, 0.1, False),
        "norms": (1.0, 0.0, False),
        "biases": (1.0, 0.0, False),
    }
    grouped = [param for group in groups for param in group["params"]]
    assert len(grouped) == len(set(grouped)) == sum(param.requires_grad for param in network.parameters())
