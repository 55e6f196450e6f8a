import pytest
import torch
from torch import nn

from visiontrain.models.build import build_network
from visiontrain.models.classifiers import build_classifier
from visiontrain.models.detectors import build_detector
from visiontrain.models.info import kept_bytes, model_info, training_bytes
from visiontrain.models.norm import NORMS, set_norm_


def test_a_convolution_costs_two_operations_for_each_weight_and_place():
    network = nn.Sequential(FromBytes(), nn.Conv2d(3, 5, 3, padding=1, bias=False))
    info = model_info(network, 16)
    assert info.gflops * 1e9 == 2 * 3 * 5 * 9 * 16 * 16
    assert (info.layers, info.parameters) == (2, 3 * 5 * 9)


def test_the_small_detector_keeps_its_budget():
    info = model_info(build_network("det-n", [str(index) for index in range(80)]), 640)
    assert info.parameters <= 2_700_000
    assert info.gflops <= 6.6
    assert str(info) == f"{info.layers} layers, {info.parameters:,} parameters, {info.gflops:.1f} GFLOPs at 640 pixels"


@pytest.mark.parametrize(
    ("build", "name", "imgsz"),
    [
        (build_detector, "det-n", 128),
        (build_detector, "det-resnet18", 64),
        (build_classifier, "cls-n", 64),
        (build_classifier, "resnet18", 64),
        (build_classifier, "mobilenet_v3_small", 64),  # depthwise convolutions
    ],
)
def test_operations_are_those_of_its_convolutions_and_linear_layers(build, name, imgsz):
    network = build(name, ("a", "b")).eval()
    operations = 0

    def count(layer, _inputs, outputs):
        nonlocal operations  # each number of the output is a sum over the weights of its channel
        operations += 2 * outputs.numel() * layer.weight[0].numel()

    for layer in network.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            layer.register_forward_hook(count)
    with torch.no_grad():
        network(torch.zeros(1, 3, imgsz, imgsz))
    assert operations > 0
    for layer in network.modules():
        layer._forward_hooks.clear()
    assert round(model_info(network, imgsz).gflops * 1e9) == operations


def test_attention_is_counted_too():
    network = build_classifier("vit_b_32", ("a", "b"), imgsz=32)
    tokens, width, layers = 2, 768, 12  # one patch, and the token of the class
    attention = layers * 2 * (2 * tokens**2 * width)  # scores, and the sums that they weigh
    products = layers * 2 * tokens * (4 * width**2 + 2 * width * 3072)  # four projections, and the two that follow
    ends = 2 * (width * 3 * 32**2 + width * 2)
    assert round(model_info(network, 32).gflops * 1e9) == attention + products + ends


def test_measuring_leaves_the_network_as_it_was():
    network = build_network("det-n", ("a",)).train()
    network.layers[0].eval()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    model_info(network, 64)
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    assert network.training
    assert not network.layers[0].training
    assert network.layers[1].norm.training


def test_what_a_pass_keeps_is_counted_once_without_the_weights():
    class Square(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(1))

        def forward(self, images):
            scaled = images * self.scale  # keeps the images
            left, right = (scaled * 1.0).chunk(2, dim=-1)
            return left * right  # keeps both halves of one tensor

    images = 4 * 3 * 16 * 16  # bytes of one
    assert kept_bytes(Square(), 16) == 2 * images


def test_a_checkpointed_pass_keeps_what_layers_hand_to_each_other():
    layers = [[-1, 1, "Conv", [16, 3, 2]], [-1, 1, "Conv", [32, 3, 2]], [[0, 1], 1, "Detect", []]]
    network = build_network({"layers": layers}, ("a",))
    plain = kept_bytes(network, 64)
    network.checkpoint_activations = True
    handed = 4 * (3 * 64 * 64 + 16 * 32 * 32 + 32 * 16 * 16)  # the images and both maps
    assert handed <= kept_bytes(network, 64) <= 1.1 * handed
    assert plain > 3 * handed


@pytest.mark.parametrize("kind", NORMS)
@pytest.mark.slow
def test_checkpointing_takes_less_memory_whatever_the_normalization(kind):
    network = build_network("det-n", ("a",))
    set_norm_(network, kind)
    plain = training_bytes(network, 320, 8)
    network.checkpoint_activations = True
    assert 0.4 * plain < training_bytes(network, 320, 8) < 0.9 * plain


@pytest.mark.slow
def test_estimates_of_the_small_detector_are_near_what_was_measured():
    """Peaks above the weights, gradients and optimizer's state, MB: `python -m benchmarks checkpointing`."""
    network = build_network("det-n", ("a", "b", "c"))
    state = 5 * sum(parameter.nbytes for parameter in network.parameters())
    for checkpointed, measured in ((False, {4: 174, 8: 346}), (True, {4: 126, 8: 276})):
        network.checkpoint_activations = checkpointed
        for batch, peak in measured.items():
            assert (training_bytes(network, 320, batch) - state) / 2**20 == pytest.approx(peak, rel=0.1)


def test_the_layers_one_by_one_keep_another_map_for_each_convolution():
    layers = [[-1, 1, "Conv", [16, 3, 2]], [-1, 1, "Conv", [32, 3, 2]], [[0, 1], 1, "Detect", []]]
    network = build_network({"layers": layers}, ("a",))
    trunk = 4 * (16 * 32 * 32 + 32 * 16 * 16)
    more = kept_bytes(network, 64, in_one_step=False) - kept_bytes(network, 64)
    assert more > trunk  # and that of the head's layers
    assert training_bytes(network, 64, 8, in_one_step=False) > training_bytes(network, 64, 8)


def test_a_pass_in_double_precision_takes_twice_the_memory():
    network = build_network("det-n", ("a",))
    single = training_bytes(network, 320, 4)
    assert training_bytes(network, 320, 4, bytes_per_value=8) == pytest.approx(2 * single)
    assert training_bytes(network.double(), 320, 4, bytes_per_value=8) == pytest.approx(2 * single, rel=0.01)


def test_estimating_leaves_the_network_as_it_was():
    network = build_network("det-n", ("a",)).eval()
    network.checkpoint_activations = True
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    training_bytes(network, 320, 4)
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    assert network.checkpoint_activations
    assert not network.training
    assert not any(module._forward_pre_hooks for module in network.modules())


class FromBytes(nn.Module):
    def forward(self, images):
        return images.float()


def test_estimating_draws_nothing_from_the_random_state():
    """Else a run that goes on would drop out other features than one that was never stopped."""
    network = nn.Sequential(FromBytes(), nn.Conv2d(3, 4, 3), nn.Dropout(0.5))
    before = torch.get_rng_state()
    assert kept_bytes(network, 32) > 0
    assert torch.equal(torch.get_rng_state(), before)
