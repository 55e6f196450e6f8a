"""How many images of a data set `check` reads, decodes, hashes and compares in a second."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path

import cv2
import numpy as np

from benchmarks.timing import median_seconds
from visiontrain.data.check.looks import image_paths, look_at_all
from visiontrain.data.check.prints import PRINT_BYTES, find_alike
from visiontrain.data.formats import read_data_set

MANY_PRINTS = 100_000
VAL_SHARE = 0.1


def check_figures(repeats: int, *, data: Path | None, sizes: Sequence[int]) -> dict[str, object]:
    """Images per second and process at every size, pixels; seconds to compare the prints of many images."""
    with as_file(files("visiontrain.bundled") / "shapes") as bundled:
        source = data or bundled / "data.yaml"
        splits = read_data_set(source).splits.values()
        paths = list(dict.fromkeys(path for records in splits for path in image_paths(records)))
        cv2.setNumThreads(1)
        rates = {str(imgsz): round(images_per_second(paths, imgsz, repeats), 1) for imgsz in sizes}
    return {
        "data": str(source),
        "images_per_second_and_process": rates,
        f"seconds_to_compare_{MANY_PRINTS}_prints": round(comparing_seconds(MANY_PRINTS, repeats), 2),
    }


def images_per_second(paths: Sequence[str], imgsz: int, repeats: int) -> float:
    """Of all that `check` does with an image, in this process; the files are in the system's memory from the second
    measurement on.
    """
    return len(paths) / median_seconds(lambda: look_at_all(paths, imgsz=imgsz, workers=0), repeats)


def comparing_seconds(count: int, repeats: int) -> float:
    """To find the prints of one split that are near one of another; they are random, so none is."""
    rng = np.random.default_rng(0)
    prints = rng.integers(0, 256, (count, PRINT_BYTES), dtype=np.uint8)
    groups = (rng.random(count) < VAL_SHARE).astype(np.int64)
    return median_seconds(lambda: find_alike(prints, groups), repeats)
