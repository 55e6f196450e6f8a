from pathlib import Path

import cv2
import numpy as np
import pytest

from visiontrain.errors import DataError

SUFFIXES = frozenset({".png", ".jpg"})


def read_file(path):
    image = cv2.imdecode(np.frombuffer(Path(path).read_bytes(), np.uint8), cv2.IMREAD_COLOR)
    if image is None:
        raise DataError(f"{path}: is damaged or not an image; replace the file")
    return np.ascontiguousarray(image[..., ::-1])


@pytest.fixture
def reading():
    """How files are read: what `open_source` is given by its caller."""
    return {"read_image": read_file, "suffixes": SUFFIXES}


@pytest.fixture
def write():
    """Write (H, W, 3) RGB to a file, folders included."""

    def write_rgb(path, image):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(cv2.imencode(path.suffix, image[..., ::-1])[1].tobytes())
        return path

    return write_rgb


@pytest.fixture
def picture():
    """(H, W, 3) RGB noise by seed."""

    def make(seed=0, height=48, width=64):
        return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)

    return make
