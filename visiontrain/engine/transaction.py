"""A window is applied whole or leaves no trace, also when memory or the range of numbers gives out in the middle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import torch

from visiontrain.engine.distributed import Group, alone
from visiontrain.engine.loss_scale import loss_scale_of
from visiontrain.engine.precision import Precision
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

TRIAL_WINDOWS = 10
"""First windows, also after a resume, in which a loss that is not finite puts half precision to the test."""
LEAST_SCALE = 1.0
"""A loss scale below this makes gradients smaller than they are: half precision does not hold them at all."""


class ReplayableWindow(Protocol):
    """A planned window and its batches; iterating again gives the same batches."""

    @property
    def planned(self) -> Window: ...
    def __iter__(self) -> Iterator[Batch]: ...


class OutOfMemoryInGroup(Exception):
    """Memory ran out in one of several processes: what it shares with the others cannot be replayed in place."""

    def __init__(self, largest: int) -> None:
        self.largest = largest
        """Images that were too many at once, over all processes."""
        super().__init__(f"out of memory at {largest} images over all processes")


Step = Callable[[Window, Iterable[Batch]], WindowReport]


class Transaction:
    """Runs windows, and replays them where they did not fit: on smaller micro-batches, or in fp32.

    The window's images, its decay and its place in the schedule stay.
    """

    def __init__(
        self,
        gradients: GradientWindow,
        *,
        batch: int,
        precision: Precision,
        warn: Callable[[str], None],
        group: Group | None = None,
    ) -> None:
        self.batch = batch
        """Most images at once over all processes, as far as it is known to fit."""
        self.gradients = gradients
        self._group = group or alone()
        self._precision = precision
        self._num_windows = 0
        self._warn = warn

    def run(self, window: ReplayableWindow, step: Step) -> WindowReport:
        """Apply `step` to the window, as often as it must be.

        Raises:
            ConfigError: If a single image does not fit, or the optimizer's own step.
            OutOfMemoryInGroup: If memory runs out in one of several processes.
        """
        self._num_windows += 1
        report = self._run_in_memory(window, step)
        doubt = self._doubt(report, window.planned)
        return self._retry_in_fp32(window, step, doubt) if doubt else report

    def _doubt(self, report: WindowReport, planned: Window) -> str:
        """Why half precision may be what kept the window from being applied, or nothing."""
        if report.applied or not self._precision.is_half:
            return ""
        if not report.is_forward_finite and self._num_windows <= TRIAL_WINDOWS:
            return f"window {planned.number}: {report.reason} in {self._precision.name}"
        scaler = self._precision.scaler
        if report.is_calibration and scaler is not None and scaler.get_scale() < LEAST_SCALE:
            return f"the loss scale of {self._precision.name} has fallen to {scaler.get_scale():g}"
        return ""

    def _retry_in_fp32(self, window: ReplayableWindow, step: Step, doubt: str) -> WindowReport:
        """Let fp32 take over, for good if it can apply the window; else precision was not what was wrong."""
        self._overrule(True)
        report = self._run_in_memory(window, step)
        if report.applied:
            self._warn(f"{doubt}: fp32 takes over from here on; amp=False says so from the start")
            return report
        self._overrule(False)
        scaler = self._precision.scaler
        if scaler is not None:
            scaler.update(max(scaler.get_scale(), LEAST_SCALE))
        return report

    def _overrule(self, is_overruled: bool) -> None:
        self._precision.is_overruled = is_overruled
        self.gradients.loss_scale = loss_scale_of(self._precision.scaler)

    def _run_in_memory(self, window: ReplayableWindow, step: Step) -> WindowReport:
        """Apply `step` to the window; where memory runs out drop what was added, halve the micro-batch, begin again."""
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
            if self._group.size > 1 and largest > self._group.size:
                raise OutOfMemoryInGroup(largest)
            if largest <= self._group.size:
                raise ConfigError(
                    "memory: a single image does not fit; resume with checkpoint_activations=True, lower imgsz or "
                    "choose a smaller model"
                )
            self.batch = -(-largest // 2)
            self._warn(
                f"out of memory: window {window.planned.number} is replayed with micro-batches of at most "
                f"{self.batch}; the update stays the same, and checkpoint_activations=True needs less memory"
            )

    def _cut(self, window: ReplayableWindow) -> Iterator[Batch]:
        for batch in window:
            if len(batch) <= self.batch:  # of several processes each has been given its part already
                yield batch
            else:
                yield from batch.split(self.batch)


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether `error` says that memory ran out."""
    return isinstance(error, torch.OutOfMemoryError) or any(text in str(error) for text in OUT_OF_MEMORY_TEXTS)
