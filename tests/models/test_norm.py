import pickle
from copy import deepcopy

import pytest
import torch
from torch import nn
from torchvision.models import resnet18

from visiontrain.models.build import build_network
from visiontrain.models.norm import (
    NORMS,
    ChannelGroupNorm,
    FrozenBatchNorm,
    has_running_statistics,
    num_groups,
    set_momentum_,
    set_norm_,
)

TYPES = {"batch": nn.BatchNorm2d, "frozen": FrozenBatchNorm, "group": ChannelGroupNorm, "sync": nn.SyncBatchNorm}
BATCH_KINDS = ("batch", "frozen", "sync")


def small(seed=0):
    """A network of ours with running statistics that differ from the first ones."""
    torch.manual_seed(seed)
    layers = [[-1, 1, "Conv", [16, 3, 2]], [-1, 1, "CSPStage", [32, True]], [[0, 1], 1, "Detect", []]]
    network = build_network({"layers": layers}, ("a", "b"))
    for norm in norms(network):
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        nn.init.normal_(norm.bias)
        nn.init.normal_(norm.running_mean)
        nn.init.uniform_(norm.running_var, 0.5, 1.5)
        norm.num_batches_tracked.fill_(7)
    return network


def norms(network):
    return [module for module in network.modules() if isinstance(module, tuple(TYPES.values()))]


def images(count=2, size=32):
    return torch.rand(count, 3, size, size, generator=torch.Generator().manual_seed(1))


def states(network):
    return {name: tensor.clone() for name, tensor in network.state_dict().items()}


def assert_equal_states(a, b):
    assert list(a) == list(b)
    for name, tensor in a.items():
        assert torch.equal(tensor, b[name]), name


@pytest.mark.parametrize("kind", NORMS)
def test_every_layer_becomes_of_the_kind_and_keeps_parameters_epsilon_momentum_and_mode(kind):
    network = small()
    network.layers[1].eval()
    before = norms(network)
    set_norm_(network, kind)
    for old, new in zip(before, norms(network), strict=True):
        assert type(new) is TYPES[kind]
        assert new.weight is old.weight
        assert new.bias is old.bias
        assert (new.eps, new.momentum, new.training) == (1e-3, 0.03, old.training)


@pytest.mark.parametrize("kind", BATCH_KINDS)
@pytest.mark.parametrize("first", BATCH_KINDS)
def test_kinds_with_running_statistics_share_one_state_dict(first, kind):
    network = small()
    before = states(network)
    set_norm_(network, first)
    set_norm_(network, kind)
    assert_equal_states(states(network), before)


def test_group_norm_drops_running_statistics_alone_and_they_start_anew_on_the_way_back():
    network = small()
    before = states(network)
    set_norm_(network, "group")
    statistics = ("running_mean", "running_var", "num_batches_tracked")
    assert_equal_states(states(network), {n: t for n, t in before.items() if not n.endswith(statistics)})
    set_norm_(network, "batch")
    assert list(network.state_dict()) == list(before)
    for norm in norms(network):
        assert norm.momentum == 0.03
        assert torch.equal(norm.running_mean, torch.zeros_like(norm.running_mean))
        assert torch.equal(norm.running_var, torch.ones_like(norm.running_var))


@pytest.mark.parametrize("kind", NORMS)
def test_no_random_number_is_drawn_and_fresh_weights_are_the_same_for_every_kind(kind):
    network = small()
    before, drawn = dict(network.named_parameters()), torch.get_rng_state()
    set_norm_(network, kind)
    assert torch.equal(torch.get_rng_state(), drawn)
    assert all(param is before[name] for name, param in network.named_parameters())


@pytest.mark.parametrize("kind", NORMS)
def test_setting_a_kind_twice_changes_nothing(kind):
    network = small()
    set_norm_(network, kind)
    layers = norms(network)
    set_norm_(network, kind)
    assert all(a is b for a, b in zip(layers, norms(network), strict=True))


def test_sync_with_one_process_is_batch_norm():
    plain, synced = small(), small()
    set_norm_(synced, "sync")
    outputs = [network.train()(images()).class_logits for network in (plain, synced)]
    assert torch.equal(*outputs)
    assert_equal_states(states(synced), states(plain))


def test_frozen_layers_use_and_keep_their_running_statistics_in_training_and_learn_the_rest():
    network = small()
    with torch.no_grad():
        evaluated = network.eval()(images()).class_logits
    set_norm_(network, "frozen")
    buffers = [buffer.clone() for buffer in network.buffers()]
    for module in network.modules():
        module.training = True  # not by train(): whoever sets the mode
    outputs = network(images())
    assert torch.equal(outputs.class_logits, evaluated)
    (outputs.class_logits.sum() + outputs.box_logits.square().sum()).backward()
    assert all(torch.equal(a, b) for a, b in zip(network.buffers(), buffers, strict=True))
    assert all(norm.weight.grad is not None and norm.bias.grad is not None for norm in norms(network))


@pytest.mark.parametrize("kind", ["frozen", "group"])
def test_an_image_does_not_depend_on_the_others_of_its_micro_batch(kind):
    network = small().double().train()
    set_norm_(network, kind)
    pictures = images(4).double()
    together = network(pictures).class_logits
    alone = torch.cat([network(picture).class_logits for picture in pictures.split(1)])
    torch.testing.assert_close(alone, together, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("channels", [*range(1, 65), 72, 96, 128, 176, 250, 256, 384, 512, 1024])
def test_groups_are_the_most_that_divide_the_channels_up_to_32_and_of_8_channels_or_more(channels):
    allowed = [g for g in range(1, 33) if channels % g == 0 and channels // g >= 8]
    assert num_groups(channels) == max(allowed, default=1)


def test_group_norm_equals_its_definition():
    features = torch.randn(2, 48, 5, 5, dtype=torch.float64)
    layer = nn.Sequential(nn.BatchNorm2d(48, eps=1e-3)).double()
    set_norm_(layer, "group")
    grouped = features.reshape(2, 6, 8 * 25)
    variance = grouped.var(-1, correction=0, keepdim=True)
    expected = (grouped - grouped.mean(-1, keepdim=True)) / (variance + 1e-3).sqrt()
    torch.testing.assert_close(layer(features), expected.reshape(features.shape))


@pytest.mark.parametrize("kind", NORMS)
def test_copies_pickles_and_changes_of_mode_keep_the_outputs(kind):
    network = small()
    set_norm_(network, kind)
    with torch.no_grad():
        expected = network.eval()(images()).class_logits
        for twin in (deepcopy(network), pickle.loads(pickle.dumps(network)), network.train().eval()):
            assert torch.equal(twin(images()).class_logits, expected)


@pytest.mark.parametrize("kind", NORMS)
def test_a_description_builds_the_same_structure_again(kind):
    network = small()
    set_norm_(network, kind)
    assert network.description["norm"] == ("group" if kind == "group" else "batch")
    twin = build_network(network.description, network.names)
    twin.load_state_dict(network.state_dict())
    assert twin.description == network.description


@pytest.mark.parametrize("kind", NORMS)
def test_networks_of_other_libraries_train_with_every_kind(kind):
    network = resnet18(num_classes=3)
    convolution = network.conv1.weight
    set_norm_(network, kind)
    assert network.conv1.weight is convolution
    assert {type(norm) for norm in norms(network)} == {TYPES[kind]}
    assert len(norms(network)) == 20
    network.train()(images(2, 64)).sum().backward()
    moved = [int(norm.num_batches_tracked) for norm in norms(network) if kind != "group"]
    assert set(moved) <= {1 if kind in ("batch", "sync") else 0}


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("kind", NORMS)
def test_the_type_of_numbers_stays_also_on_the_way_back_from_group_norm(kind, dtype):
    network = small().to(dtype)
    set_norm_(network, "group")
    set_norm_(network, kind)
    assert {t.dtype for t in network.state_dict().values() if t.is_floating_point()} == {dtype}


def test_a_device_stays():
    with torch.device("meta"):
        network = small()
    for kind in ("group", "batch"):
        set_norm_(network, kind)
        assert {tensor.device.type for tensor in network.state_dict().values()} == {"meta"}


def test_layers_without_weights_or_statistics_stay_without():
    network = nn.Sequential(nn.BatchNorm2d(16, affine=False), nn.BatchNorm2d(16, track_running_stats=False))
    set_norm_(network, "sync")
    assert network[0].weight is None
    assert network[1].running_mean is None
    set_norm_(network, "group")
    assert network[0].weight is None


def test_frozen_statistics_that_never_were_are_mean_0_and_variance_1():
    network = nn.Sequential(nn.BatchNorm2d(4, track_running_stats=False, eps=0.0))
    set_norm_(network, "frozen")
    features = torch.randn(2, 4, 3, 3)
    torch.testing.assert_close(network(features), features)


def test_other_layers_are_left_alone():
    network = nn.Sequential(nn.GroupNorm(2, 8), nn.BatchNorm1d(8), nn.InstanceNorm2d(8), nn.LayerNorm(8))
    layers = list(network)
    for kind in NORMS:
        set_norm_(network, kind)
    assert list(network) == layers


def test_a_layer_that_stands_in_two_places_remains_one():
    shared = nn.BatchNorm2d(8)
    network = nn.Sequential(shared, nn.Sequential(shared), shared)
    set_norm_(network, "group")
    assert network[0] is network[1][0] is network[2]
    assert isinstance(network[0], ChannelGroupNorm)


def test_what_cannot_be_replaced_is_refused():
    with pytest.raises(ValueError, match="norm = 'layer'; it should be one of batch, frozen, group, sync"):
        set_norm_(small(), "layer")
    with pytest.raises(ValueError, match="BatchNorm2d is a normalization layer itself"):
        set_norm_(nn.BatchNorm2d(3), "group")


def test_momentum_is_set_in_every_layer_and_outlives_group_norm():
    network = small()
    set_norm_(network, "group")
    set_momentum_(network, 0.2)
    set_norm_(network, "batch")
    assert {norm.momentum for norm in norms(network)} == {0.2}
    with torch.no_grad():
        norm = norms(network)[0]
        features = torch.randn(4, norm.num_features, 3, 3)
        norm.train()(features)
    torch.testing.assert_close(norm.running_mean, 0.2 * features.mean((0, 2, 3)))


@pytest.mark.parametrize(("kind", "expected"), [("batch", True), ("sync", True), ("frozen", False), ("group", False)])
def test_running_statistics_are_those_that_training_moves(kind, expected):
    network = small()
    set_norm_(network, kind)
    before = [buffer.clone() for buffer in network.buffers()]
    with torch.no_grad():
        network.train()(images())
    moved = any(not torch.equal(a, b) for a, b in zip(network.buffers(), before, strict=True))
    assert has_running_statistics(network) is moved is expected


def test_some_layers_alone_can_be_set_and_the_network_is_not_noted_as_another():
    network = build_network({"layers": [[-1, 1, "Conv", [8, 3, 4]], [-1, 1, "Classify", [16]]]}, ["a", "b"])
    before = dict(network.description)
    set_norm_(network, "frozen", only=["layers.0.norm"])
    kinds = {path: type(layer) for path, layer in network.named_modules() if path.endswith("norm")}
    assert kinds == {"layers.0.norm": FrozenBatchNorm, "layers.1.hidden.norm": nn.BatchNorm2d}
    assert network.description == before


def test_frozen_statistics_are_not_reset_by_who_estimates_them_anew():
    layer = FrozenBatchNorm(4)
    layer.running_mean.fill_(3.0)
    layer.reset_running_stats()
    assert (layer.running_mean == 3).all()
    assert (layer.running_var == 1).all()
