"""How many training samples one thread makes from images that are decoded already: neither disk nor decoder count."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path

import cv2

from benchmarks.timing import median_seconds
from visiontrain.data.dataset import TrainDataset
from visiontrain.data.formats import read_data_set
from visiontrain.data.sampler import Sampler
from visiontrain.data.transforms.train import AugmentSettings, TrainTransform
from visiontrain.sample import Records

SAMPLES = 200
"""In one measurement."""
MOST_IMAGES = 256
"""Of the data set; they are all kept decoded."""


def augmentation_figures(repeats: int, *, data: Path | None, sizes: Sequence[int]) -> dict[str, object]:
    """Samples per second at every size, pixels."""
    with as_file(files("visiontrain.bundled") / "shapes") as bundled:
        source = data or bundled / "data.yaml"
        records = read_data_set(source, splits=("train",)).splits["train"][:MOST_IMAGES]
        rates = {str(imgsz): round(samples_per_second(records, imgsz, repeats), 1) for imgsz in sizes}
    return {"data": str(source), "augmented_samples_per_second": rates}


def samples_per_second(records: Records, imgsz: int, repeats: int) -> float:
    """Mosaic, affine, HSV and flip of decoded images, in one thread."""
    cv2.setNumThreads(1)
    settings = AugmentSettings(imgsz=imgsz, mosaic_until_epoch=1)
    dataset = TrainDataset(
        records, TrainTransform(settings, 0), sampler=Sampler(len(records), seed=0), imgsz=imgsz, store_bytes=2**31
    )
    for index in range(len(records)):
        dataset.load(index)
    places = [x % len(records) for x in range(SAMPLES)]  # places of epoch 0, which has mosaic

    def make_samples() -> None:
        for place in places:
            dataset[dataset.sampler.key(place)]

    return SAMPLES / median_seconds(make_samples, repeats)
