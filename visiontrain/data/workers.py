"""Loading processes: how many the shared memory of this machine has room for, and that none outlives its parent.

Workers hand their batches over in shared memory. Where that is small (a container's default is 64 MB) and runs out,
the system ends the process with a bus error that nothing can catch, so it is reckoned before.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import wait
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")
USABLE_SHARE = 0.9
"""The rest is left to other users of the shared memory."""
SECONDS_BETWEEN_LOOKS = 1.0
"""At whether the launcher is still there."""
PREFETCH = 2
"""Batches that torch's loader lets each worker make ahead, unless told otherwise."""


def shm_free() -> int | None:
    """Free bytes of the shared memory, None where the system has no limit of its own on it."""
    return shutil.disk_usage(SHARED_MEMORY).free if SHARED_MEMORY.is_dir() else None


def fitting_workers(
    workers: int, *, batch_bytes: int, shm_bytes: int | None, prefetch: int = PREFETCH, held_bytes: int = 0
) -> int:
    """The most of `workers` whose batches fit in shared memory together; 0 loads without it.

    Args:
        workers: Asked for.
        batch_bytes: The largest batch.
        shm_bytes: Free shared memory, None where it has no limit.
        prefetch: Batches that each worker makes ahead.
        held_bytes: Batches already handed over that are kept, such as the rest of a window. Batches that were copied
            to page-locked memory are not.
    """
    if shm_bytes is None:
        return workers
    in_hand = batch_bytes  # the one being used: torch asks for its successor before handing it over
    left = int(USABLE_SHARE * shm_bytes) - held_bytes - in_hand
    return max(0, min(workers, left // (prefetch * batch_bytes)))


def lowered_workers_message(asked: int, fitting: int, *, batch_bytes: int, shm_bytes: int) -> str:
    """What to say where `fitting_workers` found room for fewer than asked."""
    return (
        f"workers: {fitting} instead of {asked}: the shared memory has {shm_bytes / 1e6:.0f} MB left for batches of "
        f"{batch_bytes / 1e6:.1f} MB; give it more (docker run --shm-size=1g or --ipc=host) or use a smaller batch"
    )


@contextmanager
def signals_wait() -> Iterator[None]:
    """Inside, signals to end wait, also for processes that are started here, which never hear them: they are busy with
    importing when one comes to all of a group, and it would end them before they could say that they end with their
    parent.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows, which does not send them to groups
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with_parent() -> None:
    """To be called first in a worker process: it ends as soon as the process that started it does, however that ends.

    A parent that was killed tells nobody. A pool's workers would wait for work forever; torch's look whether their
    parent is still the one they had at first, and one whose parent was killed before that look never learns of it.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, name="end with parent", daemon=True).start()


def end_when_orphaned() -> None:
    """To be called in a process that a launcher has started: it ends soon after that does, however that ends."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(SECONDS_BETWEEN_LOOKS)
        os._exit(1)

    threading.Thread(target=watch, name="end when orphaned", daemon=True).start()
