from copy import deepcopy

import pytest
import torch

from visiontrain.errors import ConfigError
from visiontrain.models.build import build_network
from visiontrain.models.norm import set_norm_

NAMES = ("red", "white", "platelet")
NONE = torch.zeros(0, 3, 0, 0, dtype=torch.uint8)
"""The images of a process that has none."""


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return build_network("det-n", NAMES).eval()


@pytest.fixture(scope="module")
def images():
    return torch.randint(0, 256, (2, 3, 64, 96), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_a_detector_has_a_prediction_for_every_cell_of_every_level(network, images):
    outputs = network(images)
    cells = 8 * 12 + 4 * 6 + 2 * 3
    assert outputs.box_logits.shape == (2, cells, 64)
    assert outputs.class_logits.shape == (2, cells, len(NAMES))
    assert outputs.anchor_points.shape == (cells, 2)
    assert outputs.strides.shape == (cells, 1)
    assert (network.task, network.names, network.strides) == ("detect", NAMES, (8, 16, 32))


def test_bytes_and_their_fractions_are_the_same_image(network, images):
    for a, b in zip(network(images), network(images.float() / 255), strict=True):
        torch.testing.assert_close(a, b)


def test_training_and_evaluation_return_the_same_kind_of_outputs(network, images):
    evaluated = network(images)
    trained = build_network(network.description, NAMES).train()(images)
    assert type(trained) is type(evaluated)
    assert [tensor.shape for tensor in trained] == [tensor.shape for tensor in evaluated]


@pytest.mark.parametrize("norm", ["batch", "group", "frozen"])
@pytest.mark.parametrize("name", ["cls-n", pytest.param("det-n", marks=pytest.mark.slow), "two levels"])
def test_no_images_at_all_give_outputs_of_none_and_gradients_of_zero(name, norm, two_level_detector):
    network = two_level_detector if name == "two levels" else build_network(name, NAMES)
    set_norm_(network, norm)
    for module in network.train().modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.eval()  # as the training loop does it for such a batch
    outputs = network(NONE)
    tensors = [outputs] if isinstance(outputs, torch.Tensor) else [outputs.box_logits, outputs.class_logits]
    assert {len(tensor) for tensor in tensors} == {0}
    sum(tensor.sum() for tensor in tensors).backward()
    assert all(param.grad is not None and not param.grad.any() for param in network.parameters())


def test_no_images_at_all_are_as_large_as_the_largest_stride_asks():
    layers = [[-1, 1, "Conv", [8, 3, 2]]] * 6 + [[[4, 5], 1, "Detect", [4]]]
    network = build_network({"task": "detect", "layers": layers}, NAMES).eval()
    assert network.strides == (32, 64)
    assert network(NONE).class_logits.shape == (0, 8 * 8 + 4 * 4, len(NAMES))  # of 256 pixels


def test_memory_format_does_not_change_the_outputs(network, images):
    twin = build_network("det-n", NAMES).eval()
    twin.load_state_dict(network.state_dict())
    twin.to(memory_format=torch.channels_last)
    for a, b in zip(network(images), twin(images), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_a_network_computes_in_the_type_of_its_weights(images):
    network = build_network("det-n", NAMES).double().eval()
    assert {tensor.dtype for tensor in network(images)} == {torch.float64}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = build_network("det-n", NAMES).eval()(images)
    assert outputs.class_logits.dtype == torch.bfloat16
    assert outputs.anchor_points.dtype == torch.float32


def test_a_size_that_is_no_multiple_of_the_largest_stride_is_refused_with_the_nearest(network):
    network.check_size(64)
    with pytest.raises(
        ConfigError, match="imgsz = 100 is not a multiple of the network's largest stride, 32; use 96 or"
    ):
        network.check_size(100)
    with pytest.raises(ConfigError, match="use 32"):
        network.check_size(8)


def test_a_classifier_gives_logits_in_every_mode_and_can_be_exported():
    classifier = build_network(
        {"layers": [[-1, 1, "Conv", [16, 3, 4]], [-1, 1, "CSPStage", [16]], [-1, 1, "Classify", [32]]]}, NAMES
    ).eval()
    pictures = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    logits = classifier(pictures)
    assert logits.shape == (2, len(NAMES))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(classifier(pictures).float(), logits, atol=0.05, rtol=0.05)
    program = torch.export.export(classifier, (pictures,), strict=False)
    torch.testing.assert_close(program.module()(pictures), logits)
    assert deepcopy(classifier).double()(pictures).dtype == torch.float64


@pytest.mark.slow
def test_an_exported_program_gives_the_outputs_of_the_network(network, images):
    program = torch.export.export(network, (images,), strict=False)
    for a, b in zip(network(images), program.module()(images), strict=True):
        torch.testing.assert_close(a, b)
