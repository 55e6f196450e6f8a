"""How long a process takes until it can begin."""

from __future__ import annotations

import subprocess
import sys
from functools import partial

from benchmarks.timing import median_seconds

START_UPS = {
    "import_seconds": ("-c", "import visiontrain"),
    "help_seconds": ("-m", "visiontrain", "help"),
    "interpreter_seconds": ("-c", "pass"),  # contained in both of the above
}


def startup_figures(repeats: int) -> dict[str, object]:
    return {name: round(median_seconds(partial(start, command), repeats), 4) for name, command in START_UPS.items()}


def start(command: tuple[str, ...]) -> None:
    subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
