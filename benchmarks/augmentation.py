"""How many training samples one core makes: of images that are decoded already, and in an epoch that reads them first.

Times are those of the processor, so that neither a disk nor other programs count.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from importlib.resources import as_file, files
from pathlib import Path

import cv2

from benchmarks.timing import median_seconds
from visiontrain.data.cache import ImageCache, open_image_cache
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
        cached = {str(imgsz): round(samples_per_second(records, imgsz, repeats), 1) for imgsz in sizes}
        read = {str(imgsz): round(samples_per_second_with_reading(records, imgsz, repeats), 1) for imgsz in sizes}
    return {
        "data": str(source),
        "augmented_samples_per_second": cached,
        "read_and_augmented_samples_per_second": read,
    }


def samples_per_second(records: Records, imgsz: int, repeats: int) -> float:
    """Mosaic, affine, HSV and flip of images from `cache=ram`, in one thread."""
    cache = open_image_cache(records, "ram", imgsz=imgsz, free_memory=None, threads=1)
    try:
        dataset = _dataset(records, imgsz, cache)
        places = [x % len(records) for x in range(SAMPLES)]  # places of epoch 0, which has mosaic
        return _rate(lambda: _make_samples(dataset, places), SAMPLES, repeats)
    finally:
        cache.close()


def samples_per_second_with_reading(records: Records, imgsz: int, repeats: int) -> float:
    """The same without a cache in the first epoch, where as many images are decoded as samples are made."""
    places = range(len(records))
    return _rate(lambda: _make_samples(_dataset(records, imgsz), places), len(records), repeats)


def _dataset(records: Records, imgsz: int, cache: ImageCache | None = None) -> TrainDataset:
    transform = TrainTransform(AugmentSettings(imgsz=imgsz, mosaic_until_epoch=1), 0)
    sampler = Sampler(len(records), seed=0)
    return TrainDataset(records, transform, sampler=sampler, imgsz=imgsz, store_bytes=2**31, cache=cache)


def _make_samples(dataset: TrainDataset, places: Sequence[int]) -> None:
    for place in places:
        dataset[dataset.sampler.key(place)]


def _rate(run: Callable[[], object], samples: int, repeats: int) -> float:
    cv2.setNumThreads(1)
    return samples / median_seconds(run, repeats, clock=time.process_time)
