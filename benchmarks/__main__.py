"""Measure start-up, augmentation, check, checkpointing and the window, and print one JSON document.

    python -m benchmarks [startup augmentation check ...] [--data data.yaml] [--imgsz 320 640] [--repeats 5]
    python -m benchmarks labels [--files 100000]

Every figure is the median of `--repeats` measurements, in a fresh process where start-up or memory is measured, and in
one thread where training, augmentation or `check` is. `labels` takes some minutes: it is measured once, and only where
it is named.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.augmentation import augmentation_figures
from benchmarks.check import check_figures
from benchmarks.checkpointing import checkpointing_figures
from benchmarks.labels import FILES, labels_figures
from benchmarks.startup import startup_figures
from benchmarks.window import window_figures

BENCHMARKS: Mapping[str, Callable[[argparse.Namespace], dict[str, object]]] = {
    "startup": lambda arguments: startup_figures(arguments.repeats),
    "augmentation": lambda arguments: augmentation_figures(
        arguments.repeats, data=arguments.data, sizes=arguments.imgsz
    ),
    "check": lambda arguments: check_figures(arguments.repeats, data=arguments.data, sizes=arguments.imgsz),
    "checkpointing": lambda arguments: checkpointing_figures(arguments.repeats),
    "window": lambda arguments: window_figures(arguments.repeats),
    "labels": lambda arguments: labels_figures(arguments.files),
}
"""By name; each gives its figures under that name."""
ONLY_BY_NAME = ("labels",)
NAMES_HELP = f"of {', '.join(BENCHMARKS)}; all but {', '.join(ONLY_BY_NAME)} if left out"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="name", help=NAMES_HELP)
    parser.add_argument(
        "--data", type=Path, help="a data.yaml for augmentation and check; the bundled sample if left out"
    )
    parser.add_argument("--imgsz", type=int, nargs="+", default=[320, 640], help="sides of augmented samples, pixels")
    parser.add_argument("--repeats", type=int, default=5, help="measurements behind each figure")
    parser.add_argument("--files", type=int, default=FILES, help="label files that labels reads")
    arguments = parser.parse_args(argv)
    unknown = [name for name in arguments.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; known are {', '.join(BENCHMARKS)}")
    names = arguments.names or [name for name in BENCHMARKS if name not in ONLY_BY_NAME]
    figures = {name: BENCHMARKS[name](arguments) for name in names}
    print(json.dumps({"repeats": arguments.repeats, **figures}, indent=2))


if __name__ == "__main__":
    main()
