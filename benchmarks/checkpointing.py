"""What `checkpoint_activations` saves in memory and costs in time.

Each way runs in a fresh process, since a process's peak memory never falls: `python -m benchmarks.checkpointing plain`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.timing import median_seconds

WAYS = ("plain", "checkpointed")
MODEL = "det-n"
IMGSZ = 320
BATCH = 8
WARM_IMGSZ = 64


def checkpointing_figures(
    repeats: int, *, model: str = MODEL, imgsz: int = IMGSZ, batch: int = BATCH
) -> dict[str, object]:
    """Peak memory and time of an update both ways, and their ratios to the plain way."""
    figures = {way: _in_fresh_process(way, repeats, model, imgsz, batch) for way in WAYS}
    plain, checkpointed = (figures[way] for way in WAYS)
    return {
        "model": model,
        "imgsz": imgsz,
        "batch": batch,
        **figures,
        "memory_ratio": round(checkpointed["peak_mb"] / plain["peak_mb"], 3),
        "seconds_ratio": round(checkpointed["seconds"] / plain["seconds"], 3),
    }


def _in_fresh_process(way: str, repeats: int, model: str, imgsz: int, batch: int) -> dict[str, float]:
    numbers = ("--model", model, "--imgsz", str(imgsz), "--batch", str(batch), "--repeats", str(repeats))
    command = [sys.executable, "-m", "benchmarks.checkpointing", way, *numbers]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def measure(way: str, repeats: int, model: str, imgsz: int, batch: int) -> dict[str, float]:
    """The peak of this process above what it held before, MB, and the median processor seconds of an update."""
    from benchmarks.updates import make_batch, make_network, make_window, update

    network = make_network(model)
    network.checkpoint_activations = way == "checkpointed"
    window = make_window(network)
    update(network, window, make_batch(2, WARM_IMGSZ))  # loads libraries and makes the optimizer's state
    images = make_batch(batch, imgsz)
    before = peak_bytes()
    seconds = median_seconds(lambda: update(network, window, images), repeats, clock=time.process_time)
    return {"peak_mb": round((peak_bytes() - before) / 2**20, 1), "seconds": round(seconds, 4)}


def peak_bytes() -> int:
    """The most memory that this process ever held."""
    status = Path("/proc/self/status")
    if status.exists():  # Linux, where ru_maxrss of a child begins with its parent's
        line = next(line for line in status.read_text(encoding="utf-8").splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkpointing", description=__doc__.partition("\n")[0])
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--imgsz", type=int, default=IMGSZ)
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    print(json.dumps(measure(**vars(arguments))))


if __name__ == "__main__":
    main()
