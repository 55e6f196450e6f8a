"""Videos and cameras: their frames one at a time, in memory that does not grow."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeAlias

import cv2
import numpy as np

from visiontrain.errors import DataError
from visiontrain.predict.parts import Frame, Note, SourceImage

OpenCapture: TypeAlias = Callable[[str | int], Any]
"""A video's path or a camera's number → what `cv2.VideoCapture` is, opened or not."""

FFMPEG_LOG_LEVEL = "OPENCV_FFMPEG_LOGLEVEL"
FFMPEG_SILENT = "-8"
"""Source: FFmpeg's libavutil/log.h, AV_LOG_QUIET."""
VIDEO_FPS = 30.0
"""Frames a second where the file or the camera does not tell."""
MOST_FPS = 1000.0
"""What is above is a clock of the container, not a rate of frames."""
LEAST_READ = 0.95
"""Share of the frames that a file announces. Containers without an index only estimate it, so a few may lack."""


@dataclass(frozen=True)
class Clip:
    """A video file or a camera."""

    path: str
    """The file, or `camera0`."""
    address: str | int
    """What is opened: the file's path or the camera's number."""
    open_capture: OpenCapture
    stride: int = 1
    """Of so many frames the first is handed out."""

    @property
    def is_live(self) -> bool:
        return isinstance(self.address, int)

    def images(self, note: Note) -> Iterator[SourceImage]:
        """The frames in order; the file is closed when the walk ends, however it ends.

        Args:
            note: Is told in one line where frames are lacking.

        Raises:
            DataError: If it cannot be opened, or gives no frame at all.
        """
        capture = self.open_capture(self.address)
        try:
            if not capture.isOpened():
                raise DataError(self._fault("cannot be opened"))
            fps = _fps_of(capture) / self.stride
            number = 0
            while capture.grab():
                number += 1
                if (number - 1) % self.stride:
                    continue  # grabbed only: what is passed over need not be decoded
                is_decoded, image = capture.retrieve()
                if not is_decoded:
                    number -= 1
                    break
                yield SourceImage(self.path, np.ascontiguousarray(image[..., ::-1]), Frame(number, fps, self.is_live))
            if not number:
                raise DataError(self._fault("gives no frame"))
            self._check_end(number, capture.get(cv2.CAP_PROP_FRAME_COUNT), note)
        finally:
            capture.release()

    def _fault(self, what: str) -> str:
        if self.is_live:
            return (
                f"{self.path}: the camera {what}; they count from 0 (another program may hold it, or this one may not "
                "use it)"
            )
        return f"{self.path}: the video {what}: it is damaged, or of a kind that OpenCV cannot read; replace the file"

    def _check_end(self, number: int, announced: float, note: Note) -> None:
        if self.is_live:
            note(f"{self.path}: gives no more frames after {number}")
        elif number < LEAST_READ * announced:
            note(f"{self.path}: ends after {number} of {announced:.0f} frames; it is cut short or damaged there")


def open_capture(address: str | int, *, quiet: AbstractContextManager[object]) -> Any:
    """Open a video's path or a camera's number by OpenCV, which may fail: ask `isOpened`.

    Args:
        address: What to open.
        quiet: A context in which OpenCV logs nothing. What it would say of a file, our own messages do.
    """
    # FFmpeg writes to the terminal itself. OpenCV looks for its level in the environment at the first file only.
    before = os.environ.get(FFMPEG_LOG_LEVEL)
    os.environ[FFMPEG_LOG_LEVEL] = before or FFMPEG_SILENT
    try:
        with quiet:
            return cv2.VideoCapture(address, _backend_of(address))
    finally:
        if before is None:
            del os.environ[FFMPEG_LOG_LEVEL]


def _backend_of(address: str | int) -> int:
    """FFmpeg for files, where OpenCV has it: the others take `a%d.avi` for many pictures, and print what they miss."""
    has_ffmpeg = cv2.CAP_FFMPEG in cv2.videoio_registry.getStreamBackends()
    return cv2.CAP_FFMPEG if isinstance(address, str) and has_ffmpeg else cv2.CAP_ANY


def _fps_of(capture: Any) -> float:
    fps = float(capture.get(cv2.CAP_PROP_FPS))
    return fps if math.isfinite(fps) and 0 < fps <= MOST_FPS else VIDEO_FPS
