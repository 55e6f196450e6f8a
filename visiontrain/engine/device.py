"""Where a run computes, and with how many threads and workers."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch

from visiontrain.errors import ConfigError

MAX_AUTO_WORKERS = 8


@dataclass(frozen=True)
class DeviceSetup:
    """What a run computes on; recorded in its arguments, because threads change bits."""

    device: torch.device
    threads: int
    """Compute threads of torch. They do not depend on `workers`: equal threads, equal bits."""
    workers: int
    """Processes that load data; 0 loads in the training process."""


def choose_device(name: str, *, workers: int | None) -> DeviceSetup:
    """Resolve `device` and `workers` for this machine; None means auto.

    Loading beside an accelerator takes workers. On a CPU that trains, workers would take the very cores that compute,
    and cost a start of their own, so there auto is none.

    Raises:
        ConfigError: If the device does not exist here.
    """
    device = _find(name)
    cores = available_cores()
    if workers is None:
        workers = 0 if device.type == "cpu" else min(MAX_AUTO_WORKERS, max(1, cores - 1))
    return DeviceSetup(device, threads=cores if device.type == "cpu" else torch.get_num_threads(), workers=workers)


def available_cores() -> int:
    """Cores that this process may use, not those that the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _find(name: str) -> torch.device:
    num_cuda = torch.cuda.device_count()
    if name == "auto":
        if num_cuda:
            return torch.device("cuda", 0)
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    if name == "cpu":
        return torch.device("cpu")
    if name == "mps":
        if torch.backends.mps.is_available():
            return torch.device("mps")
        raise ConfigError("device = 'mps': this machine has no Metal device; use device=cpu or leave it out")
    index = 0 if name == "cuda" else int(name.removeprefix("cuda:"))
    if index < num_cuda:
        return torch.device("cuda", index)
    found = f"this torch sees {num_cuda} CUDA device(s)" if num_cuda else "this torch sees no CUDA device"
    raise ConfigError(f"device = {name!r}: {found}; use device=cpu or leave it out")
