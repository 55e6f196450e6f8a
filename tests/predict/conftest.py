import contextlib
from functools import partial
from pathlib import Path

import cv2
import numpy as np
import pytest

from visiontrain.errors import DataError
from visiontrain.predict.clips import open_capture

SUFFIXES = frozenset({".png", ".jpg"})


class FakeCapture:
    """What OpenCV makes of a camera or a video, with frames that are known."""

    def __init__(self, frames, *, fps=0.0, announced=-1.0, is_opened=True):
        self.frames = list(frames)
        self.values = {cv2.CAP_PROP_FPS: fps, cv2.CAP_PROP_FRAME_COUNT: announced}
        self.is_opened = is_opened
        self.num_grabbed = self.num_decoded = 0
        self.is_released = False

    def isOpened(self):
        return self.is_opened

    def grab(self):
        self.num_grabbed += 1
        return self.num_grabbed <= len(self.frames)

    def retrieve(self):
        frame = self.frames[self.num_grabbed - 1]
        self.num_decoded += 1
        return frame is not None, frame

    def get(self, what):
        return self.values[what]

    def release(self):
        self.is_released = True


def read_file(path):
    image = cv2.imdecode(np.frombuffer(Path(path).read_bytes(), np.uint8), cv2.IMREAD_COLOR)
    if image is None:
        raise DataError(f"{path}: is damaged or not an image; replace the file")
    return np.ascontiguousarray(image[..., ::-1])


@pytest.fixture
def reading():
    """How files are read: what `open_source` is given by its caller."""
    return {
        "read_image": read_file,
        "suffixes": SUFFIXES,
        "open_capture": partial(open_capture, quiet=contextlib.nullcontext()),
    }


@pytest.fixture
def fake_capture():
    """The class of cameras and videos whose frames are known."""
    return FakeCapture


@pytest.fixture
def write_video():
    """Write frames (H, W, 3) BGR to an AVI file."""

    def write_frames(path, frames, fps=10.0):
        height, width = frames[0].shape[:2]
        writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), fps, (width, height))
        for frame in frames:
            writer.write(frame)
        writer.release()
        return path

    return write_frames


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
