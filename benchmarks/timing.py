"""Medians of times."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable


def median_seconds(run: Callable[[], object], repeats: int, *, clock: Callable[[], float] = time.perf_counter) -> float:
    """Of what `clock` says; `time.process_time` for work of one thread, which other programs then do not lengthen."""
    seconds = []
    for _ in range(repeats):
        started = clock()
        run()
        seconds.append(clock() - started)
    return statistics.median(seconds)
