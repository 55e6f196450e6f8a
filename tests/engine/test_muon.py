"""Muon: orthogonal directions for kernels, AdamW's step for everything else."""

import pytest
import torch
from torch import nn
from torch.optim import AdamW

from visiontrain.engine.muon import RMS_OF_ADAMW, Muon, as_kernel, as_matrix, orthogonalize


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", [(16, 64), (64, 16), (32, 48), (1, 9), (9, 1)])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_singular_values_come_out_near_one(shape, scale):
    values = torch.linalg.svdvals(orthogonalize([random(*shape) * scale])[0])
    assert values.min() > 0.6
    assert values.max() < 1.3


def test_the_directions_of_a_matrix_are_kept():
    matrix = random(8, 24)
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    turned = left.T @ orthogonalize([matrix])[0] @ right.T
    torch.testing.assert_close(turned, turned.diagonal().diag(), rtol=0, atol=1e-4)


def test_a_zero_matrix_stays_zero_and_the_dtype_is_kept():
    zero, double = orthogonalize([torch.zeros(3, 5), random(3, 5).double()])
    assert not zero.any()
    assert double.dtype == torch.float64


def slow_newton_schulz(matrix):
    """The iteration as published, on the matrix itself, in double precision."""
    x = matrix.double() / matrix.double().norm()
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x


def test_matrices_of_all_sizes_at_once_come_out_as_one_by_one_in_the_published_way(monkeypatch):
    monkeypatch.setattr("visiontrain.engine.muon.TOGETHER", 2 * 8 * 8)  # two squares of eight rows, not three
    shapes = [(8, 24), (24, 8), (4, 4), (8, 8), (3, 64), (8, 9), (1, 5), (40, 8)]
    matrices = [random(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    for found, matrix in zip(orthogonalize(matrices), matrices, strict=True):
        torch.testing.assert_close(found.double(), slow_newton_schulz(matrix), rtol=0, atol=1e-4)


def test_directions_that_hardly_occur_do_not_blow_up():
    matrix = random(128, 3) @ random(3, 256, seed=1) + 1e-4 * random(128, 256, seed=2)
    (found,) = orthogonalize([matrix])  # in half precision the greatest singular value comes out near 300
    assert torch.linalg.svdvals(found).max() < 1.3


@pytest.mark.parametrize("shape", [(5, 3), (5, 3, 1, 1), (5, 3, 2, 4)])
def test_a_kernel_is_a_matrix_of_its_outputs_and_back(shape):
    kernel = random(*shape)
    matrix = as_matrix(kernel)
    assert torch.equal(matrix.sort(dim=1).values, kernel.flatten(1).sort(dim=1).values)
    assert torch.equal(as_kernel(matrix, kernel.shape), kernel)


@pytest.mark.parametrize("shape", [(8, 4), (8, 4, 3, 3)])
def test_an_orthogonal_step_is_as_large_as_one_of_adamw(shape):
    param = nn.Parameter(torch.zeros(shape))
    param.grad = random(*shape) * 1e3
    Muon([{"params": [param], "is_orthogonal": True}], lr=0.1).step()
    rms = param.detach().square().mean().sqrt().item()
    assert rms == pytest.approx(0.1 * RMS_OF_ADAMW, rel=0.3)


def test_other_parameters_move_exactly_as_under_adamw():
    ours, theirs = (nn.Parameter(random(7)) for _ in range(2))
    muon = Muon([{"params": [ours], "is_orthogonal": False}], lr=0.01, betas=(0.9, 0.99), weight_decay=0.1)
    adamw = AdamW([theirs], lr=0.01, betas=(0.9, 0.99), weight_decay=0.1)
    for step in range(5):
        ours.grad, theirs.grad = random(7, seed=step), random(7, seed=step)
        muon.step()
        adamw.step()
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-7)


def test_decay_shrinks_weights_apart_from_the_gradient():
    param = nn.Parameter(torch.ones(4, 4))
    param.grad = torch.zeros(4, 4)
    Muon([{"params": [param], "is_orthogonal": True}], lr=0.1, weight_decay=0.5).step()
    torch.testing.assert_close(param.detach(), torch.full((4, 4), 0.95))


def test_a_parameter_without_a_gradient_stays_where_it_is():
    moved, still = nn.Parameter(torch.ones(4, 4)), nn.Parameter(torch.ones(4, 4))
    moved.grad = random(4, 4)
    optimizer = Muon([{"params": [moved, still], "is_orthogonal": True}], lr=0.1)
    optimizer.step()
    assert torch.equal(still, torch.ones(4, 4))
    assert still not in optimizer.state


def test_a_quadratic_falls():
    network = nn.Linear(6, 4)
    target, images = random(32, 4, seed=1), random(32, 6, seed=2)
    optimizer = Muon(
        [{"params": [network.weight], "is_orthogonal": True}, {"params": [network.bias], "is_orthogonal": False}],
        lr=0.05,
    )

    def loss():
        optimizer.zero_grad()
        value = (network(images) - target).square().mean()
        value.backward()
        return value.item()

    first = optimizer.step(loss)
    for _ in range(60):
        last = optimizer.step(loss)
    inputs = torch.cat([images, torch.ones(32, 1)], dim=1)
    best = (inputs @ torch.linalg.lstsq(inputs, target).solution - target).square().mean().item()
    assert last - best < 0.1 * (first - best)


def test_the_memory_layout_does_not_change_the_step():
    plain, last = nn.Conv2d(4, 8, 3), nn.Conv2d(4, 8, 3)
    last.load_state_dict(plain.state_dict())
    last.to(memory_format=torch.channels_last)
    for conv in (plain, last):
        conv.weight.grad = torch.empty_like(conv.weight).copy_(random(8, 4, 3, 3))
        Muon([{"params": [conv.weight], "is_orthogonal": True}], lr=0.1).step()
    assert torch.equal(last.weight, plain.weight)
