"""The boxes that a detector found in one image, and how they are told, written and drawn.

Letters: N detections of an image, H × W its pixels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from visiontrain.boxes import clip_boxes, warp_boxes
from visiontrain.drawing import draw_boxes
from visiontrain.predict.arrays import Array, as_numpy, on_cpu


def find_boxes(decoded: Mapping[str, Tensor], matrix: NDArray[np.floating], orig_shape: tuple[int, int]) -> Boxes:
    """The boxes that were decoded for an image, in pixels of the original image, on the CPU.

    A box that lies in the letterbox's border has nothing left inside the image, and is left out.

    Args:
        decoded: `boxes` (N, 4) xyxy pixels of the network's input, `scores` (N,), `classes` (N,).
        matrix: (3, 3), pixels of the original image → pixels of the network's input.
        orig_shape: Height and width of the original image.
    """
    boxes, scores, classes = (decoded[key].cpu().numpy() for key in ("boxes", "scores", "classes"))
    height, width = orig_shape
    back = np.linalg.inv(matrix.astype(np.float64))
    boxes = clip_boxes(warp_boxes(boxes, back), width, height)
    rows = np.concatenate([boxes, scores[:, None], classes[:, None]], axis=1).astype(np.float32)
    has_area = (boxes[:, 2:] > boxes[:, :2]).all(axis=1)
    return Boxes(torch.from_numpy(rows[has_area]), orig_shape)


def told_counts(counts: Mapping[int, int], names: Mapping[int, str]) -> str:
    """Such as `2 RBC, 1 WBC`, in the order of the classes; empty where there are none."""
    return ", ".join(f"{count} {names.get(index, index)}" for index, count in sorted(counts.items()))


class Boxes:
    """The boxes of an image with their scores and classes, best first."""

    id = None
    """Track numbers: none, this is no tracker."""
    plural: ClassVar[str] = "detections"
    columns: ClassVar[tuple[str, ...]] = ("name", "class", "confidence", "x1", "y1", "x2", "y2")
    """Of a table with a row for each box."""

    def __init__(self, data: Array, orig_shape: tuple[int, int]) -> None:
        """Hold boxes.

        Args:
            data: (N, 6) float32: xyxy in pixels of the original image, score in [0, 1], class.
            orig_shape: Height and width of the original image.
        """
        if data.ndim != 2 or data.shape[1] != 6:
            raise ValueError(f"boxes: {tuple(data.shape)}; they should be (N, 6): xyxy, score, class")
        self.data = data
        self.orig_shape = orig_shape

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.data.shape)

    @property
    def xyxy(self) -> Array:
        """(N, 4) left, top, right, bottom, pixels."""
        return self.data[:, :4]

    @property
    def xywh(self) -> Array:
        """(N, 4) center x, center y, width, height, pixels."""
        top_left, bottom_right = self.data[:, :2], self.data[:, 2:4]
        columns = [(top_left + bottom_right) / 2, bottom_right - top_left]
        return torch.cat(columns, 1) if isinstance(self.data, Tensor) else np.concatenate(columns, 1)

    @property
    def xyxyn(self) -> Array:
        """(N, 4) left, top, right, bottom, fractions of width and height."""
        return self.xyxy / self._size_like(self.data)

    @property
    def xywhn(self) -> Array:
        """(N, 4) center x, center y, width, height, fractions of width and height."""
        return self.xywh / self._size_like(self.data)

    @property
    def conf(self) -> Array:
        """(N,) scores in [0, 1]."""
        return self.data[:, 4]

    @property
    def cls(self) -> Array:
        """(N,) classes, as floats."""
        return self.data[:, 5]

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: Any) -> Boxes:
        """The boxes at an index, a slice, a mask or a list of indices; always (n, 6)."""
        return Boxes(self.data[index].reshape(-1, 6), self.orig_shape)

    def __iter__(self) -> Iterator[Boxes]:
        return (self[index] for index in range(len(self)))

    def __repr__(self) -> str:
        return f"Boxes({len(self)} of an image {self.orig_shape[1]} × {self.orig_shape[0]}):\n{self.data}"

    def to(self, *args: Any, **kwargs: Any) -> Boxes:
        """The same boxes as a tensor on another device or of another precision; arguments as for `Tensor.to`."""
        return Boxes(torch.as_tensor(self.data).to(*args, **kwargs), self.orig_shape)

    def cpu(self) -> Boxes:
        return Boxes(on_cpu(self.data), self.orig_shape)

    def numpy(self) -> Boxes:
        """The same boxes as a numpy array."""
        return Boxes(as_numpy(self.data), self.orig_shape)

    def verbose(self, names: Mapping[int, str]) -> str:
        """How many of each class, such as `2 RBC, 1 WBC`."""
        return told_counts(self.tally(), names) or f"no {self.plural}"

    def tally(self) -> Counter[int]:
        """How many boxes there are of each class."""
        return Counter(self._classes().tolist())

    def summary(self, names: Mapping[int, str], *, normalize: bool, decimals: int) -> list[dict[str, Any]]:
        """Plain dictionaries, one for each box: `name`, `class`, `confidence` and `box` (x1, y1, x2, y2)."""
        boxes = self.numpy()
        corners = (boxes.xyxyn if normalize else boxes.xyxy).tolist()
        return [
            {
                "name": names.get(index, str(index)),
                "class": index,
                "confidence": round(confidence, decimals),
                "box": dict(zip(("x1", "y1", "x2", "y2"), (round(edge, decimals) for edge in box), strict=True)),
            }
            for box, confidence, index in zip(corners, boxes.conf.tolist(), self._classes().tolist(), strict=True)
        ]

    def lines(self, names: Mapping[int, str], *, save_conf: bool) -> list[str]:
        """YOLO labels: `class x y width height`, fractions of the image, and the score where it is asked for."""
        boxes = self.numpy()
        columns = [boxes.xywhn, boxes.conf[:, None]] if save_conf else [boxes.xywhn]
        rows = np.concatenate(columns, axis=1).tolist()
        return [
            " ".join([str(index), *(f"{number:.6f}" for number in row)])
            for index, row in zip(self._classes().tolist(), rows, strict=True)
        ]

    def draw(
        self, image: NDArray[np.uint8], names: Mapping[int, str], *, conf: bool, labels: bool, line_width: int | None
    ) -> NDArray[np.uint8]:
        """Draw the boxes into a copy of (H, W, 3) uint8 BGR; arguments as for `Results.plot`."""
        boxes = self.numpy()
        return draw_boxes(image, boxes.xyxy, self._classes(), names, boxes.conf if conf else None, line_width, labels)

    def cut(self, image: NDArray[np.uint8]) -> list[tuple[int, NDArray[np.uint8]]]:
        """The class of each box and what of the image lies in it: at least a pixel, however thin the box."""
        height, width = self.orig_shape
        pieces = []
        for box, index in zip(self.numpy().xyxy, self._classes().tolist(), strict=True):
            left, top = np.clip(np.floor(box[:2]), 0, (width - 1, height - 1)).astype(int).tolist()
            right, bottom = np.clip(np.ceil(box[2:]), (left + 1, top + 1), (width, height)).astype(int).tolist()
            pieces.append((index, image[top:bottom, left:right]))
        return pieces

    def _classes(self) -> NDArray[np.int64]:
        return np.asarray(self.numpy().cls).astype(np.int64)

    def _size_like(self, data: Array) -> Array:
        height, width = self.orig_shape
        size = [width, height, width, height]
        return data.new_tensor(size) if isinstance(data, Tensor) else np.array(size, data.dtype)
