"""How many images the processes of a run hold at once: a group that came back smaller is asked for no more of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from visiontrain.config.schema import Config
from visiontrain.engine.distributed import Group


@dataclass(frozen=True)
class MemoryShare:
    """Images in memory at once."""

    limit: int
    """Over all the processes that the run began with."""
    processes: int
    """That it began with."""
    most: int
    """Over all those that there are now: each holds no more than it held then."""

    def note(self, group: Group) -> str:
        """What there is to say where there are other processes than the run began with."""
        if group.size == self.processes:
            return ""
        return (
            f"processes: {self.processes} → {group.size}; the windows stay, with micro-batches of at most "
            f"{self.most} images"
        )

    def limit_by(self, batch: int) -> int:
        """The limit, where `batch` images are what this group has found to fit."""
        return self.limit if batch == self.most else batch * self.processes


def memory_share(
    config: Config, checkpoint: Mapping[str, Any] | None, group: Group, *, remembered: int | None
) -> MemoryShare:
    """What each process may hold.

    Args:
        config: With the processes that the run began with.
        checkpoint: Of the run, where it goes on.
        group: The processes that there are now.
        remembered: The limit that an earlier start of the group has left when memory ran out.
    """
    limit = config.batch
    if checkpoint is not None and checkpoint["args"]["values"]["batch"] == config.batch:  # else it was typed just now
        limit = checkpoint["micro_batch"]
    limit = min(limit, remembered or limit)
    each = -(-limit // config.processes)
    return MemoryShare(limit, config.processes, min(limit, each * group.size))
