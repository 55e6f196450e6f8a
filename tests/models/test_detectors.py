"""Our neck and head on torchvision's networks: names, weights, normalization, everything a network of ours can."""

from __future__ import annotations

from copy import deepcopy
from functools import cache

import pytest
import torch
import torchvision

from visiontrain.errors import ConfigError
from visiontrain.models.anatomy import anatomy_of
from visiontrain.models.build import build_network
from visiontrain.models.classifiers import build_classifier, task_of_network
from visiontrain.models.detectors import build_detector, describe, torchvision_detectors
from visiontrain.models.download import cached_file
from visiontrain.models.heads import decode_boxes
from visiontrain.models.info import training_bytes
from visiontrain.models.norm import ChannelGroupNorm, FrozenBatchNorm, set_norm_
from visiontrain.models.pretrained import fetch_pretrained_
from visiontrain.models.transfer import transfer_

NAMES = ("a", "b", "c")
SMALL = "mobilenet_v3_small"
QUICK = ("resnet18", SMALL)
SLOW = (
    *("mobilenet_v3_large", "mobilenet_v2", "efficientnet_b0", "convnext_tiny", "regnet_y_400mf", "densenet121"),
    *("mnasnet0_5", "resnet50", "shufflenet_v2_x1_0", "vgg11_bn", "wide_resnet50_2"),
)


@pytest.fixture(scope="module")
def built():
    """A function that gives a copy of a network that was built once."""
    networks = {}

    def copy_of(backbone=SMALL):
        if backbone not in networks:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                networks[backbone] = build_detector(f"det-{backbone}", NAMES)
        return deepcopy(networks[backbone])

    return copy_of


def images(size=64, count=2):
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8, generator=generator)


@cache
def theirs(backbone):
    """Weights of torchvision's network whose every number is its own."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        state = torchvision.models.get_model(backbone, weights=None).state_dict()
        return {
            name: torch.rand_like(tensor) if tensor.is_floating_point() else tensor for name, tensor in state.items()
        }


def backbone_state(network):
    """The tensors of the four parts, by torchvision's names."""
    return {name: tensor for layer in list(network.layers)[:4] for name, tensor in layer.state_dict().items()}


@pytest.mark.parametrize("backbone", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_a_detector_gives_boxes_at_three_strides_and_all_of_it_learns(built, backbone):
    network = built(backbone)
    assert (network.task, network.names, network.strides) == ("detect", NAMES, (8, 16, 32))
    outputs = network.train()(images())
    assert decode_boxes(outputs).shape == (2, 8 * 8 + 4 * 4 + 2 * 2, 4)
    assert outputs.class_logits.shape[-1] == len(NAMES)
    (outputs.box_logits.square().sum() + outputs.class_logits.square().sum()).backward()
    assert all(parameter.grad is not None for parameter in network.parameters())
    assert network.double().eval()(images()).box_logits.dtype == torch.float64


def test_a_description_makes_the_same_network_again_and_holds_plain_values_only(built, tmp_path):
    network = built().eval()
    torch.save(network.description, tmp_path / "description.pt")
    twin = build_network(torch.load(tmp_path / "description.pt", weights_only=True), NAMES).eval()
    twin.load_state_dict(dict(network.state_dict()))
    assert twin.description == network.description
    assert torch.equal(twin(images()).box_logits, network(images()).box_logits)


def test_images_are_normalized_as_the_weights_want_it_and_that_is_in_the_description(built):
    network = built()
    transform = torchvision.models.MobileNet_V3_Small_Weights.DEFAULT.transforms()
    assert network.description["normalize"] == {"mean": list(transform.mean), "std": list(transform.std)}
    expected = torchvision.transforms.functional.normalize(images() / 255, transform.mean, transform.std)
    torch.testing.assert_close(network.prepare(images()), expected)
    assert not any(name in ("mean", "std") for name in network.state_dict())


@pytest.mark.parametrize(
    "normalize",
    [None, {}, {"mean": [0.5] * 3}, {"mean": [0.5] * 3, "std": [0.5, 0.5, 0]}, {"mean": [-1] * 3, "std": [1] * 3}],
)
def test_a_normalization_that_is_none_is_refused(normalize):
    rows = [[-1, 1, "Conv", [16, 3, 8]], [-1, 1, "Detect", []]]
    with pytest.raises(ConfigError, match=r"normalize is .*; it should be mean: and std:"):
        build_network({"layers": rows, "normalize": normalize}, NAMES)


@pytest.mark.parametrize("backbone", QUICK)
def test_weights_in_the_folder_of_torchvision_become_every_tensor_of_the_backbone(
    built, backbone, tmp_path, monkeypatch
):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    file = cached_file(torchvision.models.get_model_weights(backbone).DEFAULT.url)
    file.parent.mkdir(parents=True)
    torch.save(theirs(backbone), file)
    network = built(backbone)
    before = deepcopy(network.state_dict())
    fresh = fetch_pretrained_(network)
    loaded = backbone_state(network)
    assert {name for name in theirs(backbone) if name.split(".")[0] not in ("fc", "classifier")} == set(loaded)
    assert all(torch.equal(tensor, theirs(backbone)[name]) for name, tensor in loaded.items())
    assert list(fresh) == [name for name in before if int(name.split(".")[1]) >= 4]
    after = network.state_dict()
    assert all(torch.equal(after[name], before[name]) for name in fresh)


def test_weights_that_do_not_fit_leave_the_network_as_it_was(built, monkeypatch):
    weights = {name: tensor for name, tensor in theirs(SMALL).items() if name != "features.0.0.weight"}
    monkeypatch.setattr("visiontrain.models.pretrained.torchvision_weights", lambda name: weights)
    network = built()
    before = deepcopy(network.state_dict())
    with pytest.raises(ConfigError, match=r"1 missing \(layers\.0\.features\.0\.0\.weight\)"):
        fetch_pretrained_(network)
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())


@pytest.mark.parametrize("prefix", ["", "module.", "network."])
def test_a_file_of_torchvisions_names_and_a_classifier_of_ours_become_the_backbone(built, prefix):
    network = built()
    weights = {f"{prefix}{name}": tensor for name, tensor in theirs(SMALL).items()}
    transfer = transfer_(network, weights, names=None, source="file")
    assert all(torch.equal(tensor, theirs(SMALL)[name]) for name, tensor in backbone_state(network).items())
    assert set(transfer.unused) == {name for name in theirs(SMALL) if name.startswith("classifier.")}
    assert all(int(name.split(".")[1]) >= 4 for name in transfer.missing)


def test_weights_of_the_same_detector_are_taken_whole(built):
    network, other = built(), built().double().float()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(1)
    transfer = transfer_(network, other.state_dict(), names=NAMES, source="file")
    assert (transfer.missing, transfer.unused, transfer.kept) == ((), (), NAMES)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(network.parameters(), other.parameters(), strict=True))


def test_the_backbone_is_what_torchvision_has_weights_for(built):
    anatomy = anatomy_of(built("resnet18"))
    backbone = anatomy.layers[: anatomy.num_backbone]
    assert backbone[:3] == ("layers.0.conv1", "layers.0.bn1", "layers.0.layer1.0")
    assert backbone[-1] == "layers.3.layer4.1"
    assert anatomy.layers[anatomy.num_backbone] == "layers.4"
    inside = {name for name in built("resnet18").state_dict() if anatomy.layer_of(name) < anatomy.num_backbone}
    assert inside == {name for name in built("resnet18").state_dict() if int(name.split(".")[1]) < 4}


def test_normalization_layers_can_be_set_in_the_backbone_too(built):
    network = built()
    set_norm_(network, "group")
    assert network(images(count=1)).box_logits.isfinite().all()  # in training mode, of one image
    assert any(isinstance(layer, ChannelGroupNorm) for layer in network.layers[0].modules())
    twin = build_network(network.description, NAMES)
    twin.load_state_dict(network.state_dict())
    frozen = built()
    set_norm_(frozen, "frozen")
    before = deepcopy(frozen.state_dict())
    frozen.train()(images())
    assert any(isinstance(layer, FrozenBatchNorm) for layer in frozen.layers[0].modules())
    assert all(torch.equal(tensor, before[name]) for name, tensor in frozen.state_dict().items())


def test_recomputing_activations_gives_the_same_gradient_and_statistics(built):
    gradients = []
    for recomputes in (False, True):
        network = built().train()
        network.checkpoint_activations = recomputes
        network(images()).box_logits.square().sum().backward()
        gradients.append([parameter.grad for parameter in network.layers[0].parameters()])
        gradients[-1] += [buffer.clone() for buffer in network.buffers()]
    assert all(torch.equal(kept, again) for kept, again in zip(*gradients, strict=True))


@pytest.mark.slow
def test_the_estimate_of_memory_grows_with_the_batch(built):
    one, two = (training_bytes(built(), 64, batch) for batch in (1, 2))
    assert one < two < 2 * one


def test_the_neck_grows_with_the_backbone(built):
    scales = {name: describe(name)["scale"] for name in QUICK}
    assert scales == {"resnet18": "s", SMALL: "n"}


def test_names_are_known_where_a_model_is_named():
    assert {"det-resnet18", "det-resnet50", "det-convnext_tiny", "det-vgg16_bn"} <= set(torchvision_detectors())
    assert task_of_network("det-resnet18") == "detect"
    assert build_detector("det-n", NAMES).strides == (8, 16, 32)
    with pytest.raises(ConfigError, match="model = 'det-resnet18': is no classifier"):
        build_classifier("det-resnet18", NAMES)


@pytest.mark.parametrize("ask", [task_of_network, lambda name: build_detector(name, NAMES)])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("det-resnet81", "is neither a detector's name nor a YAML file's path; the nearest are det-resnet18,"),
        ("det-q", "the nearest are det-"),
        ("det-yyyyyyyy", "choose det-n to det-x, or one such as det-resnet18"),
        ("det-swin_t", "the features of swin_t do not come as maps of strides 4, 8, 16 and 32"),
    ],
)
def test_a_name_that_is_none_is_refused_with_the_nearest(ask, name, message):
    with pytest.raises(ConfigError, match=message):
        ask(name)


def test_a_classifier_of_a_file_is_no_detector(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text("layers: [[-1, 1, Conv, [16, 3, 2]], [-1, 1, Classify, [32]]]", encoding="utf-8")
    with pytest.raises(ConfigError, match="is a network for 'classify'; name a detector such as det-n"):
        build_detector(str(path), NAMES)
