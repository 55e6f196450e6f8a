"""When the gradients of a window are exchanged between processes: once, in its last micro-batch, and all of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

MOST_NAMED = 5
"""Parameters that a message names."""


class Exchange:
    """Keeps DistributedDataParallel from exchanging before the last micro-batch, and sees whether it then has.

    It exchanges a gradient when a backward pass reaches its parameter. One that only earlier micro-batches reach would
    stay what this process alone makes of it, and weights would drift apart between processes without a word.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model if isinstance(model, DistributedDataParallel) else None
        self._is_due = False
        self._reached: set[Tensor] = set()
        """Parameters that the latest micro-batch's backward pass has reached."""
        for param in self._learning().values():
            param.register_post_accumulate_grad_hook(self._reached.add)

    @contextmanager
    def micro_batch(self, *, last: bool) -> Iterator[None]:
        """The context of a micro-batch's forward and backward pass."""
        self._is_due = last
        self._reached.clear()
        with self._model.no_sync() if self._model is not None and not last else nullcontext():
            yield

    def check(self) -> None:
        """Raises RuntimeError unless all gradients were exchanged; a model by itself has nothing to exchange."""
        if self._model is None:
            return
        if not self._is_due:
            raise RuntimeError(
                "no micro-batch of the window was its last one, so processes did not exchange their gradients: "
                "use micro_batch(last=True) for the last"
            )
        missing = [name for name, param in self._learning().items() if param not in self._reached]
        if missing:
            named = ", ".join(missing[:MOST_NAMED]) + (
                f" and {len(missing) - MOST_NAMED} more" if len(missing) > MOST_NAMED else ""
            )
            raise RuntimeError(
                f"the window's last micro-batch gave no gradient to {named}, so processes could not exchange it: let "
                "every micro-batch reach every parameter that learns (0 times an output will do), or freeze what none "
                "reaches"
            )

    def reset(self) -> None:
        """Begin another window."""
        self._is_due = False
        self._reached.clear()

    def _learning(self) -> dict[str, nn.Parameter]:
        if self._model is None:
            return {}
        return {name: param for name, param in self._model.module.named_parameters() if param.requires_grad}
