"""How long a data set of many label files takes to read, without and with its label cache, and how much memory.

Each reading runs in a fresh process, as a run would: `python -m benchmarks.labels FOLDER/data.yaml`. The files have
just been written, so they come from the system's memory and not from the disk.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.checkpointing import peak_bytes
from visiontrain.data.cache_files import FOLDER_VARIABLE

FILES = 100_000
BOXES = 8
"""In each file, about as many as an image of COCO has."""
CLASSES = 80
SIDE = 8
"""Of an image, pixels: only its header is read."""
FILES_OF_A_FOLDER = 10_000
LINKS_OF_A_FILE = 1000
"""Of one image; file systems bound how often a file may be linked."""
AGE_SECONDS = 3600.0
"""What was written a moment ago is not kept in a cache."""


def labels_figures(files: int = FILES) -> dict[str, object]:
    """Seconds and peak memory of two readings in a row, of which the second finds the cache of the first."""
    with TemporaryDirectory(prefix="visiontrain-labels-") as folder:
        description = make_data_set(Path(folder) / "data", files)
        cold, warm = (_in_fresh_process(description, Path(folder) / "cache") for _ in range(2))
    return {"files": files, "boxes": files * BOXES, "without_cache": cold, "with_cache": warm}


def make_data_set(folder: Path, files: int) -> Path:
    """Write a YOLO data set of tiny images, nearly all of them links, with a label file each; returns its data.yaml."""
    import cv2

    rng = np.random.default_rng(0)
    corners = np.sort(rng.uniform(0, 1, (LINKS_OF_A_FILE, BOXES, 2, 2)), axis=2)
    boxes = np.concatenate([corners.mean(axis=2), corners[:, :, 1] - corners[:, :, 0]], axis=2)
    classes = rng.integers(0, CLASSES, (LINKS_OF_A_FILE, BOXES))
    texts = [
        "".join(f"{c} {x:.6f} {y:.6f} {w:.6f} {h:.6f}\n" for c, (x, y, w, h) in zip(of_image, rows, strict=True))
        for of_image, rows in zip(classes, boxes, strict=True)
    ]
    written = time.time() - AGE_SECONDS
    original = folder
    for index in range(files):
        part = f"{index // FILES_OF_A_FOLDER:03d}"
        image = folder / "images" / "train" / part / f"{index:07d}.png"
        label = folder / "labels" / "train" / part / f"{index:07d}.txt"
        if index % FILES_OF_A_FOLDER == 0:
            image.parent.mkdir(parents=True)
            label.parent.mkdir(parents=True)
        if index % LINKS_OF_A_FILE == 0:
            original = image
            cv2.imwrite(str(image), rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8))
            os.utime(image, (written, written))
        else:
            image.hardlink_to(original)
        label.write_text(texts[index % LINKS_OF_A_FILE], encoding="ascii")
        os.utime(label, (written, written))
    names = ", ".join(f"class{index}" for index in range(CLASSES))
    description = folder / "data.yaml"
    description.write_text(f"train: images/train\nval: images/train\nnames: [{names}]\n", encoding="ascii")
    return description


def _in_fresh_process(description: Path, cache: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.labels", str(description)]
    environment = {**os.environ, FOLDER_VARIABLE: str(cache)}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return json.loads(done.stdout)


def measure(description: Path) -> dict[str, float]:
    """Seconds to read the training split, and what the process held at most above what it held before, MB."""
    from visiontrain.data.formats import read_data_set

    before = peak_bytes()
    started = time.perf_counter()
    records = read_data_set(description, splits=("train",)).splits["train"]
    seconds = time.perf_counter() - started
    peak_mb = (peak_bytes() - before) / 2**20
    return {"records": len(records), "seconds": round(seconds, 3), "peak_mb": round(peak_mb, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.labels", description=__doc__.partition("\n")[0])
    parser.add_argument("description", type=Path, help="a data.yaml")
    print(json.dumps(measure(parser.parse_args().description)))


if __name__ == "__main__":
    main()
