"""What is frozen neither learns nor drifts, thaws when it should, and everything frozen is chosen by name."""

import pytest
import torch
from torch import nn

from visiontrain.engine.ema import Ema
from visiontrain.engine.freeze import Thaw, freeze_, matching, split_patterns, thaw_
from visiontrain.engine.optimizer import OPTIMIZERS, OptimizerChoice, Part, build_optimizer, regroup_
from visiontrain.engine.precision import choose_precision
from visiontrain.engine.running_statistics import estimate_running_statistics_
from visiontrain.engine.window import GradientWindow
from visiontrain.errors import ConfigError
from visiontrain.losses.sums import LossSum
from visiontrain.plan import plan_run
from visiontrain.sample import Batch

TRUNK = ("trunk.0.weight", "trunk.1.weight", "trunk.1.bias")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.trunk = nn.Sequential(nn.Conv2d(3, 4, 1, bias=False), nn.BatchNorm2d(4), nn.ReLU())
        self.neck = nn.Sequential(nn.Conv2d(4, 4, 1, bias=False), nn.BatchNorm2d(4))
        self.head = nn.Linear(4, 2)

    def forward(self, images):
        return self.head(self.neck(self.trunk(images)).mean(dim=(2, 3)))


def names_of(network):
    return [name for name, _ in network.named_parameters()]


def state(network):
    return {name: tensor.clone() for name, tensor in network.state_dict().items()}


def changed(network, before):
    return {name for name, tensor in network.state_dict().items() if not torch.equal(tensor, before[name])}


def train(network, optimizer, steps=3, seed=0):
    network.train()
    generator = torch.Generator().manual_seed(seed)
    window = GradientWindow(optimizer, model=network)
    for _ in range(steps):
        for last in (False, True):
            with window.micro_batch(last=last):
                outputs = network(torch.rand(2, 3, 4, 4, generator=generator))
                window.add(LossSum(outputs.square().sum(), torch.tensor(2.0)))
        assert window.step().applied


def optimizer_of(network, name="SGD", **settings):
    return build_optimizer(network, OptimizerChoice(name, 0.1, 0.9), weight_decay=0.01, **settings)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_what_is_frozen_is_the_same_to_the_bit_after_training_and_all_else_moves(name):
    network = Net()
    frozen = freeze_(network, TRUNK)
    before, average = state(network), Ema(network)
    optimizer = optimizer_of(network, name)
    train(network, optimizer)
    average.update(network)
    assert {name for name in before if name.startswith("trunk.")}.isdisjoint(changed(network, before))
    assert {name for name in before if not name.startswith("trunk.")} == changed(network, before)
    assert {name for name in before if name.startswith("trunk.")}.isdisjoint(changed(average.model, before))
    assert frozen.parameters == TRUNK
    assert frozen.num_values == 12 + 4 + 4
    assert dict(frozen.norms) == {"trunk.1": "batch"}


def test_what_is_frozen_is_in_no_group_and_has_no_gradient():
    network = Net()
    network.trunk[0].weight.grad = torch.ones_like(network.trunk[0].weight)  # of an earlier life
    freeze_(network, TRUNK)
    grouped = {param for group in optimizer_of(network).param_groups for param in group["params"]}
    params = dict(network.named_parameters())
    assert grouped == {params[name] for name in params if name not in TRUNK}
    network(torch.rand(2, 3, 4, 4)).sum().backward()
    assert all((params[name].grad is None) == (name in TRUNK) for name in params)


def test_a_batch_norm_of_which_something_learns_is_not_frozen():
    network = Net()
    frozen = freeze_(network, ("trunk.1.weight",))
    assert not frozen.norms
    before = state(network)
    network.train()(torch.rand(2, 3, 4, 4))
    assert "trunk.1.running_mean" in changed(network, before)


def test_statistics_that_are_estimated_anew_are_not_those_of_frozen_layers():
    network = Net()
    train(network, optimizer_of(network))
    freeze_(network, TRUNK)
    before = state(network)
    images = torch.rand(4, 3, 4, 4)
    batch = Batch(images, {}, ("a",) * 4, (0, 1, 2, 3), ((4, 4),) * 4, torch.eye(3).expand(4, 3, 3), is_last=True)
    device = torch.device("cpu")
    estimate_running_statistics_(network, [batch], choose_precision("False", device), device)
    assert changed(network, before) == {
        f"neck.1.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")
    }


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_after_the_thaw_everything_learns_with_the_groups_of_a_whole_optimizer_and_kept_state(name):
    network = Net()
    params = dict(network.named_parameters())
    frozen = freeze_(network, TRUNK)
    parts = dict.fromkeys(TRUNK, Part("trunk", 0.5))
    optimizer = optimizer_of(network, name, parts=parts)
    train(network, optimizer)
    kept = {key: optimizer.state[params["head.weight"]][key] for key in optimizer.state[params["head.weight"]]}
    thaw_(network, frozen)
    regroup_(optimizer, network, weight_decay=0.01, parts=parts)

    assert type(network.trunk[1]) is nn.BatchNorm2d
    assert dict(network.named_parameters()) == params  # the very same ones
    whole = optimizer_of(network, name, parts=parts)
    assert [group["name"] for group in optimizer.param_groups] == [group["name"] for group in whole.param_groups]
    for group, other in zip(optimizer.param_groups, whole.param_groups, strict=True):
        assert set(group) == set(other)
        assert all(a is b for a, b in zip(group["params"], other["params"], strict=True))
    for key, value in kept.items():
        assert optimizer.state[params["head.weight"]][key] is value
    assert not any(params[name] in optimizer.state for name in TRUNK)

    before = state(network)
    train(network, optimizer)
    assert changed(network, before) == set(before)  # running statistics too


class Loaded:
    def __init__(self, planned):
        self.planned = planned


@pytest.mark.parametrize("first", [0, 1, 5])
def test_the_thaw_comes_before_the_first_window_of_its_epoch_or_the_first_after_a_resume(first):
    plan = plan_run(num_images=8, batch=2, nbs=4, epochs=4)
    network = Net()
    calls = []
    thaw = Thaw(network, freeze_(network, TRUNK), epoch=3, regroup=lambda: calls.append(True))
    windows = (Loaded(window) for window in plan.all_windows() if window.index >= first)
    learning = {window.planned.epoch + 1: network.trunk[0].weight.requires_grad for window in thaw.watch(windows)}
    assert learning == {epoch: epoch >= 3 for epoch in learning}
    assert calls == [True]


def test_a_run_that_had_thawed_thaws_at_once():
    windows = {window.epoch + 1: window for window in plan_run(num_images=8, batch=2, nbs=4, epochs=4).all_windows()}
    network, calls = Net(), []
    thaw = Thaw(network, freeze_(network, TRUNK), epoch=3, regroup=lambda: calls.append(True))
    thaw.reach(windows[2])
    assert not thaw.is_over
    thaw.reach(windows[3])
    thaw.reach(windows[4])
    assert thaw.is_over
    assert calls == [True]
    assert network.trunk[0].weight.requires_grad


@pytest.mark.parametrize(
    ("text", "patterns"),
    [
        ("trunk", ("trunk",)),
        ("trunk.0, head", ("trunk.0", "head")),
        (r"trunk\.\d{1,2}\..*,head", (r"trunk\.\d{1,2}\..*", "head")),
        (r"(trunk|neck)\.[0,1]\.weight", (r"(trunk|neck)\.[0,1]\.weight",)),
        (" , ", ()),
    ],
)
def test_patterns_are_cut_at_commas_outside_of_brackets(text, patterns):
    assert split_patterns(text) == patterns


@pytest.mark.parametrize(
    ("patterns", "found"),
    [
        (("trunk",), TRUNK),
        (("trunk.1.weight",), ("trunk.1.weight",)),
        ((r".*\.bias",), ("trunk.1.bias", "neck.1.bias", "head.bias")),
        ((r"(trunk|neck)\.0\..*", "head"), ("trunk.0.weight", "neck.0.weight", "head.weight", "head.bias")),
    ],
)
def test_a_pattern_is_a_path_or_an_expression_for_whole_names(patterns, found):
    assert matching(names_of(Net()), patterns) == found


def test_patterns_that_mean_nothing_are_refused_all_at_once():
    with pytest.raises(ConfigError) as caught:
        matching(names_of(Net()), ("trun", "weight", "(", "head"))
    first, second, third = caught.value.faults
    assert first.startswith("freeze = trun: matches no parameter; their names are such as trunk.0.weight")
    assert second.startswith("freeze = weight: matches no parameter")
    assert third.startswith("freeze = (: is no regular expression")
