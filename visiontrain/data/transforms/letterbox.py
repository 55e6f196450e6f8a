"""Fit an image into the network's input without distorting it: validation and prediction."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from visiontrain.boxes import warp_boxes
from visiontrain.data.images import fit_size, reduce_image
from visiontrain.data.transforms.geometry import FILL
from visiontrain.protocols import ImageSource
from visiontrain.sample import Sample, SampleKey


@dataclass(frozen=True)
class Letterbox:
    """Brings the long side to `imgsz` and pads both sides with grey to whole multiples of `stride`.

    The picture lies in the middle. It is reduced by area averaging or enlarged bilinearly. As a `Transform` it makes
    the sample of evaluation, which holds every box of the record.
    """

    imgsz: int
    """Long side of the picture, pixels."""
    stride: int
    """The network's largest stride, pixels."""
    square: bool = False
    """Pad to `imgsz` × `imgsz` instead of as little as possible."""

    def shape_of(self, height: int, width: int) -> tuple[int, int]:
        """Height and width of the output for a source image of `height` × `width` pixels."""
        long_side = self._to_stride(self.imgsz)
        if self.square:
            return long_side, long_side
        new_height, new_width = fit_size(height, width, self.imgsz)
        return self._to_stride(new_height), self._to_stride(new_width)

    def fit(self, image: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
        """Letterbox one image.

        Args:
            image: (H, W, 3) uint8.

        Returns:
            The padded image, (H', W', 3) uint8, and the (3, 3) float32 matrix from pixels of `image` to its pixels.
        """
        height, width = image.shape[:2]
        new_height, new_width = fit_size(height, width, self.imgsz)
        resized = reduce_image(image, self.imgsz)
        if resized.shape[:2] != (new_height, new_width):
            enlarged = cv2.resize(image, (new_width, new_height), interpolation=cv2.INTER_LINEAR)
            resized = np.asarray(enlarged, np.uint8)
        out_height, out_width = self.shape_of(height, width)
        top, left = (out_height - new_height) // 2, (out_width - new_width) // 2
        padded = np.full((out_height, out_width, 3), FILL, np.uint8)
        padded[top : top + new_height, left : left + new_width] = resized
        matrix = np.array([[new_width / width, 0, left], [0, new_height / height, top], [0, 0, 1]], np.float32)
        return padded, matrix

    def __call__(self, key: SampleKey, images: ImageSource) -> Sample:
        record, source = images.record(key.index), images.load(key.index)
        image, from_source = self.fit(source)
        height, width = source.shape[:2]
        boxes = warp_boxes(record.boxes * np.array([width, height, width, height], np.float32), from_source)
        # `source` may have been reduced already; the matrix is that of the file's own pixels.
        matrix = from_source @ np.diag([width / record.width, height / record.height, 1.0]).astype(np.float32)
        size = (record.height, record.width)
        return Sample(image, boxes, record.classes, str(record.path), key.index, size, matrix)

    def _to_stride(self, size: int) -> int:
        return -(-size // self.stride) * self.stride
