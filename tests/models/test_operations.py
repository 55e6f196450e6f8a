import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from visiontrain.models.operations import OperationCounter

IMAGES = torch.zeros(2, 4, 8, 8)


@pytest.mark.parametrize(
    "compute",
    [
        nn.Conv2d(4, 6, 3, stride=2, padding=1),
        nn.Conv2d(4, 8, 3, groups=2),
        nn.Conv2d(4, 4, 3, dilation=2, bias=False),
        nn.ConvTranspose2d(4, 6, 2, stride=2),
        nn.Sequential(nn.Flatten(), nn.Linear(256, 5)),
        nn.Sequential(nn.Flatten(), nn.Linear(256, 5, bias=False)),
        lambda images: images[0] @ images[0],
        lambda images: torch.baddbmm(images[0], images[0], images[0]),
        lambda images: nn.functional.silu(images),
    ],
)
def test_operations_are_those_that_torch_counts(compute):
    with FlopCounterMode(display=False) as theirs:
        compute(IMAGES)
    with OperationCounter() as ours:
        compute(IMAGES)
    assert ours.total == theirs.get_total_flops()


def test_what_is_counted_comes_out_as_ever():
    layer = nn.Conv2d(4, 6, 3)
    with OperationCounter():
        counted = layer(IMAGES)
    assert torch.equal(counted, layer(IMAGES))
    layer(IMAGES)
