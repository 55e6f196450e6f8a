"""What a network found in one image, in the form that users of detectors and classifiers know.

Letters: H × W pixels of an image. Images are BGR here, as OpenCV reads and writes them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from visiontrain.errors import ConfigError
from visiontrain.predict.boxes import Boxes
from visiontrain.predict.files import folder_name, free_stem, write_file, write_image
from visiontrain.predict.parts import Frame, stem_of
from visiontrain.predict.probs import Probs
from visiontrain.predict.tables import as_csv, as_data_frame
from visiontrain.predict.window import show_image

Content: TypeAlias = Boxes | Probs
"""What may be found in an image. Each tells, writes and draws itself."""


class Results:
    """One image and what was found in it. Reading it changes nothing; every method gives something new."""

    masks = None
    obb = None
    keypoints = None

    def __init__(
        self,
        orig_img: NDArray[np.uint8],
        *,
        path: str,
        names: Mapping[int, str],
        boxes: Boxes | None = None,
        probs: Probs | None = None,
        speed: Mapping[str, float] | None = None,
        frame: Frame | None = None,
        save_dir: Path | None = None,
    ) -> None:
        """Hold an image with what was found: either boxes or probabilities.

        Args:
            orig_img: (H, W, 3) uint8 **BGR**.
            path: Where the image came from.
            names: Class names by index.
            boxes: What a detector found.
            probs: What a classifier found.
            speed: Milliseconds of `preprocess`, `inference` and `postprocess`.
            frame: Which frame of a video or a camera the image is; None for a picture.
            save_dir: The run folder into which these results were written, if they were.

        Raises:
            ValueError: If boxes and probabilities are both given, or neither.
        """
        if (boxes is None) == (probs is None):
            raise ValueError(f"{path}: results hold either boxes or probs; give one of them")
        self.orig_img = orig_img
        self.orig_shape: tuple[int, int] = (orig_img.shape[0], orig_img.shape[1])
        self.path = path
        self.names = dict(names)
        self.boxes = boxes
        self.probs = probs
        self.speed = dict(speed or {})
        self.frame = frame
        self.save_dir = save_dir

    @classmethod
    def of(
        cls,
        found: Content,
        orig_img: NDArray[np.uint8],
        *,
        path: str,
        names: Mapping[int, str],
        speed: Mapping[str, float] | None = None,
        frame: Frame | None = None,
        save_dir: Path | None = None,
    ) -> Results:
        """Hold an image with what was found, whichever it is."""
        boxes, probs = (found, None) if isinstance(found, Boxes) else (None, found)
        return cls(
            orig_img,
            path=path,
            names=names,
            boxes=boxes,
            probs=probs,
            speed=speed,
            frame=frame,
            save_dir=save_dir,
        )

    def __len__(self) -> int:
        """The number of detections; 1 for a classification."""
        return 1 if self.boxes is None else len(self.boxes)

    def __getitem__(self, index: Any) -> Results:
        """The same image with some of its detections only; a classification stays what it is."""
        return self if self.boxes is None else self._with(self.boxes[index])

    def __iter__(self) -> Iterator[Results]:
        return (self[index] for index in range(len(self)))

    def __repr__(self) -> str:
        height, width = self.orig_shape
        frame = "" if self.frame is None else f", frame {self.frame.number}"
        return f"Results({self.path}{frame}: {width} × {height}, {self.verbose()})"

    def to(self, *args: Any, **kwargs: Any) -> Results:
        """The same results with tensors on another device or of another precision; arguments as for `Tensor.to`."""
        return self._with(self._content.to(*args, **kwargs))

    def cpu(self) -> Results:
        return self._with(self._content.cpu())

    def numpy(self) -> Results:
        """The same results with numpy arrays."""
        return self._with(self._content.numpy())

    def verbose(self) -> str:
        """How many of each class, such as `2 RBC, 1 WBC`; of a classification the five best, `cat 0.93, dog 0.05`."""
        return self._content.verbose(self.names)

    def summary(self, normalize: bool = False, decimals: int = 5) -> list[dict[str, Any]]:
        """One plain dictionary for each detection: `name`, `class`, `confidence` and `box` (x1, y1, x2, y2).

        Of a classification: for each of the five best classes, without `box`.

        Args:
            normalize: Whether boxes are fractions of width and height instead of pixels.
            decimals: Digits behind the point.
        """
        return self._content.summary(self.names, normalize=normalize, decimals=decimals)

    def to_dict(self, normalize: bool = False, decimals: int = 5) -> dict[str, Any]:
        """The image's path and size, the speed, and `detections` or `classifications` as in `summary`.

        Plain values only. Of a video there is also `frame`, the frame's number.
        """
        height, width = self.orig_shape
        return {
            "path": self.path,
            **({} if self.frame is None else {"frame": self.frame.number}),
            "height": height,
            "width": width,
            "speed": self.speed,
            self._content.plural: self.summary(normalize, decimals),
        }

    def to_json(self, normalize: bool = False, decimals: int = 5) -> str:
        """`summary` as JSON: a list of objects."""
        return json.dumps(self.summary(normalize, decimals), ensure_ascii=False, allow_nan=False, indent=2)

    def to_csv(self, normalize: bool = False, decimals: int = 5) -> str:
        """`summary` as comma separated values under a header: a row for each detection, the box in four columns."""
        return as_csv(self._rows(normalize, decimals), self._content.columns)

    def to_df(self, normalize: bool = False, decimals: int = 5) -> Any:
        """The table of `to_csv` as a pandas DataFrame.

        Raises:
            ConfigError: If pandas is not installed.
        """
        return as_data_frame(self._rows(normalize, decimals), self._content.columns)

    def plot(self, *, conf: bool = True, labels: bool = True, line_width: int | None = None) -> NDArray[np.uint8]:
        """Draw what was found into a copy of the image.

        Boxes are drawn where they lie. The five best classes of a classification are written into the upper left
        corner; an image too small for letters is enlarged by a whole factor.

        Args:
            conf: Whether scores are written with the names.
            labels: Whether names are written.
            line_width: Of boxes, pixels; by default it grows with the image.

        Returns:
            (H, W, 3) uint8 BGR.

        Raises:
            ConfigError: If a width of lines is given for a classification.
        """
        return self._content.draw(self.orig_img, self.names, conf=conf, labels=labels, line_width=line_width)

    def show(self, *, conf: bool = True, labels: bool = True, line_width: int | None = None) -> None:
        """Show what `plot` draws, in a window or in the notebook; a window is waited for until it is closed.

        Raises:
            ConfigError: If there is no display, or a width of lines is given for a classification.
        """
        name = stem_of(self.path, self.frame)
        show_image(self.plot(conf=conf, labels=labels, line_width=line_width), title=name)

    def save(
        self,
        path: str | Path | None = None,
        folder: str | Path | None = None,
        *,
        conf: bool = True,
        labels: bool = True,
        line_width: int | None = None,
    ) -> Path:
        """Draw what was found and write the picture.

        Args:
            path: The file to write; by default `results_<name>.jpg`, or `results_<name>_2.jpg` and so on where there
                is one already.
            folder: Where to write it if `path` is not absolute; by default the current folder.
            conf: As for `plot`, like the rest.
            labels: Whether names are written.
            line_width: Of boxes, pixels; by default it grows with the image.

        Returns:
            The file written.

        Raises:
            ConfigError: If it would overwrite the image that was read, the ending is not that of an image, it cannot be
                written there, or a width of lines is given for a classification.
        """
        folder = Path(folder or ".")
        target = folder / (path or f"{free_stem(f'results_{stem_of(self.path, self.frame)}', [(folder, '.jpg')])}.jpg")
        if target.exists() and Path(self.path).exists() and target.samefile(self.path):
            raise ConfigError(f"{target}: it is the image that was read; choose another path to save to")
        write_image(target, self.plot(conf=conf, labels=labels, line_width=line_width))
        return target

    def save_txt(self, path: str | Path, save_conf: bool = False) -> Path:
        """Write the detections as YOLO labels: `class x y width height`, center and size as fractions of the image.

        An image without detections gives an empty file: it was looked at, and it is background. A classification gives
        five lines `0.93 name`, the best first.

        Args:
            path: The file to write; folders are made, a file that is there is replaced.
            save_conf: Whether each label ends with the score; a classification's lines hold it anyway.

        Returns:
            The file written.

        Raises:
            ConfigError: If it cannot be written there.
        """
        target = Path(path)
        lines = self._content.lines(self.names, save_conf=save_conf)
        write_file(target, "".join(f"{line}\n" for line in lines).encode())
        return target

    def save_crop(self, folder: str | Path, name: str | None = None) -> list[Path]:
        """Cut every detection out of the image and write it to `folder/<class name>/<name>.jpg`.

        Args:
            folder: Where to write; nothing in it is overwritten.
            name: The files' name without ending, by default that of the image; `_2`, `_3` ... are added as needed.

        Returns:
            The files written, one for each detection.

        Raises:
            ConfigError: If this is a classification, or the files cannot be written there.
        """
        written = []
        for index, piece in self._content.cut(self.orig_img):
            place = Path(folder) / folder_name(self.names.get(index, str(index)))
            target = place / f"{free_stem(name or stem_of(self.path, self.frame), [(place, '.jpg')])}.jpg"
            write_image(target, piece)
            written.append(target)
        return written

    def in_folder(self, save_dir: Path) -> Results:
        """The same results, which were written into a run folder."""
        return self._with(self._content, save_dir=save_dir)

    def tally(self) -> Counter[int]:
        """How many detections of each class there are; of a classification, the best class once."""
        return self._content.tally()

    @property
    def _content(self) -> Content:
        content = self.probs if self.boxes is None else self.boxes
        assert content is not None
        return content

    def _rows(self, normalize: bool, decimals: int) -> list[dict[str, Any]]:
        rows = self.summary(normalize, decimals)
        return [{**row, **row.get("box", {})} for row in rows]

    def _with(self, content: Content, *, save_dir: Path | None = None) -> Results:
        return Results.of(
            content,
            self.orig_img,
            path=self.path,
            names=self.names,
            speed=self.speed,
            frame=self.frame,
            save_dir=save_dir or self.save_dir,
        )
