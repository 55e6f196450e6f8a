"""Time start-up and augmentation and print one JSON document.

    python -m benchmarks [--data data.yaml] [--imgsz 320 640] [--repeats 5]

Every figure is the median of `--repeats` measurements, in a fresh process where start-up is measured. Augmentation runs
in one thread over images that are decoded already, so that it measures neither the disk nor the decoder.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib.resources import as_file, files
from pathlib import Path

import cv2

from visiontrain.data.dataset import TrainDataset
from visiontrain.data.formats import read_data_set
from visiontrain.data.sampler import key_at
from visiontrain.data.transforms.train import AugmentSettings, TrainTransform
from visiontrain.sample import Records

START_UPS = {
    "import_seconds": ("-c", "import visiontrain"),
    "help_seconds": ("-m", "visiontrain", "help"),
    "interpreter_seconds": ("-c", "pass"),  # contained in both of the above
}
SAMPLES = 200
"""In one measurement of augmentation."""
MOST_IMAGES = 256
"""Of the data set; they are all kept decoded."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, help="a data.yaml; the bundled sample if left out")
    parser.add_argument("--imgsz", type=int, nargs="+", default=[320, 640], help="sides of the samples, pixels")
    parser.add_argument("--repeats", type=int, default=5, help="measurements behind each figure")
    arguments = parser.parse_args()
    with as_file(files("visiontrain.bundled") / "shapes") as bundled:
        source = arguments.data or bundled / "data.yaml"
        records = read_data_set(source, splits=("train",)).splits["train"][:MOST_IMAGES]
        figures: dict[str, object] = {
            name: round(median_seconds(partial(start, command), arguments.repeats), 4)
            for name, command in START_UPS.items()
        }
        figures["augmented_samples_per_second"] = {
            str(imgsz): round(samples_per_second(records, imgsz, arguments.repeats), 1) for imgsz in arguments.imgsz
        }
    print(json.dumps({"data": str(source), "repeats": arguments.repeats, **figures}, indent=2))


def start(command: tuple[str, ...]) -> None:
    subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)


def samples_per_second(records: Records, imgsz: int, repeats: int) -> float:
    """Mosaic, affine, HSV and flip of decoded images, in one thread."""
    cv2.setNumThreads(1)
    settings = AugmentSettings(imgsz=imgsz, mosaic_until_epoch=1)
    dataset = TrainDataset(records, TrainTransform(settings, 0), seed=0, imgsz=imgsz, store_bytes=2**31)
    for index in range(len(records)):
        dataset.load(index)
    places = [x % len(records) for x in range(SAMPLES)]  # places of epoch 0, which has mosaic

    def make_samples() -> None:
        for place in places:
            dataset[key_at(place, num_images=len(records), seed=0)]

    return SAMPLES / median_seconds(make_samples, repeats)


def median_seconds(run: Callable[[], object], repeats: int) -> float:
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


if __name__ == "__main__":
    main()
