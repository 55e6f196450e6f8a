"""`train.log`: what a run said, as plain lines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from visiontrain.loggers.lines import RunLines


class FileLogger:
    """Appends the banner, one line an epoch, warnings and the closing table to a text file, each as it comes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines = RunLines()

    def log(self, event: str, values: Mapping[str, Any]) -> None:
        lines = self._lines.of(event, values)
        if lines:
            # Opened for each event: a deleted or full folder is met where it happens, and nothing is held open.
            with self._path.open("a", encoding="utf-8", newline="\n") as file:
                file.write("".join(f"{line}\n" for line in lines))

    def close(self) -> None:
        """Nothing is left open between events."""
