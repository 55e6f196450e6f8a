"""How many images fit in memory at once: measured by training steps of a few, and concluded from them.

What a step takes grows evenly with its images, apart from what it takes for any number of them.
"""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from visiontrain.engine.transaction import is_out_of_memory

PROC_SELF = Path("/proc/self")
RESET_PEAK = "5"
"""Written to `clear_refs`, forgets the most memory that the process has had. Source: proc(5)."""
NEVER_FITS = 2**62
"""Bytes, of what ran out of memory."""


class Meter(Protocol):
    """Measures memory."""

    def peak(self, run: Callable[[], None]) -> int:
        """The most bytes that `run` takes at once, on top of what is taken already."""


class CudaMeter:
    """Asks torch's allocator, whose holes count: nobody else can have them."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def peak(self, run: Callable[[], None]) -> int:
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self._device)
        before = torch.cuda.memory_reserved(self._device)
        run()
        most = torch.cuda.max_memory_reserved(self._device)
        torch.cuda.empty_cache()
        return most - before


class ResidentMeter:
    """Asks Linux for the resident memory of this process."""

    def peak(self, run: Callable[[], None]) -> int:
        gc.collect()
        # What was freed is kept by the C library and would be taken again unseen. It has the function, or `meter_of`
        # had not chosen this class.
        ctypes.CDLL(None).malloc_trim(0)
        (PROC_SELF / "clear_refs").write_text(RESET_PEAK, encoding="ascii")
        before = _resident("VmRSS:")
        run()
        return max(0, _resident("VmHWM:") - before)


def meter_of(device: torch.device) -> Meter | None:
    """What measures the memory of `device`; None where that cannot be told."""
    if device.type == "cuda":
        return CudaMeter(device)
    is_linux = device.type == "cpu" and os.access(PROC_SELF / "clear_refs", os.W_OK)
    return ResidentMeter() if is_linux and getattr(ctypes.CDLL(None), "malloc_trim", None) else None


def peak_of(meter: Meter, run: Callable[[], None]) -> int:
    """What `meter` measures of `run`; `NEVER_FITS` where memory runs out."""
    try:
        return meter.peak(run)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
    if torch.cuda.is_available():  # outside the handler, so that the traceback no longer holds the tensors
        torch.cuda.empty_cache()
    return NEVER_FITS


@dataclass(frozen=True)
class Fit:
    """The micro-batch that was chosen, and why."""

    batch: int
    """Images."""
    needed: int
    """Bytes that training takes with it."""
    available: int
    """Bytes that there are, of which a part may be taken."""


def micro_batch_sizes_for(nbs: int, most: int) -> tuple[int, ...]:
    """Sizes of micro-batches that can be asked for, rising: those that divide a window of `nbs` images, powers of two.

    Args:
        nbs: Images of a full window.
        most: Images that there are.
    """
    powers = {2**exponent for exponent in range(nbs.bit_length())}
    return tuple(size for size in range(1, min(nbs, most) + 1) if nbs % size == 0 or size in powers)


def largest(sizes: Sequence[int], nbs: int) -> int:
    """The largest size that divides `nbs`, so that windows hold exactly that; another if it is at least twice as large.

    Args:
        sizes: That fit.
        nbs: Images of a full window.
    """
    whole = max((size for size in sizes if nbs % size == 0), default=0)
    return max(sizes) if max(sizes) >= 2 * whole else whole


def straight_line(first: tuple[int, int], second: tuple[int, int], *, least_slope: float) -> Callable[[int], int]:
    """Bytes by images, from two measurements.

    Args:
        first: Images and bytes.
        second: The same for more images.
        least_slope: Bytes of an image that are known to be taken: measurements of little memory are inexact.
    """
    slope = max(least_slope, (second[1] - first[1]) / (second[0] - first[0]))
    return lambda images: round(second[1] + slope * (images - second[0]))


def _resident(name: str) -> int:
    lines = (PROC_SELF / "status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))
