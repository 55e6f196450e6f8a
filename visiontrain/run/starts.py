"""Being one of the processes of a run: what torchrun tells each, and what a start of the group leaves to the next.

torchrun ends a group of which a process has failed, and starts it again with the same words. What the group needs to
know of itself then (its folder, the memory that was too little, that it is over) lies in the store of the launcher,
which outlives it.

Source: the documentation of torchrun (torch.distributed.run) on environment variables and restarts.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import NoReturn

from torch.distributed import Store, TCPStore  # type: ignore[attr-defined]

from visiontrain.data.workers import end_when_orphaned
from visiontrain.engine.distributed import COLLECTIVE_TIMEOUT, Group, Place, alone, is_peer_lost, join, leave
from visiontrain.engine.transaction import OutOfMemoryInGroup
from visiontrain.errors import ConfigError, Ended, Stopped, UserError
from visiontrain.run.handover import DONE, FAILED, TO_START_AGAIN, WRONG_INPUT, signaled

PATIENCE_SECONDS = 20.0
"""That a process with nothing to say waits at most, so that the one with something to say can."""
SECONDS_TO_BE_ENDED = 2.0
"""That torchrun has to end a process that has lost another one, before that ends by itself: so only the other counts as
failed. Its signal may have come already, and been taken for a user's."""

LOST_WORKER = "DataLoader worker"
"""How torch begins what it says of a loading process that has ended: for want of memory, say."""

_runs = count(1)  # of this process: a script may train several times, and torchrun starts all of it again


@dataclass
class Starts:
    """What the starts of a group leave to each other; a process that nobody starts again remembers for itself."""

    store: Store | None = None
    number: int = 0
    """Of this start, from 0."""
    most: int = 0
    """Starts that may follow the first."""
    _kept: dict[str, str] = field(default_factory=dict)
    _run: int = field(default_factory=lambda: next(_runs))

    def remember(self, key: str, value: str) -> None:
        if self.store is None:
            self._kept[key] = value
        else:
            self.store.set(self._name(key), value)

    def recall(self, key: str) -> str | None:
        """What was remembered in this or an earlier start; None where nothing was."""
        if self.store is None:
            return self._kept.get(key)
        name = self._name(key)
        return self.store.get(name).decode() if self.store.check([name]) else None

    def is_first_to(self, do: str) -> bool:
        """Whether no other process has asked for the same before."""
        return self.store is None or self.store.add(self._name(do), 1) == 1

    def _name(self, key: str) -> str:
        return f"visiontrain: run {self._run}: {key}"


@dataclass(frozen=True)
class Member:
    """This process as one of those that train."""

    group: Group = field(default_factory=alone)
    starts: Starts = field(default_factory=Starts)
    is_launched: bool = False
    """Whether torchrun, or whoever speaks like it, has started it."""

    def remembered_limit(self) -> int | None:
        """The most images at once that an earlier start has left when memory ran out."""
        limit = self.starts.recall("limit")
        return None if limit is None else int(limit)


def place_from(environment: Mapping[str, str]) -> Place | None:
    """Where torchrun, or whoever speaks like it, has put this process; None where it was started by itself."""
    if not {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= set(environment):
        return None
    process, processes = int(environment["RANK"]), int(environment["WORLD_SIZE"])
    return Place(
        process,
        processes,
        int(environment.get("LOCAL_RANK", process)),
        int(environment.get("LOCAL_WORLD_SIZE", processes)),
    )


@contextmanager
def joined(place: Place | None) -> Iterator[Member]:
    """This process as a member of its group, which ends with one message however it ends.

    Args:
        place: Of this process; None where it was started by itself.

    Raises:
        Ended: Where another process of the group says why it has ended, or where the group is to start again.
    """
    if place is None:
        yield Member()
        return
    if _is_kept():
        end_when_orphaned()
    starts = _starts(place)
    over = starts.recall("over")
    if over not in (None, str(DONE)):  # torchrun starts again what has ended for a reason that stays
        raise Ended(int(str(over)))
    group = Group(place)
    try:
        if place.processes > 1:
            group = join(place, _store(place))
        yield Member(group, starts, is_launched=True)
        if group.is_first:
            starts.remember("over", str(DONE))
        leave()
    except OutOfMemoryInGroup as error:
        _start_again(starts, group, error)
    except UserError:
        _end(starts, group, WRONG_INPUT)
        raise
    except Stopped as stop:
        if stop.is_agreed:
            _end_together(starts, group, signaled(stop))
        else:
            _end(starts, group, signaled(stop))
        raise
    except KeyboardInterrupt as stop:
        _end(starts, group, signaled(stop))
        raise
    except Exception as error:  # whatever ends one ends all; it is raised again once the others know
        if is_peer_lost(error):  # the one that has gone has said why, or torchrun will
            time.sleep(SECONDS_TO_BE_ENDED)
            raise Ended(TO_START_AGAIN) from error
        if LOST_WORKER in str(error) and starts.number < starts.most:
            print(f"warning: {error}; the group starts again from its last checkpoint", flush=True)
            raise Ended(TO_START_AGAIN) from error
        _end(starts, group, FAILED)
        raise


def _end_together(starts: Starts, group: Group, code: int) -> None:
    """Note that the run is over; returns when all have come to this place, so that nobody is ended before."""
    with suppress(RuntimeError):  # one has gone by a second signal, or the launcher with the store
        starts.remember("over", str(code))
        group.meet()


def _end(starts: Starts, group: Group, code: int) -> None:
    """Note that the run is over; returns in the process that is to say why."""
    try:
        is_first = starts.is_first_to("say why it ends")
        starts.remember("over", str(code))
    except RuntimeError:  # the launcher has gone, and its store with it: better told twice than not at all
        return
    if not is_first:
        _leave_the_word(group, code)


def _start_again(starts: Starts, group: Group, error: OutOfMemoryInGroup) -> NoReturn:
    """End the group so that it starts again with half as many images at once."""
    if error.largest <= group.size:
        _end(starts, group, WRONG_INPUT)
        raise ConfigError(
            "memory: a single image in each process does not fit; lower imgsz or choose a smaller model"
        ) from error
    limit = -(-error.largest // 2)
    starts.remember("limit", str(limit))
    if not starts.is_first_to(f"say that memory ran out in start {starts.number}"):
        _leave_the_word(group, TO_START_AGAIN)
    if starts.number >= starts.most:
        _end(starts, group, WRONG_INPUT)
        folder = starts.recall("folder")
        raise ConfigError(
            f"memory: {error.largest} images over all processes do not fit, and the group may not start again "
            "(torchrun --max-restarts=3 lets it, with half as many each time); go on with "
            f"resume={folder} batch={limit}"
        ) from error
    print(
        f"warning: out of memory: the group starts again from its last checkpoint with micro-batches of at most "
        f"{limit} images over all processes; the updates stay the same",
        flush=True,
    )
    raise Ended(TO_START_AGAIN) from error


def _leave_the_word(group: Group, code: int) -> NoReturn:
    """End behind another process, which says why: torchrun would end that one as soon as this has ended."""
    group.wait_for_loss(PATIENCE_SECONDS)
    raise Ended(code)


def _starts(place: Place) -> Starts:
    """The memory of the group, where a launcher keeps it."""
    if not _is_kept():
        return Starts(_store(place)) if place.processes > 1 else Starts()
    number, most = (int(os.environ.get(f"TORCHELASTIC_{name}", "0")) for name in ("RESTART_COUNT", "MAX_RESTARTS"))
    return Starts(_store(place), number, most)


def _store(place: Place) -> TCPStore:
    """The store that all processes reach; the launcher keeps it, or else the first process does."""
    return TCPStore(
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        is_master=place.process == 0 and not _is_kept(),
        timeout=COLLECTIVE_TIMEOUT,
        wait_for_workers=False,
        multi_tenant=True,
    )


def _is_kept() -> bool:
    """Whether a launcher keeps the store, and starts the group again."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == str(True)
