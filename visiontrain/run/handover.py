"""What `visiontrain train processes=` and the processes that it has started hand to each other: files of one folder.

Nothing heavy is imported here: a process that has nothing to do any more learns of it at once.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from visiontrain.errors import CheckpointError, ConfigError, DataError, Stopped, UserError

SETTINGS, RESULT, FAULTS, OVER = "settings.json", "result.json", "faults.json", "over"
ERRORS = {kind.__name__: kind for kind in (UserError, ConfigError, DataError, CheckpointError)}
DONE, FAILED, WRONG_INPUT, SIGNALED, TO_START_AGAIN = 0, 1, 2, 128, 75
"""Exit codes of a process; with the last it asks for another start of all."""


def write(folder: Path, name: str, values: Mapping[str, Any]) -> None:
    (folder / name).write_text(json.dumps(values), encoding="utf-8")


def read(folder: Path, name: str) -> dict[str, Any] | None:
    """What was written; None where nothing was."""
    path = folder / name
    values: dict[str, Any] | None = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    return values


def write_faults(folder: Path, error: UserError) -> None:
    write(folder, FAULTS, {"kind": type(error).__name__, "faults": list(error.faults)})


def read_faults(folder: Path) -> UserError | None:
    """The error that a process has ended with, as it was raised there."""
    said = read(folder, FAULTS)
    return None if said is None else ERRORS.get(said["kind"], UserError)(said["faults"])


def signaled(stop: KeyboardInterrupt) -> int:
    """The exit code of what a signal has ended."""
    return SIGNALED + (stop.signum if isinstance(stop, Stopped) else signal.SIGINT)
