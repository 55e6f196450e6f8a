"""A window is applied whole or leaves no trace, also when memory runs out in the middle of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import torch

from visiontrain.engine.window import GradientWindow, WindowReport
from visiontrain.errors import ConfigError
from visiontrain.plan import Window
from visiontrain.sample import Batch

# How torch's allocators and libraries say that memory ran out, where they do not raise OutOfMemoryError.
OUT_OF_MEMORY_TEXTS = (
    "not enough memory",
    "can't allocate memory",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUBLAS_STATUS_ALLOC_FAILED",
)


class ReplayableWindow(Protocol):
    """A planned window and its batches; iterating again gives the same batches."""

    @property
    def planned(self) -> Window: ...
    def __iter__(self) -> Iterator[Batch]: ...


Step = Callable[[Window, Iterable[Batch]], WindowReport]


class Transaction:
    """Runs windows; when memory runs out it drops what was added, halves the micro-batch and replays the window.

    Only the number of micro-batches changes: the window's images, its decay and its place in the schedule stay.
    """

    def __init__(self, gradients: GradientWindow, *, batch: int, warn: Callable[[str], None]) -> None:
        self.batch = batch
        """Most images at once, as far as it is known to fit."""
        self.gradients = gradients
        self._warn = warn

    def run(self, window: ReplayableWindow, step: Step) -> WindowReport:
        """Apply `step` to the window, on smaller micro-batches where it must be.

        Raises:
            ConfigError: If a single image does not fit, or the optimizer's own step.
        """
        while True:
            try:
                return step(window.planned, self._cut(window))
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                if self.gradients.is_applying:  # some weights may have moved; smaller micro-batches would not help
                    raise ConfigError(
                        "memory: the optimizer's own step does not fit; choose a smaller model, or optimizer=SGD, "
                        "which keeps the least"
                    ) from error
            # Outside the handler, so that the traceback no longer holds the failed pass's tensors.
            self.gradients.rollback()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            # A window of few images may never have held as many at once as it was allowed to.
            largest = min(self.batch, max(window.planned.sizes))
            if largest == 1:
                raise ConfigError("memory: a single image does not fit; lower imgsz or choose a smaller model")
            self.batch = -(-largest // 2)
            self._warn(
                f"out of memory: window {window.planned.index} is replayed with micro-batches of at most {self.batch}; "
                "its images and the update stay the same"
            )

    def _cut(self, window: ReplayableWindow) -> Iterator[Batch]:
        for batch in window:
            if len(batch) <= self.batch:
                yield batch
            else:
                yield from batch.split(self.batch)


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether `error` says that memory ran out."""
    return isinstance(error, torch.OutOfMemoryError) or any(text in str(error) for text in OUT_OF_MEMORY_TEXTS)
