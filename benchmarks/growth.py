"""How costs grow: an epoch's time with its images, the window's own work with its micro-batches, memory with workers.

python -m benchmarks growth [--plot docs/growth.png]
"""

from __future__ import annotations

import csv
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import cv2
import numpy as np

from benchmarks.updates import make_batch, make_network, make_window, update
from benchmarks.window import shares

IMAGES = (100, 200, 400, 800)
MICRO_BATCHES = (1, 2, 4, 8, 16)
WORKERS = (0, 1, 2, 3, 4)
MODEL = "det-n"
IMGSZ = 128
BATCH = 8
EPOCHS = 4
"""Of which the first is not measured: libraries load."""
SAMPLING_SECONDS = 0.2

Curve = Mapping[int, float]


def growth_figures(repeats: int, *, plot: Path | None = None) -> dict[str, object]:
    """Three curves; with `plot` they are drawn into that file."""
    with TemporaryDirectory(prefix="visiontrain-growth-") as folder:
        sets = {count: make_data_set(Path(folder) / f"{count}", count) for count in IMAGES}
        curves = {
            "epoch_seconds_by_images": {
                count: statistics.median(_train(data, workers=0)[0] for _ in range(max(1, repeats // 2)))
                for count, data in sets.items()
            },
            "window_ms_by_micro_batches": window_milliseconds(repeats),
            "memory_mb_by_workers": {workers: _train(sets[IMAGES[1]], workers=workers)[1] for workers in WORKERS},
        }
    if plot is not None:
        draw(curves, plot)
    return {name: {str(at): round(value, 3) for at, value in curve.items()} for name, curve in curves.items()}


def make_data_set(folder: Path, count: int) -> Path:
    """Write a YOLO data set of `count` random images with two boxes each; returns its data.yaml."""
    rng = np.random.default_rng(0)
    for name in ("images", "labels"):
        (folder / name).mkdir(parents=True)
    for index in range(count):
        cv2.imwrite(str(folder / "images" / f"{index}.png"), rng.integers(0, 256, (IMGSZ, IMGSZ, 3), dtype=np.uint8))
        (folder / "labels" / f"{index}.txt").write_text("0 0.3 0.3 0.4 0.4\n1 0.7 0.6 0.3 0.5\n", encoding="ascii")
    (folder / "data.yaml").write_text("train: images\nval: images\nnames: [a, b]\n", encoding="ascii")
    return folder / "data.yaml"


def window_milliseconds(repeats: int) -> Curve:
    """What the window itself does in an update, by the micro-batches that it is cut into."""
    network = make_network(MODEL)
    window, batch = make_window(network), make_batch(2, IMGSZ)
    update(network, window, batch)
    return {
        count: 1e3 * shares(network, window, batch, repeats, micro_batches=count)["own_seconds"]
        for count in MICRO_BATCHES
    }


def _train(data: Path, *, workers: int) -> tuple[float, float]:
    """Seconds of an epoch, and the most memory that the processes of a run hold together, MB."""
    with TemporaryDirectory(prefix="visiontrain-growth-") as folder:
        keys = {
            "data": data,
            "model": MODEL,
            "imgsz": IMGSZ,
            "batch": BATCH,
            "epochs": EPOCHS,
            "workers": workers,
            "val": False,
            "plots": False,
            "quiet": True,
            "save_dir": f"{folder}/run",
        }
        command = [sys.executable, "-m", "visiontrain", "train", *(f"{key}={value}" for key, value in keys.items())]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
        peak = 0.0
        while process.poll() is None:
            peak = max(peak, memory_of_session(process.pid))
            time.sleep(SAMPLING_SECONDS)
        if process.returncode:
            sys.exit(f"{' '.join(command)} ended with {process.returncode}")
        with (Path(folder) / "run" / "results.csv").open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))[1:]
    return statistics.median(float(row["t_data"]) + float(row["t_step"]) for row in rows), peak


def memory_of_session(leader: int) -> float:
    """MB of all processes of a session, what they share counted once (Linux: proportional set size); else 0."""
    total = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if os.getsid(int(folder.name)) == leader:
                lines = (folder / "smaps_rollup").read_text(encoding="ascii").splitlines()
                total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        except OSError:
            continue  # it has ended meanwhile
    return total / 1024


def draw(curves: Mapping[str, Curve], path: Path) -> None:
    """One panel for each curve, with the straight line through its ends."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    titles = {
        "epoch_seconds_by_images": ("seconds of an epoch", "images"),
        "window_ms_by_micro_batches": ("milliseconds of the window's own work", "micro-batches of a window"),
        "memory_mb_by_workers": ("MB of all processes", "workers"),
    }
    figure = Figure(figsize=(4.0 * len(curves), 3.2), dpi=100, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    for place, (name, curve) in enumerate(curves.items(), start=1):
        axes = figure.add_subplot(1, len(curves), place)
        at, values = list(curve), list(curve.values())
        axes.plot([at[0], at[-1]], [values[0], values[-1]], "--", color="#999999", label="straight line")
        axes.plot(at, values, "o-", color="#0072B2", label="measured")
        axes.set_ylim(bottom=0)
        axes.set_title(titles[name][0], fontsize=10)
        axes.set_xlabel(titles[name][1])
        axes.legend(fontsize=8)
    canvas.print_png(path)
