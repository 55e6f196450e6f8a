"""The promise: the accumulated update of a real detector is the update of the full batch, however a window is cut."""

from __future__ import annotations

import pytest
import torch

from visiontrain.engine.window import GradientWindow
from visiontrain.losses.detection import DetectionCriterion
from visiontrain.models.build import build_network
from visiontrain.sample import Batch

NUM_IMAGES = 16
SIZE = 32
GAIN = 64.0
BOX_COUNTS = {
    "even": [3] * 16,
    "skewed": [1, 50, 0, 2, 9, 1, 1, 30, 0, 0, 4, 1, 2, 1, 17, 3],
    "one micro-batch empty": [2] * 8 + [0] * 4 + [5] * 4,
    "mostly background": [0] * 13 + [1, 0, 2],
    "nothing at all": [0] * 16,
}


def full_batch(counts) -> Batch:
    generator = torch.Generator().manual_seed(0)
    most = max(counts)
    corners = torch.rand(NUM_IMAGES, most, 2, generator=generator, dtype=torch.float64) * 16
    sides = 4 + torch.rand(NUM_IMAGES, most, 2, generator=generator, dtype=torch.float64) * 12
    classes = torch.randint(0, 3, (NUM_IMAGES, most), generator=generator)
    is_padding = torch.arange(most)[None] >= torch.tensor(counts)[:, None]
    return Batch(
        images=torch.randint(0, 256, (NUM_IMAGES, 3, SIZE, SIZE), generator=generator, dtype=torch.uint8),
        targets={
            "boxes": torch.cat([corners, corners + sides], dim=-1).masked_fill(is_padding[..., None], 0),
            "classes": classes.masked_fill(is_padding, -1),
        },
        paths=("",) * NUM_IMAGES,
        indices=tuple(range(NUM_IMAGES)),
        original_sizes=((SIZE, SIZE),) * NUM_IMAGES,
        matrices=torch.eye(3).expand(NUM_IMAGES, 3, 3),
    )


@pytest.fixture(scope="module")
def weights():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build_network("det-n", ("a", "b", "c")).state_dict()


def gradient_of(weights, batch: Batch, most: int, dtype: torch.dtype) -> torch.Tensor:
    """What a plain step of rate 1 moved, with the window cut into micro-batches of at most `most` images."""
    network = build_network("det-n", ("a", "b", "c"))
    network.load_state_dict(weights)
    network.to(dtype).eval()  # BatchNorm frozen
    optimizer = torch.optim.SGD(network.parameters(), lr=1.0)
    window = GradientWindow(optimizer, model=network, gain=GAIN)
    before = [param.detach().clone() for param in network.parameters()]
    window.open(len(batch))
    for part in batch.split(most):
        with window.micro_batch(last=part.is_last):
            window.add(DetectionCriterion()(network(part.images), part), num_images=len(part))
    assert window.step().applied
    moved = [(old - new.detach()).flatten() for old, new in zip(before, network.parameters(), strict=True)]
    return torch.cat(moved).double()


@pytest.mark.parametrize("name", BOX_COUNTS)
def test_the_update_does_not_depend_on_the_cut(weights, name):
    batch = full_batch(BOX_COUNTS[name])
    whole = gradient_of(weights, batch, NUM_IMAGES, torch.float64)
    for most in (1, 2, 4, 5, 8):
        cut = gradient_of(weights, batch, most, torch.float64)
        assert (cut - whole).norm() / whole.norm() <= 1e-9, most


def test_single_precision_agrees_to_its_rounding(weights):
    batch = full_batch(BOX_COUNTS["skewed"])
    whole = gradient_of(weights, batch, NUM_IMAGES, torch.float32)
    for most in (1, 4):
        cut = gradient_of(weights, batch, most, torch.float32)
        assert (cut - whole).norm() / whole.norm() <= 1e-4, most
