"""What a network found in one image, in the form that users of detectors know.

Letters: N detections of an image, H × W its pixels. Images are BGR here, as OpenCV reads and writes them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from visiontrain.drawing import draw_boxes
from visiontrain.errors import ConfigError
from visiontrain.predict.files import folder_name, free_stem, write_image

Array: TypeAlias = Any
"""A tensor, or a numpy array after `.numpy()`."""


class Boxes:
    """The boxes of an image with their scores and classes, best first."""

    id = None
    """Track numbers: none, this is no tracker."""

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
        return Boxes(self.data.cpu(), self.orig_shape) if isinstance(self.data, Tensor) else self

    def numpy(self) -> Boxes:
        """The same boxes as a numpy array."""
        return Boxes(self.data.cpu().numpy(), self.orig_shape) if isinstance(self.data, Tensor) else self

    def _size_like(self, data: Array) -> Array:
        height, width = self.orig_shape
        size = [width, height, width, height]
        return data.new_tensor(size) if isinstance(data, Tensor) else np.array(size, data.dtype)


class Results:
    """One image and what was found in it. Reading it changes nothing; every method gives something new."""

    masks = None
    obb = None
    keypoints = None
    probs = None

    def __init__(
        self,
        orig_img: NDArray[np.uint8],
        *,
        path: str,
        names: Mapping[int, str],
        boxes: Boxes,
        speed: Mapping[str, float] | None = None,
    ) -> None:
        """Hold an image's detections.

        Args:
            orig_img: (H, W, 3) uint8 **BGR**.
            path: Where the image came from.
            names: Class names by index.
            boxes: What was found.
            speed: Milliseconds of `preprocess`, `inference` and `postprocess`.
        """
        self.orig_img = orig_img
        self.orig_shape: tuple[int, int] = (orig_img.shape[0], orig_img.shape[1])
        self.path = path
        self.names = dict(names)
        self.boxes = boxes
        self.speed = dict(speed or {})

    def __len__(self) -> int:
        return len(self.boxes)

    def __getitem__(self, index: Any) -> Results:
        """The same image with some of its detections only."""
        return self._with(self.boxes[index])

    def __iter__(self) -> Iterator[Results]:
        return (self[index] for index in range(len(self)))

    def __repr__(self) -> str:
        height, width = self.orig_shape
        return f"Results({self.path}: {width} × {height}, {self.verbose()})"

    def to(self, *args: Any, **kwargs: Any) -> Results:
        """The same results with tensors on another device or of another precision; arguments as for `Tensor.to`."""
        return self._with(self.boxes.to(*args, **kwargs))

    def cpu(self) -> Results:
        return self._with(self.boxes.cpu())

    def numpy(self) -> Results:
        """The same results with numpy arrays."""
        return self._with(self.boxes.numpy())

    def verbose(self) -> str:
        """How many of each class, such as `2 RBC, 1 WBC`."""
        indices, counts = np.unique(self._classes(), return_counts=True)
        return (
            ", ".join(
                f"{count} {self._name(index)}" for index, count in zip(indices.tolist(), counts.tolist(), strict=True)
            )
            or "no detections"
        )

    def summary(self, normalize: bool = False, decimals: int = 5) -> list[dict[str, Any]]:
        """One plain dictionary for each detection: `name`, `class`, `confidence` and `box` (x1, y1, x2, y2).

        Args:
            normalize: Whether boxes are fractions of width and height instead of pixels.
            decimals: Digits behind the point.
        """
        boxes = self.boxes.numpy()
        corners = (boxes.xyxyn if normalize else boxes.xyxy).tolist()
        return [
            {
                "name": self._name(index),
                "class": index,
                "confidence": round(confidence, decimals),
                "box": dict(zip(("x1", "y1", "x2", "y2"), (round(edge, decimals) for edge in box), strict=True)),
            }
            for box, confidence, index in zip(corners, boxes.conf.tolist(), self._classes().tolist(), strict=True)
        ]

    def to_dict(self, normalize: bool = False, decimals: int = 5) -> dict[str, Any]:
        """The image's path and size, the speed, and `detections` as in `summary`; plain values only."""
        height, width = self.orig_shape
        return {
            "path": self.path,
            "height": height,
            "width": width,
            "speed": self.speed,
            "detections": self.summary(normalize, decimals),
        }

    def to_json(self, normalize: bool = False, decimals: int = 5) -> str:
        """`summary` as JSON: a list with one object for each detection."""
        return json.dumps(self.summary(normalize, decimals), ensure_ascii=False, allow_nan=False, indent=2)

    def plot(self, *, conf: bool = True, labels: bool = True, line_width: int | None = None) -> NDArray[np.uint8]:
        """Draw the detections into a copy of the image.

        Args:
            conf: Whether scores are written behind the names.
            labels: Whether names are written.
            line_width: Pixels; by default it grows with the image.

        Returns:
            (H, W, 3) uint8 BGR.
        """
        boxes = self.boxes.numpy()
        scores = boxes.conf if conf else None
        return draw_boxes(self.orig_img, boxes.xyxy, self._classes(), self.names, scores, line_width, labels)

    def save(
        self,
        path: str | Path | None = None,
        folder: str | Path | None = None,
        *,
        conf: bool = True,
        labels: bool = True,
        line_width: int | None = None,
    ) -> Path:
        """Draw the detections and write the picture.

        Args:
            path: The file to write; by default `results_<name>.jpg`, or `results_<name>_2.jpg` and so on where there
                is one already.
            folder: Where to write it if `path` is not absolute; by default the current folder.
            conf: Whether scores are written behind the names.
            labels: Whether names are written.
            line_width: Pixels; by default it grows with the image.

        Returns:
            The file written.

        Raises:
            ConfigError: If it would overwrite the image that was read, or the ending is not that of an image.
        """
        folder = Path(folder or ".")
        target = folder / (path or f"{free_stem(f'results_{self._stem()}', [(folder, '.jpg')])}.jpg")
        if target.exists() and Path(self.path).exists() and target.samefile(self.path):
            raise ConfigError(f"{target}: it is the image that was read; choose another path to save to")
        write_image(target, self.plot(conf=conf, labels=labels, line_width=line_width))
        return target

    def save_txt(self, path: str | Path, save_conf: bool = False) -> Path:
        """Write the detections as YOLO labels: `class x y width height`, center and size as fractions of the image.

        An image without detections gives an empty file: it was looked at, and it is background.

        Args:
            path: The file to write; folders are made, a file that is there is replaced.
            save_conf: Whether each row ends with the score.

        Returns:
            The file written.
        """
        boxes = self.boxes.numpy()
        columns = [boxes.xywhn, boxes.conf[:, None]] if save_conf else [boxes.xywhn]
        rows = np.concatenate(columns, axis=1).tolist()
        lines = [
            " ".join([str(index), *(f"{number:.6f}" for number in row)]) + "\n"
            for index, row in zip(self._classes().tolist(), rows, strict=True)
        ]
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("".join(lines), encoding="utf-8")
        return target

    def save_crop(self, folder: str | Path, name: str | None = None) -> list[Path]:
        """Cut every detection out of the image and write it to `folder/<class name>/<name>.jpg`.

        Args:
            folder: Where to write; nothing in it is overwritten.
            name: The files' name without ending, by default that of the image; `_2`, `_3` ... are added as needed.

        Returns:
            The files written, one for each detection.
        """
        height, width = self.orig_shape
        written = []
        for box, index in zip(self.boxes.numpy().xyxy, self._classes().tolist(), strict=True):
            left, top = np.clip(np.floor(box[:2]), 0, (width - 1, height - 1)).astype(int).tolist()
            right, bottom = np.clip(np.ceil(box[2:]), (left + 1, top + 1), (width, height)).astype(int).tolist()
            place = Path(folder) / folder_name(self._name(index))
            target = place / f"{free_stem(name or self._stem(), [(place, '.jpg')])}.jpg"
            write_image(target, self.orig_img[top:bottom, left:right])
            written.append(target)
        return written

    def _with(self, boxes: Boxes) -> Results:
        return Results(self.orig_img, path=self.path, names=self.names, boxes=boxes, speed=self.speed)

    def _classes(self) -> NDArray[np.int64]:
        return np.asarray(self.boxes.numpy().cls).astype(np.int64)

    def _name(self, index: int) -> str:
        return self.names.get(index, str(index))

    def _stem(self) -> str:
        return Path(self.path).stem
