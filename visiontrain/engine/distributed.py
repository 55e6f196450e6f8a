"""The processes that train together: PyTorch's process group, with what a training run asks of it.

Collectives are asked for in the same order by every process, whatever its images hold. Where one may have to wait long
for another (a scan of the data, a validation) they *meet* first: that has no limit of time, hears signals, and learns
at once when one of them has gone.

Source: the documentation of torch.distributed and of torch.distributed.elastic.
"""

from __future__ import annotations

import math
import pickle
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from inspect import signature
from typing import Any, TypeVar, cast

import torch
import torch.distributed
from torch import nn
from torch.distributed import PrefixStore, ProcessGroup, TCPStore  # type: ignore[attr-defined]
from torch.nn.parallel import DistributedDataParallel

T = TypeVar("T")

COLLECTIVE_TIMEOUT = timedelta(minutes=30)
"""After which a process that others wait for in a collective counts as gone."""
ANY_TIME = timedelta(days=365)
"""That processes wait for each other where they meet."""
SHORTEST_LOOK, LONGEST_LOOK = 0.001, 0.05
"""Seconds between two looks while waiting for the others."""
_FORWARD_BUFFERS = "forward_sync_buffers"  # what newer versions call `broadcast_buffers`
_HAS_NEW_NAME = _FORWARD_BUFFERS in signature(DistributedDataParallel.__init__).parameters
_WITHOUT_BUFFERS: dict[str, Any] = {_FORWARD_BUFFERS if _HAS_NEW_NAME else "broadcast_buffers": False}
"""Once an epoch is enough, see `share_buffers_`; by default they are exchanged in every forward pass."""
LOST_TEXTS = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "Timed out waiting",
    "connectFullMesh failed",
    "NCCL communicator was aborted",
    "NCCL error",
    "Socket closed",
    "Failed to recv",
    "failed to recv",
)
"""How gloo, NCCL and the store say that another process has gone."""


@dataclass(frozen=True)
class Place:
    """Where a process stands among those that train together."""

    process: int = 0
    """Its number among all, from 0."""
    processes: int = 1
    local: int = 0
    """Its number among those of its machine."""
    locals: int = 1
    """Processes of its machine."""


@dataclass
class Group:
    """The processes of a run. Alone, every method is what one process does by itself."""

    place: Place = field(default_factory=Place)
    waiting: ProcessGroup | None = None
    """The same processes, for what may take any time."""

    @property
    def size(self) -> int:
        return self.place.processes

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that writes and talks."""
        return self.place.process == 0

    def meet(self) -> None:
        """Wait, however long it takes, until every process is here."""
        if self.size == 1:
            return
        work = torch.distributed.barrier(group=self.waiting, async_op=True)
        _wait_until(work.is_completed)
        work.wait()  # raises what has gone wrong

    def wait_for_loss(self, seconds: float) -> None:
        """Wait until one of the others has gone, and no longer than so many seconds; they are not met."""
        if self.waiting is None:  # not formed yet
            time.sleep(seconds)
            return
        deadline = time.monotonic() + seconds
        with suppress(RuntimeError):
            while time.monotonic() < deadline:
                work = torch.distributed.barrier(group=self.waiting, async_op=True)
                if _wait_until(work.is_completed, deadline=deadline):
                    work.wait()  # raises that one has gone; where others wait, too, all look again

    def first_gives(self, make: Callable[[], T]) -> T:
        """What `make` returns in the first process, in all of them."""
        if self.size == 1:
            return make()
        given: list[Any] = [make() if self.is_first else None]
        self.meet()
        torch.distributed.broadcast_object_list(given, src=0, group=self.waiting)
        return cast(T, given[0])

    def first_before_others(self, make: Callable[[], T]) -> T:
        """What `make` returns; the others begin when the first has done it, and find what it has left in caches."""
        made = make() if self.is_first else None
        self.meet()
        return cast(T, made) if self.is_first else make()

    def machine_gives(self, make: Callable[[], T]) -> T:
        """What `make` returns in the first process of this machine, in all of its processes."""
        if self.size == 1:
            return make()
        own = make() if self.place.local == 0 else None
        everybody = self.gather(pickle.dumps(own))  # what another machine has may not even be opened on this one
        return own if own is not None else cast(T, pickle.loads(everybody[self.place.process - self.place.local]))

    def gather(self, value: T) -> list[T]:
        """The value of every process, in the order of their numbers, in all of them."""
        if self.size == 1:
            return [value]
        self.meet()
        values: list[Any] = [None] * self.size
        torch.distributed.all_gather_object(values, value, group=self.waiting)
        return values

    def replicate(self, network: nn.Module) -> nn.Module:
        """`network` with gradients that are averaged over all processes; alone the network itself.

        Its weights are those of the first process. It looks for no unused parameters: every one that learns gets a
        gradient in a window's last micro-batch.
        """
        if self.size == 1:
            return network
        device = next(network.parameters()).device
        return DistributedDataParallel(
            network,
            device_ids=[device] if device.type == "cuda" else None,
            gradient_as_bucket_view=True,
            **_WITHOUT_BUFFERS,
        )

    def share_buffers_(self, *networks: nn.Module) -> None:
        """Give all processes the buffers of the first: its running statistics are those that are validated and kept."""
        if self.size == 1:
            return
        for buffer in dict.fromkeys(buffer for network in networks for buffer in network.buffers()):
            torch.distributed.broadcast(buffer, src=0)

    def share_weights_(self, network: nn.Module) -> None:
        """Give all processes the weights and buffers of the first."""
        if self.size == 1:
            return
        self.meet()
        with torch.no_grad():
            for tensor in network.state_dict().values():
                torch.distributed.broadcast(tensor, src=0)


def alone() -> Group:
    """The group of a process that trains by itself."""
    return Group()


def _wait_until(is_so: Callable[[], bool], *, deadline: float = math.inf) -> bool:
    """Look now and then, and return whether it is so: unlike torch's own waiting this hears signals.

    Args:
        is_so: What is waited for.
        deadline: The end of waiting, seconds of `time.monotonic`.
    """
    pause = SHORTEST_LOOK
    while not (is_there := is_so()) and time.monotonic() < deadline:
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_LOOK)
    return is_there


def join(place: Place, store: TCPStore) -> Group:
    """Form the group of those that have just started: NCCL between GPUs, gloo between processors and for plain values.

    Args:
        place: Of this process.
        store: That all of them reach; it may hold what earlier groups have left.
    """
    own = PrefixStore(_agree_on_name(place, store), store)
    has_nccl = torch.cuda.is_available() and torch.distributed.is_nccl_available()
    backend = "cpu:gloo,cuda:nccl" if has_nccl else "gloo"
    torch.distributed.init_process_group(
        backend, store=own, rank=place.process, world_size=place.processes, timeout=COLLECTIVE_TIMEOUT
    )
    waiting = torch.distributed.new_group(backend="gloo", timeout=ANY_TIME)
    return Group(place, cast(ProcessGroup, waiting))


def leave() -> None:
    """End the process group, if there is one."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def is_peer_lost(error: BaseException) -> bool:
    """Whether `error` says that another process has gone, or the launcher that keeps the store."""
    if isinstance(error, torch.distributed.DistError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in LOST_TEXTS)


def _agree_on_name(place: Place, store: TCPStore) -> str:
    """A name that no earlier group has had, the same in every process.

    A group that starts again finds in the store what the one before has left there, addresses that nobody answers at
    any more among it. Restarts cannot be told apart by their count: machines that come later count anew, and a group
    that starts again because its size has changed does not count. So the first process thinks of a name, and tells it
    to those that ask for it now.
    """
    me = uuid.uuid4().hex
    if place.process == 0:
        _tell_name(me, range(1, place.processes), store)
        return me
    store.set(f"visiontrain: process {place.process} asks", me)
    _wait_until(lambda: store.check([f"visiontrain: answer to {me}"]))
    name = store.get(f"visiontrain: answer to {me}").decode()
    store.set(f"visiontrain: {name} is known to {place.process}", "")
    return name


def _tell_name(name: str, others: Sequence[int], store: TCPStore) -> None:
    """Answer whoever asks, until all have heard it; a question may be one that an earlier group has left."""
    waiting = list(others)
    while waiting:
        for process in waiting:
            question = f"visiontrain: process {process} asks"
            if store.check([question]):
                store.set(f"visiontrain: answer to {store.get(question).decode()}", name)
        waiting = [process for process in waiting if not store.check([f"visiontrain: {name} is known to {process}"])]
        time.sleep(SHORTEST_LOOK * 10)
