"""What tests of reading and augmenting share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from visiontrain.data.sampler import Sampler
from visiontrain.sample import Record


@pytest.fixture
def yolo_set(tmp_path) -> Callable[..., Path]:
    """A function that writes a data set in YOLO form with label files as given, and returns its folder."""

    def write(labels: dict[str, str | None], *, yaml: str = "train: images/train\nnames: [a, b]\n", size=(64, 48)):
        """`labels`: name of the image → text of its label file; None writes none."""
        root = tmp_path / "set"
        for folder in ("images", "labels"):
            (root / folder / "train").mkdir(parents=True, exist_ok=True)
        for name, text in labels.items():
            Image.new("RGB", size, (90, 120, 150)).save(root / "images" / "train" / f"{name}.png")
            if text is not None:
                (root / "labels" / "train" / f"{name}.txt").write_text(text, encoding="utf-8")
        (root / "data.yaml").write_text(yaml, encoding="utf-8")
        return root

    return write


class Painted:
    """An `ImageSource` of black pictures, each with one white rectangle that its box surrounds exactly."""

    def __init__(self, sizes: list[tuple[int, int]], rectangles: list[tuple[int, int, int, int]]) -> None:
        self.images, self.records = [], []
        for index, ((height, width), (x1, y1, x2, y2)) in enumerate(zip(sizes, rectangles, strict=True)):
            image = np.zeros((height, width, 3), np.uint8)
            image[y1:y2, x1:x2] = 255
            box = np.array([[x1 / width, y1 / height, x2 / width, y2 / height]], np.float32)
            self.images.append(image)
            self.records.append(Record(Path(f"{index}.png"), height, width, box, np.array([index], np.int64)))

    def record(self, index):
        return self.records[index]

    def load(self, index):
        return self.images[index]

    def partners(self, key, rng, count):
        return Sampler(len(self.images), seed=0).partners(key, rng, count)


@pytest.fixture
def painted() -> type[Painted]:
    return Painted


@pytest.fixture
def hull_of_white() -> Callable[[np.ndarray], tuple[int, int, int, int]]:
    """A function that gives the whole-pixel hull, xyxy, of what is white in a picture."""

    def hull(image):
        rows, columns = np.nonzero(image[..., 0] > 127)  # halfway from black to white, and above the grey of padding
        return columns.min(), rows.min(), columns.max() + 1, rows.max() + 1

    return hull
