"""BatchNorm and SiLU in one step, for which the backward pass keeps one feature map in place of two.

SiLU's derivative needs what BatchNorm made, BatchNorm's needs what it was made of. The former is one cheap pass over
the latter, so it is made again, as by Rota Bulò et al. 2018, In-Place Activated BatchNorm (arXiv:1712.02616), figure 2c
(checkpointing); making it takes as long as copying it did.

Letters: B images, C channels.
"""

from __future__ import annotations

from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

aten = torch.ops.aten


def norm_silu(norm: nn.Module, act: nn.Module, features: Tensor) -> Tensor:
    """`act(norm(features))`, in one step where that is known to be the same.

    Layers with hooks are called, so that whoever listens to them hears them.

    Args:
        norm: Of any kind; its running statistics move as ever.
        act: Of any kind.
        features: (B, C, H, W) float of any precision.
    """
    is_listened_to = norm._forward_hooks or norm._forward_pre_hooks or act._forward_hooks or act._forward_pre_hooks
    if is_listened_to or type(act) is not nn.SiLU or not _is_one_step(norm, features):
        return act(norm(features))
    assert isinstance(norm, _BatchNorm)
    assert norm.num_batches_tracked is not None
    norm.num_batches_tracked.add_(1)
    return _NormSiLU.apply(
        features, norm.weight, norm.bias, norm.running_mean, norm.running_var, norm.momentum, norm.eps
    )


def _is_one_step(norm: nn.Module, features: Tensor) -> bool:
    """Whether there is something to save, and this is BatchNorm in training as we make it.

    A GPU has kernels of its own for it, and compiled code decides by itself what is kept. A channel of a single value
    is left to torch, which refuses it.
    """
    is_kept = torch.is_grad_enabled() and features.device.type == "cpu" and not torch.compiler.is_compiling()
    return (
        is_kept
        and _sees_own_images(norm)
        and norm.training
        and norm.affine
        and norm.track_running_stats
        and norm.momentum is not None
        and features.numel() > features.shape[1]
    )


def _sees_own_images(norm: nn.Module) -> TypeGuard[_BatchNorm]:
    """Whether it is BatchNorm over what this process has; SyncBatchNorm is where there are no others."""
    is_alone = not torch.distributed.is_initialized()
    return type(norm) is nn.BatchNorm2d or (type(norm) is nn.SyncBatchNorm and is_alone)


class _NormSiLU(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Tensor,
        running_mean: Tensor,
        running_var: Tensor,
        momentum: float,
        eps: float,
    ) -> Tensor:
        normalized, mean, inverse_std = torch.native_batch_norm(
            features, weight, bias, running_mean, running_var, True, momentum, eps
        )
        ctx.save_for_backward(features, weight, bias, mean, inverse_std)
        ctx.eps = eps
        return nn.functional.silu(normalized, inplace=True)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:  # type: ignore[override]
        features, weight, bias, mean, inverse_std = ctx.saved_tensors
        var = inverse_std.pow(-2) - ctx.eps
        normalized, _, _ = torch.native_batch_norm(features, weight, bias, mean, var, False, 0.0, ctx.eps)
        # In the place of the map that was just made: its values are not needed any more.
        gradient = aten.silu_backward.grad_input(gradient, normalized, grad_input=normalized)
        gradients = aten.native_batch_norm_backward(
            gradient, features, weight, None, None, mean, inverse_std, True, ctx.eps, list(ctx.needs_input_grad[:3])
        )
        return (*gradients, None, None, None, None)
