"""Where a run computes, and with how many threads and workers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from visiontrain.engine.distributed import Place
from visiontrain.errors import ConfigError

MAX_AUTO_WORKERS = 8
PROC = Path("/proc")
CONTROL_GROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class DeviceSetup:
    """What a run computes on; recorded in its arguments, because threads change bits."""

    device: torch.device
    threads: int
    """Compute threads of torch. They do not depend on `workers`: equal threads, equal bits."""
    workers: int
    """Processes that load data; 0 loads in the training process."""


def choose_device(name: str, *, workers: int | None, place: Place | None = None) -> DeviceSetup:
    """Resolve `device` and `workers` for this machine; None means auto.

    Loading beside an accelerator takes workers. On a CPU that trains, workers would take the very cores that compute,
    and cost a start of their own, so there auto is none. Processes of one machine share its cores.

    Args:
        name: One device, or those of several processes with commas between them.
        workers: Of this process.
        place: Of this process among those that train together.

    Raises:
        ConfigError: If the device does not exist here, or there are not as many as processes.
    """
    place = place or Place()
    device = _find(_own_device(name, place))
    cores = max(1, available_cores() // place.locals)
    if workers is None:
        workers = 0 if device.type == "cpu" else min(MAX_AUTO_WORKERS, max(1, cores - 1))
    return DeviceSetup(device, threads=cores if device.type == "cpu" else torch.get_num_threads(), workers=workers)


def available_cores() -> int:
    """Cores that this process may use, not those that the machine has: its affinity and its container's share count."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([cores, *_cores_of_control_groups()]))


def free_memory(device: torch.device) -> int | None:
    """Bytes that tensors on `device` may still take, None where the system does not tell."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    available = _available()
    if available is None:
        return _half_of_physical()
    return min([available, *_left_in_control_groups()])


def _available() -> int | None:
    """What Linux estimates that can be taken without swapping."""
    return _field(PROC / "meminfo", "MemAvailable:", unit=1024)


def _half_of_physical() -> int | None:
    names = getattr(os, "sysconf_names", {})  # Windows has none
    if not {"SC_PAGE_SIZE", "SC_PHYS_PAGES"} <= set(names):
        return None
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _left_in_control_groups() -> Iterator[int]:
    """What the limits on this process's control groups leave; containers have such limits."""
    for group, is_first in _control_groups("memory"):
        limit, usage, idle = (
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            if is_first
            else ("memory.max", "memory.current", "inactive_file")
        )
        if _text(group / limit).strip().isdigit():
            taken = int(_text(group / usage)) - (_field(group / "memory.stat", idle) or 0)
            yield max(0, int(_text(group / limit)) - taken)


def _cores_of_control_groups() -> Iterator[int]:
    """Whole cores that the limits on this process's control groups let it use, at least one."""
    for group, is_first in _control_groups("cpu"):
        if is_first:
            fields = [_text(group / name).strip() for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")]
        else:
            fields = _text(group / "cpu.max").split()
        if len(fields) == 2 and all(field.isdigit() for field in fields) and int(fields[1]):  # else without a limit
            yield max(1, int(fields[0]) // int(fields[1]))


def _control_groups(controller: str) -> Iterator[tuple[Path, bool]]:
    """Folders of this process's control groups with limits of a kind, and whether they are of the first version."""
    for line in _text(PROC / "self" / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        is_first = bool(controllers)
        if is_first and controller not in controllers.split(","):
            continue
        root = CONTROL_GROUPS / controller if is_first else CONTROL_GROUPS
        folder = root / path.lstrip("/")  # inside a container the path is often one that only the outside sees
        for group in (folder, *folder.parents):
            if group.is_relative_to(root):
                yield group, is_first


def _field(path: Path, name: str, unit: int = 1) -> int | None:
    """The number behind `name` in a file of names and numbers."""
    rows = (line.split() for line in _text(path).splitlines())
    return next((int(row[1]) * unit for row in rows if row[:1] == [name]), None)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _own_device(name: str, place: Place) -> str:
    """The device that a process takes of those that were named."""
    names = name.split(",")
    if place.locals == 1 and len(names) == 1:
        return name
    if len(names) > 1:
        if len(names) != place.locals:
            raise ConfigError(
                f"device = {name!r}: names {len(names)} devices for {place.locals} process(es) of this machine; name "
                "as many as there are processes"
            )
        return names[place.local]
    if name in ("auto", "cuda") and torch.cuda.device_count():
        return f"cuda:{place.local}"
    if name in ("auto", "cpu"):
        return "cpu"
    raise ConfigError(
        f"device = {name!r}: is one device for {place.locals} processes; name one for each, as in device=0,1, or "
        "device=cpu"
    )


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
