"""torchvision's networks as networks of ours: names, heads, sizes, dropout, normalization, recomputing."""

from copy import deepcopy

import pytest
import torch
from torch import nn
from torchvision import models

from visiontrain.errors import ConfigError
from visiontrain.models.info import kept_bytes, model_info, training_bytes
from visiontrain.models.norm import ChannelGroupNorm, set_norm_
from visiontrain.models.torchvision_models import (
    DropoutLinear,
    build_torchvision,
    fixed_size_of,
    last_layer,
    normalization_of,
    torchvision_names,
)

NAMES = ("a", "b", "c")
FAMILIES = {  # the smallest of each, and an image size that it takes
    "alexnet": 64,
    "convnext_tiny": 32,
    "densenet121": 32,
    "efficientnet_b0": 32,
    "googlenet": 32,
    "inception_v3": 80,
    "maxvit_t": 224,
    "mnasnet0_5": 32,
    "mobilenet_v2": 32,
    "mobilenet_v3_small": 32,
    "regnet_x_400mf": 32,
    "regnet_y_400mf": 32,
    "resnet18": 32,
    "resnext50_32x4d": 32,
    "shufflenet_v2_x0_5": 32,
    "squeezenet1_1": 32,
    "swin_t": 32,
    "swin_v2_t": 32,
    "vgg11_bn": 32,
    "vit_b_32": 32,
    "wide_resnet50_2": 32,
}
WITHOUT_BLOCKS = ("alexnet", "inception_v3", "vgg11_bn")
IN_QUICK_TESTS = ("mobilenet_v3_small", "shufflenet_v2_x0_5", "squeezenet1_1")
QUICK_AND_SLOW = [name if name in IN_QUICK_TESTS else pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES]


def build(name, seed=0, **settings):
    settings.setdefault("imgsz", FAMILIES.get(name, 224))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build_torchvision(name, NAMES, **settings)


def images(size, count=2):
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8, generator=generator)


def test_every_classification_network_of_torchvision_has_a_family_that_is_tested_here():
    stems = {name.rstrip("0123456789_") for name in FAMILIES} | {name.split("_")[0] for name in FAMILIES}
    for name in torchvision_names():
        assert any(name.startswith(stem) for stem in stems | {"vgg", "resnext101", "wide_resnet101"}), name
    assert len(torchvision_names()) >= 80


@pytest.mark.parametrize("name", QUICK_AND_SLOW)
def test_a_network_gives_logits_of_its_classes_and_trains(name):
    size = FAMILIES[name]
    network = build(name)
    assert (network.task, network.names, network.multi_label) == ("classify", NAMES, False)
    logits = network.train()(images(size, count=4))
    assert logits.shape == (4, len(NAMES))
    logits.square().sum().backward()
    assert all(param.grad is not None for param in network.parameters())
    assert network.eval()(images(size)).shape == (2, len(NAMES))


@pytest.mark.parametrize("name", QUICK_AND_SLOW)
def test_a_description_makes_the_same_network_again_and_holds_plain_values_only(name, tmp_path):
    network = build(name, dropout=0.3, multi_label=True)
    torch.save(network.description, tmp_path / "description.pt")
    twin = build_torchvision(torch.load(tmp_path / "description.pt", weights_only=True), NAMES)
    plain = dict(network.state_dict())  # as a checkpoint has it: names and tensors alone
    twin.load_state_dict(plain)
    assert (twin.description, twin.multi_label) == (network.description, True)
    assert twin.fixed_size == network.fixed_size
    pictures = images(FAMILIES[name])
    assert torch.equal(twin.eval()(pictures), network.eval()(pictures))


@pytest.mark.parametrize("name", QUICK_AND_SLOW)
def test_recomputing_gives_the_gradients_and_statistics_of_the_plain_pass_bit_for_bit(name):
    plain = build(name).train()
    checkpointed = deepcopy(plain)
    if name in WITHOUT_BLOCKS:
        with pytest.raises(ConfigError, match=f"checkpoint_activations = True: {name} is not made of blocks"):
            checkpointed.checkpoint_activations = True
        return
    checkpointed.checkpoint_activations = True
    assert checkpointed.checkpoint_activations
    assert not plain.checkpoint_activations
    outputs = []
    for network in (plain, checkpointed):
        torch.manual_seed(2)  # for dropout and stochastic depth
        outputs.append(network(images(FAMILIES[name])))
        outputs[-1].square().sum().backward()
    assert torch.equal(*outputs)
    for (path, a), b in zip(plain.named_parameters(), checkpointed.parameters(), strict=True):
        assert torch.equal(a.grad, b.grad), path
    for (path, a), b in zip(plain.named_buffers(), checkpointed.buffers(), strict=True):
        assert torch.equal(a, b), path


@pytest.mark.parametrize("name", QUICK_AND_SLOW)
def test_no_images_at_all_give_logits_of_none_and_gradients_of_zero(name):
    network = build(name)
    for module in network.train().modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()  # as the training loop does it for such a batch
    logits = network(torch.zeros(0, 3, 0, 0, dtype=torch.uint8))
    assert logits.shape == (0, len(NAMES))
    logits.sum().backward()
    assert all(param.grad is not None and not param.grad.any() for param in network.parameters())


def test_recomputing_keeps_less():
    network = build("mobilenet_v3_small")
    plain = kept_bytes(network, 64)
    network.checkpoint_activations = True
    assert kept_bytes(network, 64) < 0.4 * plain
    network.checkpoint_activations = False
    assert kept_bytes(network, 64) == plain


@pytest.mark.slow
def test_memory_of_a_network_for_one_size_is_estimated_at_that_size():
    network = build("vit_b_32", imgsz=96)
    assert training_bytes(network, 96, 8) > training_bytes(network, 96, 1) > 0


def test_images_are_normalized_as_the_weights_of_torchvision_expect_it():
    network = build("resnet18").eval()
    picture = images(64, count=1)
    transform = models.ResNet18_Weights.DEFAULT.transforms(crop_size=64, resize_size=64)
    torch.testing.assert_close(network.prepare(picture), transform(picture))
    torch.testing.assert_close(network(picture), network.network(transform(picture)))
    assert not {"mean", "std"} & set(network.state_dict())
    assert normalization_of("efficientnet_v2_l") == ((0.5,) * 3, (0.5,) * 3)


def test_a_network_computes_in_the_type_of_its_weights():
    network = build("squeezenet1_1").double().eval()
    assert network(images(32)).dtype == torch.float64
    torch.testing.assert_close(network(images(32)), network(images(32).double() / 255))


def test_the_dropout_of_a_network_that_has_some_is_set_and_its_own_stays_where_none_is_given():
    assert [layer.p for layer in dropouts(build("mobilenet_v3_small"))] == [0.2]
    assert [layer.p for layer in dropouts(build("mobilenet_v3_small", dropout=0.5))] == [0.5]
    assert [layer.p for layer in dropouts(build("squeezenet1_1", dropout=0.0))] == [0.0]


def dropouts(network):
    return [layer for layer in network.modules() if isinstance(layer, nn.Dropout)]


def test_a_network_without_dropout_gets_it_before_its_last_layer_whose_weights_stay():
    name = "shufflenet_v2_x0_5"
    plain, network = build(name), build(name, dropout=0.5)
    assert isinstance(network.network.fc, DropoutLinear)
    assert network.state_dict().keys() == plain.state_dict().keys()
    assert torch.equal(network.eval()(images(32)), plain.eval()(images(32)))
    network.network.fc.train()
    torch.manual_seed(0)
    assert not torch.equal(network(images(32)), network(images(32)))
    assert type(build(name, dropout=0.0).network.fc) is nn.Linear


def test_the_last_layer_is_the_one_that_makes_the_logits():
    for name, path in {
        "shufflenet_v2_x0_5": "fc",
        "squeezenet1_1": "classifier.1",
        "mobilenet_v3_small": "classifier.3",
    }.items():
        assert last_layer(build(name).network) == path


def test_group_normalization_comes_back_from_the_description():
    network = build("shufflenet_v2_x0_5")
    set_norm_(network, "group")
    assert network.description["norm"] == "group"
    twin = build_torchvision(network.description, NAMES)
    assert any(isinstance(layer, ChannelGroupNorm) for layer in twin.modules())
    twin.load_state_dict(network.state_dict())


def test_building_draws_nothing_beyond_the_weights_from_the_random_state():
    torch.manual_seed(0)
    build_torchvision("squeezenet1_1", NAMES, imgsz=64)
    after = torch.get_rng_state()
    torch.manual_seed(0)
    build_torchvision("squeezenet1_1", NAMES)
    assert torch.equal(torch.get_rng_state(), after)


def test_size_and_cost_are_counted():
    info = model_info(build("squeezenet1_1"), 64)
    assert info.parameters == sum(param.numel() for param in models.squeezenet1_1(num_classes=3).parameters())
    assert info.gflops > 0


@pytest.mark.parametrize(
    ("name", "imgsz", "message"),
    [
        ("squeezenet1_1", 16, "imgsz = 16: is too small for squeezenet1_1, .* use 32 or more"),
        ("vit_b_32", 100, "imgsz = 100 is not a multiple of what vit_b_32 cuts images into, 32; use 96 or 128"),
        ("maxvit_t", 96, "imgsz = 96 is not a multiple .* 224; use 224"),
        ("resnet19", 64, "torchvision has no classification network of that name; the nearest are resnet1"),
        ("nothing like it", 64, "choose one such as resnet18"),
        ({"torchvision": "squeezenet1_1", "width": 2}, 64, "unknown key 'width'"),
        ({"torchvision": "resnet18", "task": "detect"}, 64, "task is 'detect'; resnet18 is for 'classify'"),
        ({"torchvision": "vit_b_32", "imgsz": "64"}, None, "imgsz is '64'; it should be a positive number of pixels"),
        ({"torchvision": "vit_b_32", "imgsz": -64}, None, "imgsz is -64; it should be a positive"),
        ({"torchvision": "vit_b_32", "imgsz": 64.0}, None, "imgsz is 64.0; it should be a positive"),
        ({"torchvision": "resnet18", "norm": "sync"}, 64, "norm is 'sync'; it should be batch or group"),
        ({"torchvision": "resnet18", "dropout": 1.0}, 64, "dropout is 1.0; it should be a number from 0 to below 1"),
        ({"torchvision": "resnet18", "multi_label": 1}, 64, "multi_label is 1; it should be true or false"),
    ],
)
def test_what_cannot_be_built_is_refused(name, imgsz, message):
    with pytest.raises(ConfigError, match=message):
        build_torchvision(name, NAMES, imgsz=imgsz)


def test_a_network_without_classes_is_refused():
    with pytest.raises(ConfigError, match="no class names"):
        build_torchvision("resnet18", ())


def test_a_network_takes_any_size_that_leaves_something_of_its_last_maps():
    network = build("squeezenet1_1")
    for size in (32, 33, 224):
        network.check_size(size)
    with pytest.raises(ConfigError, match="is too small"):
        network.check_size(15)


def test_where_probing_finds_no_size_at_all_none_is_refused(monkeypatch):
    network = build("squeezenet1_1")
    monkeypatch.setattr("visiontrain.models.torchvision_models.takes_size", lambda *_: False)
    network.check_size(64)


@pytest.mark.slow
def test_a_vision_transformer_takes_the_size_that_it_was_built_for_and_no_other():
    assert build("vit_b_32", imgsz=None).fixed_size == 224
    network = build("vit_b_32", imgsz=96)
    assert (network.fixed_size, network.strides, network.description["imgsz"]) == (96, (32,), 96)
    with pytest.raises(ConfigError, match="was built for images of 96 pixels and takes no others; use imgsz=96"):
        network.check_size(128)
    assert network(images(96)).shape == (2, 3)


def test_only_vision_transformers_are_for_one_size():
    assert {name for name in torchvision_names() if fixed_size_of(name)} == {
        name for name in torchvision_names() if name.startswith(("vit_", "maxvit_"))
    }
