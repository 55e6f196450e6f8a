import weakref
from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import visiontrain.models.network as network_module
from visiontrain.models.build import build_network
from visiontrain.models.layers import ConvNorm
from visiontrain.models.norm import NORMS, set_norm_
from visiontrain.models.recompute import RecomputedChain, chain_blocks_, recompute

LAYERS = [
    [-1, 1, "Conv", [16, 3, 2]],
    [-1, 1, "CSPStage", [32, True]],
    [-1, 1, "Conv", [32, 3, 2]],
    [-1, 1, "PyramidPool", [32]],
    [-1, 1, "Upsample", []],
    [[-1, 1], 1, "Concat", []],
    [-1, 1, "CSPStage", [32]],
    [[6, 3], 1, "Detect", []],
]


def twins(kind="batch", *, change=lambda network: None):
    """The same network twice, the second of which recomputes."""
    torch.manual_seed(0)
    plain = build_network({"layers": LAYERS}, ("a", "b"))
    change(plain)
    set_norm_(plain, kind)
    checkpointed = deepcopy(plain)
    checkpointed.checkpoint_activations = True
    return plain.train(), checkpointed.train()


def images(dtype=torch.float32):
    return torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)


def train_pass(network, pictures, *, autocast=False):
    torch.manual_seed(2)  # for dropout
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        outputs = network(pictures)
    (outputs.box_logits.double().square().mean() + outputs.class_logits.double().square().mean()).backward()
    return outputs


def assert_twins_agree(plain, checkpointed):
    for (name, a), b in zip(plain.named_parameters(), checkpointed.parameters(), strict=True):
        assert torch.equal(a.grad.isnan(), b.grad.isnan()), name
        assert torch.equal(a.grad.nan_to_num(), b.grad.nan_to_num()), name
    for (name, a), b in zip(plain.named_buffers(), checkpointed.buffers(), strict=True):
        assert torch.equal(a.isnan(), b.isnan()), name
        assert torch.equal(a.nan_to_num(), b.nan_to_num()), name


@pytest.mark.parametrize(
    ("memory_format", "autocast"),
    [(torch.contiguous_format, False), (torch.channels_last, False), (torch.channels_last, True)],
)
@pytest.mark.parametrize("kind", NORMS)
@pytest.mark.slow
def test_gradients_and_running_statistics_are_those_of_the_plain_pass_bit_for_bit(kind, memory_format, autocast):
    plain, checkpointed = (network.to(memory_format=memory_format) for network in twins(kind))
    pictures = images().to(memory_format=memory_format)
    for _ in range(2):
        a, b = (train_pass(network, pictures, autocast=autocast) for network in (plain, checkpointed))
        assert torch.equal(a.class_logits, b.class_logits)
        assert a.class_logits.stride() == b.class_logits.stride()
    assert_twins_agree(plain, checkpointed)
    counts = {int(module.num_batches_tracked) for module in checkpointed.modules() if has_count(module)}
    assert counts == {"batch": {2}, "sync": {2}, "frozen": {0}, "group": set()}[kind]


def has_count(module):
    return isinstance(module, nn.modules.batchnorm._BatchNorm)


@pytest.mark.parametrize("kind", NORMS)
def test_gradients_agree_in_double_precision(kind):
    plain, checkpointed = (network.double() for network in twins(kind))
    for network in (plain, checkpointed):
        train_pass(network, images(torch.float64))
    assert_twins_agree(plain, checkpointed)


def test_plain_checkpointing_would_move_the_statistics_twice(monkeypatch):
    """The reason for `recompute`; where this fails, torch has mended it."""
    _, checkpointed = twins()
    monkeypatch.setattr(network_module, "recompute", lambda *args: checkpoint(*args, use_reentrant=False))
    train_pass(checkpointed, images())
    assert checkpointed.layers[0].norm.num_batches_tracked == 2


@pytest.mark.parametrize("poison", [float("inf"), float("nan")])
def test_activations_that_are_not_finite_pass_as_they_would(poison):
    plain, checkpointed = twins()
    pictures = images()
    pictures[0, 0, 0, 0] = poison
    for network in (plain, checkpointed):
        train_pass(network, pictures)
    assert not plain.layers[0].norm.running_mean.isfinite().all()
    assert_twins_agree(plain, checkpointed)


def test_dropout_is_drawn_once():
    def put_dropout(network):
        network.layers[1] = nn.Sequential(network.layers[1], nn.Dropout(0.5))

    plain, checkpointed = twins(change=put_dropout)
    states = []
    for network in (plain, checkpointed):
        train_pass(network, images())
        states.append(torch.get_rng_state())
    assert torch.equal(*states)
    assert_twins_agree(plain, checkpointed)


def test_a_layer_whose_buffers_decide_its_outputs_computes_the_same_twice():
    def normalize_spectrum(network):
        nn.utils.parametrizations.spectral_norm(network.layers[0].conv)  # each pass improves its estimate in a buffer

    plain, checkpointed = twins(change=normalize_spectrum)
    for network in (plain, checkpointed):
        train_pass(network, images())
    assert_twins_agree(plain, checkpointed)


def test_buffers_stay_the_same_objects_and_are_written_by_the_first_pass_only():
    _, checkpointed = twins()
    buffers = list(checkpointed.buffers())
    torch.manual_seed(2)
    outputs = checkpointed(images())
    versions = [buffer._version for buffer in buffers]
    (outputs.box_logits.square().mean() + outputs.class_logits.mean()).backward()
    assert all(a is b for a, b in zip(checkpointed.buffers(), buffers, strict=True))
    assert [buffer._version for buffer in buffers] == versions


def test_two_passes_may_go_before_their_backward_passes():
    plain, checkpointed = twins()
    for network in (plain, checkpointed):
        outputs = [network(pictures) for pictures in (images(), 1 - images())]
        for each in outputs:
            (each.box_logits.square().mean() + each.class_logits.square().mean()).backward()
    assert_twins_agree(plain, checkpointed)


def test_backward_may_be_run_again():
    torch.manual_seed(0)
    stage = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.SiLU())
    images = torch.randn(2, 3, 8, 8)
    total = recompute(stage, images).square().sum()
    first = torch.autograd.grad(total, list(stage.parameters()), retain_graph=True)
    second = torch.autograd.grad(total, list(stage.parameters()))
    assert all(map(torch.equal, first, second))
    assert stage[1].num_batches_tracked == 1


def test_an_error_in_the_second_pass_puts_the_buffers_back():
    class Fails(nn.Module):
        is_second = False

        def forward(self, features):
            if self.is_second:
                raise RuntimeError("out of memory")
            return features

    stage = nn.Sequential(ConvNorm(3, 4), Fails(), ConvNorm(4, 4))
    buffers = list(stage.buffers())
    loss = recompute(stage, images()).sum()
    values = [buffer.clone() for buffer in buffers]
    stage[1].is_second = True
    with pytest.raises(RuntimeError, match="out of memory"):
        loss.backward()
    for buffer, own, value in zip(stage.buffers(), buffers, values, strict=True):
        assert buffer is own
        assert torch.equal(buffer, value)


@pytest.mark.parametrize(("mode", "grad", "asked"), [(True, True, True), (True, False, False), (False, True, False)])
def test_layers_with_weights_are_recomputed_in_training_with_gradients_only(monkeypatch, mode, grad, asked):
    _, checkpointed = twins()
    seen = []
    monkeypatch.setattr(network_module, "recompute", lambda layer, *inputs: (seen.append(layer), layer(*inputs))[1])
    checkpointed.train(mode)
    with torch.set_grad_enabled(grad):
        checkpointed(images())
    with_weights = [layer for layer in checkpointed.layers if list(layer.parameters())]
    assert seen == (with_weights if asked else [])
    assert len(with_weights) == len(checkpointed.layers) - 2  # Upsample and Concat


def test_activations_inside_a_stage_are_gone_after_the_first_pass_and_the_second_one():
    kept = []

    class Watched(nn.Module):
        def forward(self, features):
            inner = features.exp()
            kept.append(weakref.ref(inner))
            return inner.sin()

    stage = nn.Sequential(Watched(), nn.Conv2d(3, 2, 1))
    loss = recompute(stage, images()).sum()
    assert [reference() for reference in kept] == [None]
    loss.backward()
    assert [reference() for reference in kept] == [None, None]


def test_any_stage_of_any_module_can_be_recomputed():
    torch.manual_seed(0)
    stage = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Dropout(0.5))
    twin = deepcopy(stage)
    for run in (stage, lambda pictures: recompute(twin, pictures)):
        torch.manual_seed(3)
        run(images()).square().sum().backward()
    assert_twins_agree(stage, twin)


class Residual(nn.Module):
    """A block whose Sequential is its own business."""

    def __init__(self):
        super().__init__()
        self.branch = nn.Sequential(nn.Sequential(nn.Conv2d(4, 4, 1)), nn.BatchNorm2d(4))

    def forward(self, features):
        return features + self.branch(features)


def chained():
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True)),  # no blocks
        nn.Sequential(Residual(), nn.Sequential(Residual(), Residual()), nn.BatchNorm2d(4), nn.Dropout(0.5)),
    )
    before = network.state_dict()
    chain_blocks_(network)
    assert list(network.state_dict()) == list(before)
    return network


def test_chains_are_made_of_sequentials_that_hold_blocks_and_of_those_in_them_only():
    network = chained()
    outer = network[1]
    assert type(network[0]) is nn.Sequential
    assert (type(outer), type(outer[1]), type(outer[0].branch)) == (RecomputedChain, RecomputedChain, nn.Sequential)
    assert (outer.blocks, outer[1].blocks) == ([outer[0]], list(outer[1]))


def test_a_chain_computes_what_its_sequential_did_and_recomputes_when_told():
    plain = chained()
    checkpointed = deepcopy(plain)
    seen = []
    for chain in (checkpointed[1], checkpointed[1][1]):
        chain.recomputes = True
        for block in chain.blocks:
            block.register_forward_pre_hook(lambda *_: seen.append(1))
    for network in (plain, checkpointed):
        torch.manual_seed(3)
        network(images()).square().sum().backward()
    assert_twins_agree(plain, checkpointed)
    assert len(seen) == 2 * 3  # forward and again
    with torch.no_grad():
        checkpointed(images())
    checkpointed.eval()(images())
    assert len(seen) == 2 * 3 + 2 * 3
