import pytest
import torch
from torch import nn

from visiontrain.models.blocks import Bottleneck, CSPStage, PyramidPool


def test_a_bottleneck_whose_last_scale_is_zero_passes_its_input_only_with_a_shortcut():
    features = torch.randn(1, 4, 6, 6)
    for shortcut, expected in ((True, features), (False, torch.zeros_like(features))):
        block = Bottleneck(4, shortcut=shortcut)
        nn.init.zeros_(block.second.norm.weight)
        torch.testing.assert_close(block(features), expected)


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_the_fusion_of_a_stage_reads_both_halves_and_every_map_of_the_chain(depth):
    stage = CSPStage(6, 8, depth=depth)
    assert stage.fuse.conv.in_channels == (2 + depth) * 4
    output = stage(torch.randn(2, 6, 5, 5))
    assert output.shape == (2, 8, 5, 5)
    output.sum().backward()
    assert all(parameter.grad is not None for parameter in stage.parameters())


def test_chained_pooling_takes_the_maximum_over_5_9_and_13_pixels():
    pool = PyramidPool(2, 3).eval()
    seen = {}
    pool.fuse.register_forward_pre_hook(lambda _, inputs: seen.update(maps=inputs[0]))
    features = torch.randn(1, 2, 16, 16)
    pool(features)
    reduced = pool.reduce(features)
    wide = [nn.functional.max_pool2d(reduced, size, stride=1, padding=size // 2) for size in (5, 9, 13)]
    torch.testing.assert_close(seen["maps"], torch.cat([reduced, *wide], dim=1))
