"""Activation checkpointing: a stage computes its activations again in the backward pass in place of keeping them.

Source: Chen et al. 2016, Training Deep Nets with Sublinear Memory Cost (arXiv:1604.06174).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

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


def _contexts(stage: nn.Module) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """For the first pass, which is about to start, and for the second one."""
    values = [
        (module, name, buffer.detach().clone())
        for module in stage.modules()
        for name, buffer in module.named_buffers(recurse=False)
    ]
    return nullcontext(), _lent(values)


@contextmanager
def _lent(values: Sequence[tuple[nn.Module, str, Tensor]]) -> Iterator[None]:
    """Lends modules copies of `values` in the place of their buffers.

    The very buffers are put back, none is written to: whoever holds them (the window, an average of the weights) goes
    on holding the live ones, and what autograd has saved of them stays valid.
    """
    own = [getattr(module, name) for module, name, _ in values]
    try:
        for module, name, value in values:
            setattr(module, name, value.clone())  # a second backward pass starts from the same value
        yield
    finally:  # torch leaves the second pass by an exception as soon as it has all it needs
        for (module, name, _), buffer in zip(values, own, strict=True):
            setattr(module, name, buffer)
