"""Muon: momentum whose direction is made orthogonal, for kernels; AdamW for all other parameters.

With few updates in a run - the rule for small data sets at a nominal batch of 64 - orthogonal steps learn markedly
faster than SGD or AdamW, because no direction of a layer's weight matrix is starved. torch's own Muon takes matrices
only, has no AdamW half, and needs torch 2.9; convolutions need both halves in one optimizer.

Source: K. Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks"; the scale that lets AdamW's
learning rate serve for both halves is Liu et al. 2025, "Muon is Scalable for LLM Training", section 2.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from visiontrain.engine.eager import EagerOptimizer

# Coefficients of the quintic Newton-Schulz iteration (Jordan et al. 2024): steepest at 0, so five steps suffice.
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
NEWTON_SCHULZ_STEPS = 5
EPS = 1e-7  # of a norm; keeps the quotient of a zero matrix finite
TOGETHER = 1 << 17  # numbers of squares that are iterated on together; a processor's cache holds this some times over
RMS_OF_ADAMW = 0.2  # Liu et al. 2025: the usual root mean square of an AdamW update


class Muon(EagerOptimizer):
    """One optimizer with two rules, chosen by the group's `is_orthogonal`.

    Args:
        groups: Parameter groups, each with `is_orthogonal`: True for weights of two or more dimensions (flattened to
            outputs × rest), False for all others.
        lr: Learning rate of both rules, in AdamW's scale.
        betas: Momentum (both rules; Nesterov in the orthogonal one) and AdamW's decay of squared gradients.
        eps: AdamW's epsilon.
        weight_decay: Decoupled weight decay.
    """

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        *,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "is_orthogonal": False}
        super().__init__(groups, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            params = [param for param in group["params"] if param.grad is not None]
            if params and group["is_orthogonal"]:
                self._orthogonal_step(params, group)
            elif params:
                self._adamw_step(params, group)
        return loss

    def _orthogonal_step(self, params: list[Tensor], group: dict[str, Any]) -> None:
        grads = [param.grad for param in params if param.grad is not None]
        buffers = [self._state(param, "momentum") for param in params]
        beta = group["betas"][0]
        torch._foreach_lerp_(buffers, grads, 1 - beta)
        ahead = torch._foreach_lerp(grads, buffers, beta)  # Nesterov
        if group["weight_decay"]:
            torch._foreach_mul_(params, 1 - group["lr"] * group["weight_decay"])
        for param, direction in zip(params, orthogonalize([as_matrix(direction) for direction in ahead]), strict=True):
            scale = RMS_OF_ADAMW * max(direction.shape) ** 0.5
            param.add_(as_kernel(direction, param.shape), alpha=-group["lr"] * scale)

    def _adamw_step(self, params: list[Tensor], group: dict[str, Any]) -> None:
        beta1, beta2 = group["betas"]
        adamw(
            params,
            [param.grad for param in params if param.grad is not None],
            exp_avgs=[self._state(param, "exp_avg") for param in params],
            exp_avg_sqs=[self._state(param, "exp_avg_sq") for param in params],
            max_exp_avg_sqs=[],
            state_steps=[self._step_count(param) for param in params],
            foreach=True,
            amsgrad=False,
            beta1=beta1,
            beta2=beta2,
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=False,
        )

    def _state(self, param: Tensor, name: str) -> Tensor:
        state = self.state[param]
        if name not in state:
            state[name] = torch.zeros_like(param)
        buffer: Tensor = state[name]
        return buffer

    def _step_count(self, param: Tensor) -> Tensor:
        state = self.state[param]
        if "step" not in state:
            state["step"] = torch.zeros((), dtype=torch.float32)  # on the CPU, as torch's own keep it
        count: Tensor = state["step"]
        return count


def as_matrix(kernel: Tensor) -> Tensor:
    """(R, …) → (R, S): outputs × rest, inputs last, as a network with channels last has them in memory already."""
    return kernel.movedim(1, -1).flatten(1)


def as_kernel(matrix: Tensor, shape: torch.Size) -> Tensor:
    """(R, S) → `shape`: what `as_matrix` made a matrix of."""
    return matrix.view(shape[0], *shape[2:], shape[1]).movedim(-1, 1)


def orthogonalize(matrices: Sequence[Tensor]) -> list[Tensor]:
    """The nearest (semi-)orthogonal matrices, roughly.

    Singular values come out between about 0.7 and 1.2, except those below some thousandth of the matrix's norm, which
    five steps do not raise that far.

    Args:
        matrices: (R, S) float each, of any sizes.

    Returns:
        (R, S) each in the dtype given; zero for a zero matrix.
    """
    # Every step multiplies x from the left by a polynomial of x xᵀ, and such polynomials commute. So their product can
    # be gathered among the small square matrices, and x itself is multiplied once: a kernel is many times as wide.
    # Squares of a size are iterated on together, however wide their kernels: one by one they would not fill a core.
    alike: dict[tuple[int, torch.dtype, torch.device], list[int]] = {}
    for index, matrix in enumerate(matrices):
        alike.setdefault((min(matrix.shape), matrix.dtype, matrix.device), []).append(index)
    products: dict[int, Tensor] = {}
    for (side, _, _), members in alike.items():
        count = max(1, TOGETHER // side**2)
        for some in (members[start : start + count] for start in range(0, len(members), count)):
            grams = torch.stack([gram(matrices[index]) for index in some])  # (K, R, R)
            products.update(zip(some, inverse_roots(grams), strict=True))
    return [
        matrix @ products[index] if is_tall(matrix) else products[index] @ matrix
        for index, matrix in enumerate(matrices)
    ]


def gram(matrix: Tensor) -> Tensor:
    """Products of the matrix's rows, or of its columns where these are fewer."""
    return matrix.T @ matrix if is_tall(matrix) else matrix @ matrix.T


def is_tall(matrix: Tensor) -> bool:
    return matrix.shape[0] > matrix.shape[1]


def inverse_roots(grams: Tensor) -> Tensor:
    """What `orthogonalize` multiplies matrices by: (K, R, R) products of their rows → (K, R, R), roughly their -1/2.

    Half precision would not do: rounding turns the least eigenvalues, which are raised most, into negative ones. On the
    matrix itself the iteration bears it, but has more to multiply, and on a processor took as long as this does.
    """
    a, b, c = NEWTON_SCHULZ
    norms = grams.diagonal(dim1=1, dim2=2).sum(dim=1).sqrt()  # (K): a trace is the square of the matrix's norm
    scales = 1 / (norms + EPS)[:, None, None]
    x = grams * scales.square()
    product = None
    for step in range(NEWTON_SCHULZ_STEPS):
        factor = torch.baddbmm(x, x, x, beta=b, alpha=c)
        factor.diagonal(dim1=1, dim2=2).add_(a)
        product = factor if product is None else factor @ product
        if step < NEWTON_SCHULZ_STEPS - 1:
            x = factor @ x @ factor
    assert product is not None
    return product * scales
