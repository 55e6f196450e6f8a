"""Measure training, prediction and what they are made of, and print one JSON document.

    python -m benchmarks [training window loss ...] [--data data.yaml] [--imgsz 320 640] [--repeats 5]
    python -m benchmarks labels [--files 100000]
    python -m benchmarks --versus 'other-trainer train ...' [--ours 'visiontrain train ...']

Every figure is the median of `--repeats` measurements, in a fresh process where start-up or memory is measured, and in
one thread where a part of training, augmentation or `check` is. `training` is the whole of it, with the threads and the
precision that a run takes by itself. `labels` (measured once) and `growth` take some minutes, and are measured only
where they are named.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from benchmarks.augmentation import augmentation_figures
from benchmarks.check import check_figures
from benchmarks.checkpointing import checkpointing_figures
from benchmarks.growth import growth_figures
from benchmarks.labels import FILES, labels_figures
from benchmarks.losses import losses_figures
from benchmarks.predicting import predicting_figures
from benchmarks.scoring import scoring_figures
from benchmarks.startup import startup_figures
from benchmarks.training import training_figures
from benchmarks.versus import versus_figures
from benchmarks.window import window_figures

BENCHMARKS: Mapping[str, Callable[[argparse.Namespace], dict[str, object]]] = {
    "startup": lambda arguments: startup_figures(arguments.repeats),
    "augmentation": lambda arguments: augmentation_figures(
        arguments.repeats, data=arguments.data, sizes=arguments.imgsz
    ),
    "check": lambda arguments: check_figures(arguments.repeats, data=arguments.data, sizes=arguments.imgsz),
    "checkpointing": lambda arguments: checkpointing_figures(arguments.repeats),
    "window": lambda arguments: window_figures(arguments.repeats),
    "loss": lambda arguments: losses_figures(arguments.repeats),
    "training": lambda arguments: training_figures(arguments.repeats, data=arguments.data),
    "metrics": lambda arguments: scoring_figures(arguments.repeats),
    "predict": lambda arguments: predicting_figures(arguments.repeats),
    "labels": lambda arguments: labels_figures(arguments.files),
    "growth": lambda arguments: growth_figures(arguments.repeats, plot=arguments.plot),
}
"""By name; each gives its figures under that name."""
ONLY_BY_NAME = ("labels", "growth")
NAMES_HELP = f"of {', '.join(BENCHMARKS)}; all but {', '.join(ONLY_BY_NAME)} if left out"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="name", help=NAMES_HELP)
    parser.add_argument(
        "--data", type=Path, help="a data.yaml for training, augmentation and check; the bundled sample if left out"
    )
    parser.add_argument("--imgsz", type=int, nargs="+", default=[320, 640], help="sides of augmented samples, pixels")
    parser.add_argument("--repeats", type=int, default=5, help="measurements behind each figure")
    parser.add_argument("--files", type=int, default=FILES, help="label files that labels reads")
    parser.add_argument("--plot", type=Path, help="the PNG file that growth draws")
    parser.add_argument("--versus", metavar="CMD", help="a command to run in turn with ours, and nothing else")
    parser.add_argument("--ours", metavar="CMD", help="ours, in place of three epochs on the bundled sample")
    arguments = parser.parse_args(argv)
    unknown = [name for name in arguments.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; known are {', '.join(BENCHMARKS)}")
    if arguments.versus:
        figures = {"versus": versus_figures(arguments.repeats, other=arguments.versus, ours=arguments.ours)}
        print(json.dumps({**machine(), "repeats": arguments.repeats, **figures}, indent=2))
        return
    names = arguments.names or [name for name in BENCHMARKS if name not in ONLY_BY_NAME]
    figures = {name: BENCHMARKS[name](arguments) for name in names}
    print(json.dumps({**machine(), "repeats": arguments.repeats, **figures}, indent=2))


def machine() -> dict[str, object]:
    """What figures must be read with: figures of two machines cannot be compared, their ratios can."""
    packages = ("visiontrain", "torch", "torchvision", "opencv-python", "numpy")
    return {
        "machine": {"system": platform.platform(), "processor": _processor(), "cores": os.cpu_count()},
        "threads": os.environ.get("OMP_NUM_THREADS", "as many as cores"),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in packages}},
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    rows = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines() if cpuinfo.is_file() else []
    names = [row.partition(":")[2].strip() for row in rows if row.startswith("model name")]
    return names[0] if names else platform.processor()


if __name__ == "__main__":
    main()
