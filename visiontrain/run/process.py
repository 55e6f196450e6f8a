"""What is kept for the whole process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch.utils import deterministic

from visiontrain.engine.device import DeviceSetup
from visiontrain.engine.heap import freed_memory_kept


@contextmanager
def process_settings(setup: DeviceSetup, *, is_deterministic: bool) -> Iterator[None]:
    """Set threads, algorithms and what becomes of freed memory for a run, and put them back after it."""
    threads, deterministic_mode = torch.get_num_threads(), torch.get_deterministic_debug_mode()
    fills = deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    benchmark, matmul = torch.backends.cudnn.benchmark, torch.get_float32_matmul_precision()
    torch.set_num_threads(setup.threads)
    if setup.device.type == "cuda":
        torch.set_float32_matmul_precision("high")  # TF32, as convolutions have it by default
        torch.backends.cudnn.benchmark = not is_deterministic  # it takes what is fastest just then
    if is_deterministic:
        # Some CUDA operations of every detector have no such algorithm; there torch warns and goes on.
        # The same as use_deterministic_algorithms, which loads torch's compiler, 150 MB, to tell it: `compile_` does.
        torch.set_deterministic_debug_mode("error" if setup.device.type == "cpu" else "warn")
        # Filling fresh memory costs a quarter of the time, and matters only to code that reads what it never wrote.
        deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    try:
        with freed_memory_kept(setup.device):
            yield
    finally:
        torch.set_num_threads(threads)
        torch.backends.cudnn.benchmark = benchmark
        torch.set_float32_matmul_precision(matmul)
        torch.set_deterministic_debug_mode(deterministic_mode)
        deterministic.fill_uninitialized_memory = fills  # type: ignore[attr-defined]


_PROCESS_STREAM = 2  # beside those of the samples


def seed_(setup: DeviceSetup, seed: int, process: int, window: int) -> None:
    """Let torch draw from a stream of its own for each window and process, where several train together.

    What a network draws (dropout) is for other images in each. A function of the place in the run, it need not be kept
    in a checkpoint, which holds the state of one process.
    """
    (drawn,) = np.random.SeedSequence([_PROCESS_STREAM, seed, process, window]).generate_state(1, np.uint64)
    torch.default_generator.manual_seed(int(drawn) >> 1)
    if setup.device.type == "cuda":
        with torch.cuda.device(setup.device):
            torch.cuda.manual_seed(int(drawn) >> 1)


@contextmanager
def own_random_state(setup: DeviceSetup, seed: int) -> Iterator[None]:
    """Inside, torch draws from `seed`; outside, it goes on as if nothing had been drawn."""
    devices = [setup.device] if setup.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would reach devices that are not put back
        for device in devices:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield
