"""Data sets as torch's loader sees them: a key or an index in, a sample out.

Both are small to pickle (workers start by spawn): the records are flat arrays and decoded images stay behind.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset

from visiontrain.data.cache import ImageCache
from visiontrain.data.images import MAX_PIXELS, read_image, read_reduced
from visiontrain.data.sampler import Sampler
from visiontrain.errors import DataError
from visiontrain.protocols import Transform
from visiontrain.sample import Record, Records, Sample, SampleKey

STORE_BYTES = 256 * 2**20
"""What a worker may keep of decoded images: about 280 of 640 × 480 pixels, more than the partners of one place."""
RECENT_RECORDS = 1024
"""Most records that a worker keeps as objects: several times the partners of one place."""


@dataclass(frozen=True)
class UnreadableImage:
    """Stands in a batch for an image that could not be read."""

    path: str
    index: int
    reason: str


class ImageStore:
    """The images used last, up to a number of bytes; the latest one always stays. Pickles as an empty store."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._images: OrderedDict[int, NDArray[np.uint8]] = OrderedDict()
        self._bytes = 0

    def get(self, index: int) -> NDArray[np.uint8] | None:
        image = self._images.get(index)
        if image is not None:
            self._images.move_to_end(index)
        return image

    def put(self, index: int, image: NDArray[np.uint8]) -> None:
        assert index not in self._images
        image.flags.writeable = False  # several samples are made of it
        self._images[index] = image
        self._bytes += image.nbytes
        while self._bytes > self.most_bytes and len(self._images) > 1:
            _, dropped = self._images.popitem(last=False)
            self._bytes -= dropped.nbytes

    def __reduce__(self) -> tuple[type[ImageStore], tuple[int]]:
        return type(self), (self.most_bytes,)


class TrainDataset(Dataset[Sample | UnreadableImage]):
    """Training samples by their keys; also the `ImageSource` that transforms draw partners from."""

    def __init__(
        self,
        records: Records,
        transform: Transform,
        *,
        sampler: Sampler,
        imgsz: int,
        store_bytes: int = STORE_BYTES,
        cache: ImageCache | None = None,
        max_pixels: int = MAX_PIXELS,
    ) -> None:
        """
        Args:
            records: The split.
            transform: Makes the samples.
            sampler: Of the run.
            imgsz: Long side to which images are reduced when they are read, pixels.
            store_bytes: Most bytes of decoded images kept, in each worker.
            cache: Of the same records and `imgsz`; what it holds is not read again.
            max_pixels: Larger images count as unreadable.
        """
        assert sampler.num_images == len(records), f"{len(records)} images, the sampler knows {sampler.num_images}"
        assert cache is None or (len(cache), cache.imgsz) == (len(records), imgsz), "the cache is of other images"
        self.records = records
        self.transform = transform
        self.sampler = sampler
        self.imgsz = imgsz
        self._store = ImageStore(store_bytes)
        self.cache = cache
        self._max_pixels = max_pixels
        self._recent: dict[int, Record] = {}

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_recent": {}}

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, key: SampleKey) -> Sample | UnreadableImage:
        try:
            self.load(key.index)
        except DataError as error:
            return UnreadableImage(str(self.record(key.index).path), key.index, str(error))
        return self.transform(key, self)

    def record(self, index: int) -> Record:
        record = self._recent.get(index)
        if record is None:
            if len(self._recent) >= RECENT_RECORDS:
                self._recent.clear()
            record = self._recent[index] = self.records[index]
        return record

    def load(self, index: int) -> NDArray[np.uint8]:
        """(H, W, 3) uint8 RGB, upright, long side at most `imgsz`. Read-only.

        Raises:
            DataError: If the image cannot be read.
        """
        image = None if self.cache is None else self.cache.get(index)
        if image is None:
            image = self._store.get(index)
        if image is None:
            image = read_reduced(self.records[index].path, self.imgsz, max_pixels=self._max_pixels)
            self._store.put(index, image)
        return image

    def partners(self, key: SampleKey, rng: np.random.Generator, count: int) -> list[int]:
        return self.sampler.partners(key, rng, count)


class EvalDataset(Dataset[Sample | UnreadableImage]):
    """Samples of evaluation by their index; images come at full size, as prediction reads them."""

    def __init__(self, records: Records, transform: Transform, *, max_pixels: int = MAX_PIXELS) -> None:
        self.records = records
        self.transform = transform
        self._max_pixels = max_pixels

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int) -> Sample | UnreadableImage:
        try:
            return self.transform(SampleKey(epoch=0, place=index, index=index), self)
        except DataError as error:
            return UnreadableImage(str(self.record(index).path), index, str(error))

    def record(self, index: int) -> Record:
        return self.records[index]

    def load(self, index: int) -> NDArray[np.uint8]:
        """(H, W, 3) uint8 RGB, upright, full size.

        Raises:
            DataError: If the image cannot be read.
        """
        return read_image(self.records[index].path, max_pixels=self._max_pixels)

    def partners(self, key: SampleKey, rng: np.random.Generator, count: int) -> list[int]:
        return Sampler(len(self.records), seed=0).partners(key, rng, count)
