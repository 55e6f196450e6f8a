"""What the C library keeps of freed memory goes back to the system.

It keeps the holes between what stays, and training leaves new ones in every epoch: feature maps of other sizes in the
last micro-batch and in validation, decoded images among them.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterable, Iterator

from visiontrain.engine.freeze import AnyWindow

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


def heap_trimmer() -> Callable[[], object]:
    """What gives freed memory back: `malloc_trim` of GNU's C library, or nothing where there is another one."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    return _nothing if trim is None else lambda: trim(0)


def _nothing() -> None:
    pass
