"""Freed memory stays with the process within an epoch, and goes back to the system between epochs.

Left to itself the C library returns a large feature map as soon as it is freed, and the next one of that size has to be
asked for again, page by page: of det-n at 640 pixels that was a fifth of the time of a micro-batch, for a few per cent
less memory. What it keeps are holes between what stays, and training leaves new ones in every epoch: feature maps of
other sizes in the last micro-batch and in validation, decoded images among them.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch

from visiontrain.engine.freeze import AnyWindow

# Of malloc.h in GNU's C library: what is larger comes from the system alone and goes back at once; what is free at the
# heap's end goes back when it is more.
M_MMAP_THRESHOLD, M_TRIM_THRESHOLD = -3, -1
KEPT_INSIDE = {M_MMAP_THRESHOLD: 1 << 30, M_TRIM_THRESHOLD: (1 << 31) - 1}
"""Bytes; more than any feature map, and the most there can be."""
KEPT_AFTERWARDS = {M_MMAP_THRESHOLD: 32 << 20, M_TRIM_THRESHOLD: 64 << 20}
"""What the library comes to by itself once something of 32 MiB was freed. It cannot be asked what it had before."""
USERS_OWN = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")
"""Environment variables by which a user decides; nothing is changed then."""

LEAST_MICRO_BATCHES = 16
"""Between two times. To get the memory back from the system took det-n 0.3 of a micro-batch's time on a CPU."""


def giving_back(windows: Iterable[AnyWindow], give_back: Callable[[], object]) -> Iterator[AnyWindow]:
    """The same windows; between two epochs freed memory is given back, unless there has been little training since.

    Args:
        windows: In the order of the run.
        give_back: Called when the first window of another epoch is asked for, so after validation.
    """
    epoch, micro_batches = None, 0
    for window in windows:
        if window.planned.epoch != epoch and micro_batches >= LEAST_MICRO_BATCHES:
            give_back()
            micro_batches = 0
        epoch = window.planned.epoch
        micro_batches += len(window.planned.sizes)
        yield window


@contextmanager
def freed_memory_kept(device: torch.device) -> Iterator[None]:
    """Inside, what is freed is kept for whoever asks next, with GNU's C library and where `device` has its memory."""
    is_ours = device.type == "cpu" and not any(name in os.environ for name in USERS_OWN)
    set_option = _from_gnu("mallopt") if is_ours else None
    if set_option is None:
        yield
        return
    try:
        for option, value in KEPT_INSIDE.items():
            set_option(option, value)
        yield
    finally:
        for option, value in KEPT_AFTERWARDS.items():
            set_option(option, value)
        heap_trimmer()()


def heap_trimmer() -> Callable[[], object]:
    """What gives freed memory back: `malloc_trim` of GNU's C library, or nothing where there is another one."""
    trim = _from_gnu("malloc_trim")
    return _nothing if trim is None else lambda: trim(0)


def _from_gnu(name: str) -> Callable[..., int] | None:
    """A function of GNU's C library, where that is what the process runs on."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None


def _nothing() -> None:
    pass
