from copy import deepcopy

import pytest
import torch
from torch import nn

from visiontrain.models.info import kept_bytes
from visiontrain.models.layers import ConvNorm
from visiontrain.models.norm import set_norm_
from visiontrain.models.norm_silu import norm_silu


def random_map(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def some_norm(channels=6, dtype=torch.float64):
    norm = nn.BatchNorm2d(channels, eps=1e-3, momentum=0.03, dtype=dtype)
    with torch.no_grad():
        norm.weight.copy_(random_map(channels, seed=1))
        norm.bias.copy_(random_map(channels, seed=2))
    return norm


def both_ways(norm, features, upstream, *, autocast=False):
    """Output, gradients and buffers: in one step, and by the two layers."""
    found = []
    for make in (norm_silu, lambda norm, act, features: act(norm(features))):
        layer, given = deepcopy(norm), features.clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            output = make(layer, nn.SiLU(inplace=True), given)
        output.backward(upstream)
        found.append((output.detach(), given.grad, layer.weight.grad, layer.bias.grad, *layer.buffers()))
    return zip(*found, strict=True)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-4), (torch.bfloat16, 0.1)])
def test_one_step_is_both_layers_to_rounding(memory_format, dtype, tolerance):
    features, upstream = (random_map(4, 6, 9, 7, seed=seed, dtype=dtype) for seed in (3, 4))
    features, upstream = (each.contiguous(memory_format=memory_format) for each in (features, upstream))
    norm = some_norm(dtype=torch.float32 if dtype == torch.bfloat16 else dtype)
    for one, two in both_ways(norm, features, upstream, autocast=dtype == torch.bfloat16):
        assert one.dtype == two.dtype
        torch.testing.assert_close(one, two, rtol=tolerance, atol=tolerance)


def test_the_output_and_the_running_statistics_are_those_of_the_layers_to_the_bit():
    features, upstream = (random_map(4, 6, 9, 7, seed=seed, dtype=torch.float32) for seed in (3, 4))
    output, *_, mean, var, count = both_ways(some_norm(dtype=torch.float32), features, upstream)
    assert all(torch.equal(one, two) for one, two in (output, mean, var, count))


def test_gradients_are_those_of_finite_differences():
    norm, features = some_norm(channels=3), random_map(2, 3, 4, 3).requires_grad_()

    def output(features, weight, bias):
        layer = some_norm(channels=3)
        del layer.weight, layer.bias
        layer.weight, layer.bias = weight, bias
        return norm_silu(layer, nn.SiLU(), features)

    assert type(output(features, norm.weight, norm.bias).grad_fn).__name__ == "_NormSiLUBackward"
    assert torch.autograd.gradcheck(output, (features, norm.weight, norm.bias))


def test_a_channel_that_is_almost_constant_keeps_its_gradient():
    features = 1 + 1e-9 * random_map(4, 6, 9, 7, seed=3)
    for one, two in both_ways(some_norm(), features, random_map(4, 6, 9, 7, seed=4)):
        torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-9)


def test_one_map_is_kept_in_place_of_two():
    layer, size = ConvNorm(8, 8), 32
    whole_map = 8 * size**2 * 4
    listened = deepcopy(layer)
    listened.norm.register_forward_hook(lambda *_: None)
    assert kept_bytes(nn.Sequential(ConvNorm(3, 8), listened), size) == pytest.approx(
        kept_bytes(nn.Sequential(ConvNorm(3, 8), layer), size) + whole_map, rel=0.01
    )


def test_the_statistics_of_weights_that_do_not_learn_are_no_gradients():
    norm = some_norm().requires_grad_(False)
    features = random_map(4, 6, 9, 7).requires_grad_()
    norm_silu(norm, nn.SiLU(), features).sum().backward()
    assert features.grad is not None
    assert norm.weight.grad is None


@pytest.mark.parametrize("kind", ["frozen", "group"])
def test_other_normalizations_go_their_own_way(kind):
    layer = ConvNorm(3, 16).train()
    set_norm_(layer, kind)
    images = random_map(2, 3, 8, 8, dtype=torch.float32)
    expected = layer.act(layer.norm(layer.conv(images)))
    torch.testing.assert_close(layer(images), expected, rtol=0, atol=0)


def test_in_a_process_alone_sync_is_batch_to_the_bit():
    batch, images = ConvNorm(3, 16).train(), random_map(2, 3, 8, 8, dtype=torch.float32)
    sync = deepcopy(batch)
    set_norm_(sync, "sync")
    for layer in (batch, sync):
        layer(images).square().sum().backward()
    gradients = ([param.grad for param in layer.parameters()] for layer in (batch, sync))
    assert all(torch.equal(one, two) for one, two in zip(*gradients, strict=True))


def test_with_others_sync_is_left_to_exchange(monkeypatch):
    asked = []
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(nn.SyncBatchNorm, "forward", lambda norm, features: asked.append(norm) or features)
    layer = ConvNorm(3, 16).train()
    set_norm_(layer, "sync")
    layer(random_map(2, 3, 8, 8, dtype=torch.float32))
    assert asked == [layer.norm]


def test_evaluation_normalizes_by_the_running_statistics():
    layer = ConvNorm(3, 4).eval()
    images = random_map(2, 3, 8, 8, dtype=torch.float32)
    torch.testing.assert_close(layer(images), layer.act(layer.norm(layer.conv(images))), rtol=0, atol=0)
    assert layer.norm.num_batches_tracked == 0


def test_a_channel_of_a_single_value_is_refused_as_ever():
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        ConvNorm(3, 4, kernel=1)(torch.zeros(1, 3, 1, 1))


def test_whoever_listens_to_a_layer_hears_it():
    layer, heard = ConvNorm(3, 4), []
    layer.norm.register_forward_hook(lambda *_: heard.append("norm"))
    layer.act.register_forward_hook(lambda *_: heard.append("act"))
    layer(torch.zeros(2, 3, 8, 8))
    assert heard == ["norm", "act"]
