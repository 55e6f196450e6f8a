"""A training command of ours and any other one, in turn: `python -m benchmarks --versus 'CMD' [--ours 'CMD']`.

Commands run in turn, A B A B, so that whatever else the machine does strikes both alike; figures are medians, and what
counts is their ratio.
"""

from __future__ import annotations

import os
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

OURS = f"{shlex.quote(sys.executable)} -m visiontrain train epochs=3 imgsz=320 batch=8 nbs=64 plots=False"
FIGURES = ("seconds", "processor_seconds", "peak_mb")


def versus_figures(repeats: int, *, other: str, ours: str | None = None) -> dict[str, object]:
    """Seconds, processor seconds and peak memory of both, and the ratio of the other one's to ours.

    Raises:
        SystemExit: If one of them fails; its output is shown.
    """
    commands = {"ours": ours or OURS, "other": other}
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in commands}
    for _ in range(repeats):
        for name, command in commands.items():
            rows[name].append(run(shlex.split(command)))
    medians = {
        name: {figure: round(statistics.median(row[figure] for row in of_name), 3) for figure in FIGURES}
        for name, of_name in rows.items()
    }
    ratios = {figure: round(medians["other"][figure] / medians["ours"][figure], 3) for figure in FIGURES}
    return {"commands": commands, **medians, "other_to_ours": ratios}


def run(command: Sequence[str]) -> dict[str, float]:
    """Run a command in an empty folder and measure it; memory is that of its largest process."""
    with TemporaryDirectory(prefix="visiontrain-versus-") as folder:
        log = Path(folder) / "output.txt"
        with log.open("wb") as output:
            started = time.perf_counter()
            process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=subprocess.STDOUT)
            _, status, usage = os.wait4(process.pid, 0)
            seconds = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            sys.exit(
                f"{shlex.join(command)} ended with {process.returncode}:\n{log.read_text(errors='replace')[-2000:]}"
            )
    unit = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss
    return {
        "seconds": seconds,
        "processor_seconds": usage.ru_utime + usage.ru_stime,
        "peak_mb": usage.ru_maxrss * unit / 2**20,
    }
