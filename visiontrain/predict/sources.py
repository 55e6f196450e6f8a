"""Everything that the user may call a source of images, as one stream of RGB images.

How an image file is decoded is an argument, so that prediction sees the very pixels that training saw.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps

from visiontrain.errors import ConfigError, DataError

ReadImage: TypeAlias = Callable[[Path], NDArray[np.uint8]]
"""Path → (H, W, 3) uint8 RGB, upright; raises DataError where the file is no image."""

VIDEO_SUFFIXES = frozenset(
    {".avi", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".ts", ".webm", ".wmv", ".asf", ".flv"}
)
_SHOWN = 5  # names of a folder that a message lists
_FORMS = (
    "a source is an image file, a folder, a glob, a BGR array, a PIL image, an RGB tensor, or a list of these; "
    "this version reads images only"
)


@dataclass(frozen=True)
class SourceImage:
    """One image to predict on."""

    path: str
    """The file, or `image0`, `image1`, ... for images that come from memory."""
    image: NDArray[np.uint8]
    """(H, W, 3) RGB, upright."""


@dataclass
class Source:
    """A stream of images, read one at a time as it is walked; it may be walked again.

    What was left out stands in `messages`, one line each, once the stream has come past it.
    """

    items: Sequence[tuple[str, Callable[[], NDArray[np.uint8]]]]
    """A path, and what reads the image."""
    messages: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        """Images to be read, unreadable ones included."""
        return len(self.items)

    def __iter__(self) -> Iterator[SourceImage]:
        """Read the images in order.

        Raises:
            DataError: At the end, if none of them could be read.
        """
        faults = []
        for path, read in self.items:
            try:
                image = read()
            except (DataError, OSError) as error:
                faults.append(_fault_of(path, error))
                if len(faults) < len(self.items):
                    self._note(f"{faults[-1]} (left out)")
                continue
            yield SourceImage(path, image)
        if len(faults) == len(self.items):
            raise DataError(faults)

    def _note(self, message: str) -> None:
        if message not in self.messages:  # a second walk finds the same
            self.messages.append(message)


def open_source(source: Any, *, read_image: ReadImage, suffixes: Container[str]) -> Source:
    """Find the images that `source` names. Files are looked for now and read later, one at a time.

    Args:
        source: An image file; a folder (its images, sorted by name; not those of folders inside it); a glob, where
            `**` crosses folders; an array (H, W, 3) uint8 **BGR**, as OpenCV reads images; a PIL image, which is
            turned upright; a tensor (3, H, W) or (B, 3, H, W) **RGB**, uint8 or float in [0, 1]; or a list of these.
        read_image: Decodes an image file.
        suffixes: Endings of image files, lower case with the dot.

    Raises:
        ConfigError: If it is of a kind that cannot be read, such as a video, a camera or an address.
        DataError: If files are missing (all are named), or there is no image at all.
    """
    parts = source if isinstance(source, list | tuple) else [source]
    found = _Collector(read_image, suffixes)
    for part in parts:
        found.add(part)
    if found.unsupported:
        raise ConfigError(found.unsupported)
    if found.faults:
        raise DataError(found.faults)
    if not found.items:
        raise DataError(f"source: an empty list; {_FORMS}")
    return Source(found.items, found.messages)


class _Collector:
    """Gathers images and every fault of a source, part by part."""

    def __init__(self, read_image: ReadImage, suffixes: Container[str]) -> None:
        self.read_image = read_image
        self.suffixes = suffixes
        self.items: list[tuple[str, Callable[[], NDArray[np.uint8]]]] = []
        self.messages: list[str] = []
        self.unsupported: list[str] = []
        self.faults: list[str] = []
        self.num_in_memory = 0

    def add(self, part: Any) -> None:
        if isinstance(part, str | Path):
            self._add_text(part)
        elif isinstance(part, np.ndarray):
            self._add_from_memory(part, rgb_of_array)
        elif isinstance(part, Image.Image):
            self._add_from_memory(part, rgb_of_pil)
        elif isinstance(part, torch.Tensor):
            for image in part if part.ndim == 4 else [part]:
                self._add_from_memory(image, rgb_of_tensor)
        elif isinstance(part, int):
            self.unsupported.append(f"source = {part}: the number of a camera; {_FORMS}")
        else:
            self.unsupported.append(f"source: a {type(part).__name__}; {_FORMS}")

    def _add_from_memory(self, image: Any, to_rgb: Callable[[Any, str], NDArray[np.uint8]]) -> None:
        name = f"image{self.num_in_memory}"
        self.num_in_memory += 1
        try:
            rgb = to_rgb(image, name)  # now, so that a wrong kind is refused before anything has run
        except ConfigError as error:
            self.unsupported.extend(error.faults)
            return
        self.items.append((name, lambda: rgb))

    def _add_text(self, part: str | Path) -> None:
        text = str(part)
        path = Path(part).expanduser()
        if not text:  # it would name the current folder
            self.unsupported.append(f"source: an empty text; {_FORMS}")
        elif isinstance(part, str) and (re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", text) or text == "screen"):
            self.unsupported.append(f"source = {text}: not on this computer's disk; {_FORMS}")
        elif path.is_dir():
            self._add_folder(path)
        elif path.is_file():  # before globs: a name may well hold brackets
            self._add_file(path)
        elif any(letter in text for letter in "*?["):
            matches = glob.glob(str(path), recursive=True)  # noqa: PTH207  pathlib refuses absolute patterns
            self._add_found(f"source = {text}", sorted(map(Path, matches)), "matches")
        elif text.isdecimal():
            self.unsupported.append(f"source = {text}: the number of a camera; {_FORMS}")
        else:
            self.faults.append(f"{path}: no such file; {_neighbors(path)}")

    def _add_file(self, path: Path) -> None:
        if path.suffix.lower() in VIDEO_SUFFIXES:
            self.unsupported.append(f"{path}: a video; {_FORMS}")
        elif path.suffix.lower() not in self.suffixes:
            self.unsupported.append(f"{path}: the ending {path.suffix or '(none)'} is not that of an image; {_FORMS}")
        else:
            self._add_image(path)

    def _add_folder(self, folder: Path) -> None:
        self._add_found(str(folder), sorted(folder.iterdir()), "holds")

    def _add_found(self, where: str, paths: list[Path], verb: str) -> None:
        """Add the images among paths that were found, not named: other files are nobody's fault."""
        files = [path for path in paths if path.is_file() and not path.name.startswith(".")]
        images = [path for path in files if path.suffix.lower() in self.suffixes]
        videos = [path for path in files if path.suffix.lower() in VIDEO_SUFFIXES]
        self.messages.extend(f"{path}: a video (left out); this version reads images only" for path in videos)
        if not images:
            others = _enumerate([path.name for path in paths]) if paths else "nothing"
            self.faults.append(
                f"{where}: no image; it {verb} {others} (images in folders below are found by a glob such as "
                "'folder/**/*.jpg')"
            )
        for path in images:
            self._add_image(path)

    def _add_image(self, path: Path) -> None:
        self.items.append((str(path), partial(self.read_image, path)))


def rgb_of_array(array: NDArray[Any], name: str) -> NDArray[np.uint8]:
    """(H, W, 3) uint8 BGR → (H, W, 3) uint8 RGB. Raises ConfigError for any other array."""
    if array.ndim != 3 or array.shape[2] != 3 or array.dtype != np.uint8 or not array.size:
        raise ConfigError(
            f"source {name}: an array {array.shape} {array.dtype}; it should be (H, W, 3) uint8 BGR as OpenCV reads "
            "images (gray: cv2.cvtColor(image, cv2.COLOR_GRAY2BGR); several images: a list)"
        )
    return np.ascontiguousarray(array[..., ::-1])


def rgb_of_pil(image: Image.Image, name: str) -> NDArray[np.uint8]:
    """PIL image, turned upright → (H, W, 3) uint8 RGB. Raises ConfigError for more than 8 bits a channel."""
    if image.mode in ("F", "I") or image.mode.startswith("I;"):
        raise ConfigError(
            f"source {name}: a PIL image of mode {image.mode}; it should have 8 bits a channel: scale it, or give the "
            "file's path"
        )
    return np.array(ImageOps.exif_transpose(image).convert("RGB"))


def rgb_of_tensor(tensor: torch.Tensor, name: str) -> NDArray[np.uint8]:
    """(3, H, W) RGB, uint8 or float in [0, 1] → (H, W, 3) uint8 RGB. Raises ConfigError for any other tensor."""
    if tensor.ndim != 3 or tensor.shape[0] != 3 or not tensor.numel():
        raise ConfigError(
            f"source {name}: a tensor {tuple(tensor.shape)}; it should be (3, H, W) or (B, 3, H, W) RGB, with height "
            "and width"
        )
    tensor = tensor.detach().cpu()
    if tensor.is_floating_point():
        low, high = float(tensor.min()), float(tensor.max())
        if not (low >= 0 and high <= 1):  # NaN is neither
            raise ConfigError(
                f"source {name}: a float tensor with values from {low:g} to {high:g}; it should lie in [0, 1] (divide "
                "by 255) or be uint8"
            )
        tensor = (tensor.double() * 255).round().to(torch.uint8)
    elif tensor.dtype != torch.uint8:
        raise ConfigError(f"source {name}: a tensor of {tensor.dtype}; it should be uint8, or float in [0, 1]")
    return np.ascontiguousarray(tensor.permute(1, 2, 0).numpy())


def _fault_of(path: str, error: DataError | OSError) -> str:
    text = str(error)
    return text if path in text else f"{path}: {text}"


def _neighbors(missing: Path) -> str:
    """What is where the missing file should be, likely names first."""
    folder = missing.parent
    if not folder.is_dir():
        return f"the folder {folder} does not exist either"
    names = sorted(path.name for path in folder.iterdir())
    if not names:
        return f"the folder {folder} is empty"
    alike = get_close_matches(missing.name, names, n=_SHOWN)
    return f"the folder {folder} holds {_enumerate([*alike, *(name for name in names if name not in alike)])}"


def _enumerate(names: list[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"
