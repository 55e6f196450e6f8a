"""Write an MP4 video frame by frame."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from visiontrain.errors import ConfigError

CODEC = "mp4v"
"""MPEG-4 part 2: OpenCV's own build of FFmpeg writes it everywhere."""


class VideoFile:
    """An MP4 file that grows by a frame at a time; it can be played once it is closed."""

    def __init__(self, path: Path, *, fps: float) -> None:
        """Nothing is written before the first frame tells the size.

        Args:
            path: The file to write; its folder is made.
            fps: Frames a second.
        """
        self.path = path
        self._fps = fps
        self._size: tuple[int, int] | None = None
        self._writer: Any = None

    def add(self, image_bgr: NDArray[np.uint8]) -> None:
        """Append (H, W, 3) uint8 BGR, of the size of the first.

        Raises:
            ConfigError: If videos cannot be written here.
        """
        height, width = image_bgr.shape[:2]
        if self._writer is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._size = (width, height)
            self._writer = cv2.VideoWriter(str(self.path), cv2.VideoWriter.fourcc(*CODEC), self._fps, self._size)
            if not self._writer.isOpened():
                raise ConfigError(
                    f"{self.path}: this OpenCV cannot write {CODEC} videos of {width} × {height}; use save=False, or "
                    "an opencv-python with FFmpeg"
                )
        assert self._size == (width, height), "OpenCV drops frames of another size in silence"
        self._writer.write(image_bgr)

    def close(self) -> None:
        """Finish the file."""
        if self._writer is not None:
            self._writer.release()
