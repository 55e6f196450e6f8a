import pytest
import torch

from visiontrain.models.layers import Concat, ConvNorm, DepthwiseSeparable, Upsample


@pytest.mark.parametrize(("kernel", "stride", "size"), [(1, 1, 8), (3, 1, 8), (3, 2, 4), (5, 2, 4)])
def test_a_convolution_keeps_the_grid_up_to_its_stride(kernel, stride, size):
    layer = ConvNorm(3, 6, kernel, stride)
    assert layer(torch.zeros(2, 3, 8, 8)).shape == (2, layer.out_channels, size, size)


def test_a_separable_convolution_has_one_filter_for_each_channel_and_one_weight_for_each_pair():
    layer = DepthwiseSeparable(10, 20)
    weights = sum(parameter.numel() for parameter in layer.parameters() if parameter.dim() == 4)
    assert weights == 10 * 9 + 10 * 20
    assert layer(torch.zeros(1, 10, 4, 4)).shape == (1, 20, 4, 4)


def test_upsampling_repeats_every_pixel_four_times():
    features = torch.arange(4.0).reshape(1, 1, 2, 2)
    doubled = Upsample(1)(features)
    torch.testing.assert_close(doubled, features.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3))


def test_joined_maps_stand_side_by_side_in_order():
    a, b = torch.zeros(1, 2, 3, 3), torch.ones(1, 1, 3, 3)
    layer = Concat(2, 1)
    assert layer.out_channels == 3
    assert layer(a, b)[0, :, 0, 0].tolist() == [0, 0, 1]
