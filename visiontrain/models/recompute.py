"""Activation checkpointing: a stage computes its activations again in the backward pass in place of keeping them.

Source: Chen et al. 2016, Training Deep Nets with Sublinear Memory Cost (arXiv:1604.06174).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


def recompute(stage: nn.Module, *inputs: Tensor) -> Any:
    """`stage(*inputs)`, of which only `inputs` are kept for the backward pass.

    The second pass leaves no trace. It starts from the random state and from the buffers that the first one found, so
    dropout and power iterations come out the same; and what it does to buffers is thrown away, so running statistics
    and `num_batches_tracked` move once.
    """
    return checkpoint(
        stage, *inputs, use_reentrant=False, preserve_rng_state=True, context_fn=partial(_contexts, stage)
    )


class RecomputedChain(nn.Sequential):
    """Takes the place of an nn.Sequential, whose blocks it can recompute one by one; weights fit either.

    Attributes:
        recomputes: Whether training does so.
    """

    recomputes = False

    @property
    def blocks(self) -> list[nn.Module]:
        """The members that are recomputed. Not those that hold no other module: a single convolution or activation
        would have as much to keep as it drops; nor chains, which recompute their own blocks.
        """
        return [member for member in self if any(member.children()) and not isinstance(member, RecomputedChain)]

    def forward(self, input: Tensor) -> Tensor:
        blocks = self.blocks if self.recomputes and self.training and torch.is_grad_enabled() else []
        for member in self:
            input = recompute(member, input) if member in blocks else member(input)
        return input


def chain_blocks_(module: nn.Module) -> None:
    """Make chains of the outermost nn.Sequentials inside `module` that hold blocks, and of such Sequentials in them.

    Classes derived from nn.Sequential are blocks: they may have a forward pass of their own.
    """
    for name, child in list(module.named_children()):
        if _holds_blocks(child):
            setattr(module, name, _chain_of(child))
        else:
            chain_blocks_(child)


def _holds_blocks(module: nn.Module) -> bool:
    return type(module) is nn.Sequential and any(any(member.children()) for member in module)


def _chain_of(sequential: nn.Module) -> RecomputedChain:
    chain = RecomputedChain()
    for name, member in sequential.named_children():
        chain.add_module(name, _chain_of(member) if _holds_blocks(member) else member)
    chain.training = sequential.training
    return chain


def _contexts(stage: nn.Module) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """For the first pass, which is about to start, and for the second one."""
    values = [
        (module, name, buffer.detach().clone())
        for module in stage.modules()
        for name, buffer in module.named_buffers(recurse=False)
    ]
    return nullcontext(), _Lent(values)


class _Lent:
    """A context, to be entered as often as somebody runs backward, that lends modules copies of their old buffers.

    The very buffers are put back, none is written to: whoever holds them (the window, an average of the weights) goes
    on holding the live ones, and what autograd has saved of them stays valid.
    """

    def __init__(self, values: Sequence[tuple[nn.Module, str, Tensor]]) -> None:
        self._values = values
        self._own: list[Tensor] = []

    def __enter__(self) -> None:
        self._own = [getattr(module, name) for module, name, _ in self._values]
        for module, name, before in self._values:
            setattr(module, name, before.clone())  # another backward pass starts from the same value

    def __exit__(self, *error: object) -> None:  # torch leaves by an exception as soon as it has all it needs
        for (module, name, _before), buffer in zip(self._values, self._own, strict=True):
            setattr(module, name, buffer)
