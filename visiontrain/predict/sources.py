"""Everything that the user may call a source of images, as one stream of RGB images.

How an image file is decoded and how a video is opened are arguments, so that prediction sees the very pixels that
training saw, and tests need no camera.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from visiontrain.errors import ConfigError, DataError
from visiontrain.predict.clips import Clip, OpenCapture
from visiontrain.predict.parts import Part, Picture, SourceImage
from visiontrain.predict.pixels import rgb_of_array, rgb_of_pil, rgb_of_tensor

ReadImage: TypeAlias = Callable[[Path], NDArray[np.uint8]]
"""Path → (H, W, 3) uint8 RGB, upright; raises DataError where the file is no image."""

VIDEO_SUFFIXES = frozenset(
    {".avi", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".ts", ".webm", ".wmv", ".asf", ".flv"}
)
LIST_SUFFIX = ".txt"
_MOST_LISTED = 100_000_000  # bytes of a list of paths; more is no list
_LONGEST_NAME = 255  # bytes; no common file system takes more, and asking one raises
_SHOWN_LETTERS = 40  # of a text that is no path
_SHOWN = 5  # names of a folder that a message lists, and faults of a list
_FORMS = (
    "a source is an image or video file, a folder, a glob, a .txt list of paths, a camera's number, a BGR array, a PIL "
    "image, an RGB tensor, or a list of these"
)


@dataclass
class Source:
    """A stream of images, read one at a time as it is walked; it may be walked again.

    What was left out stands in `messages`, one line each, once the stream has come past it.
    """

    parts: Sequence[Part]
    messages: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        """Pictures, videos and cameras, unreadable ones included."""
        return len(self.parts)

    @property
    def is_live(self) -> bool:
        """Whether there is a camera, so that the stream never ends by itself."""
        return any(part.is_live for part in self.parts)

    def __iter__(self) -> Iterator[SourceImage]:
        """Read the images in order.

        Raises:
            DataError: At the end, if none of them could be read.
        """
        faults = []
        for part in self.parts:
            try:
                yield from part.images(self._note)
            except (DataError, OSError) as error:
                faults.append(_fault_of(part.path, error))
                if len(faults) < len(self.parts):
                    self._note(f"{faults[-1]} (left out)")
        if len(faults) == len(self.parts):
            self.messages.clear()  # the error tells all of it
            raise DataError(faults)

    def _note(self, message: str) -> None:
        if message not in self.messages:  # a second walk finds the same
            self.messages.append(message)


def open_source(
    source: Any,
    *,
    read_image: ReadImage,
    suffixes: Container[str],
    open_capture: OpenCapture,
    vid_stride: int = 1,
) -> Source:
    """Find the images that `source` names. Files are looked for now and read later, one at a time.

    Args:
        source: An image or video file; a folder (its images and videos, sorted by name; not those of folders inside
            it); a glob, where `**` crosses folders; a text file with a path on each line, relative to its own folder;
            the number of a camera; an array (H, W, 3) uint8 **BGR**, as OpenCV reads images, or (H, W) uint8 gray; a
            PIL image, which is turned upright; a tensor (3, H, W) or (B, 3, H, W) **RGB**, uint8 or float in [0, 1];
            or a list of these.
        read_image: Decodes an image file.
        suffixes: Endings of image files, lower case with the dot.
        open_capture: Opens a video file or a camera.
        vid_stride: Of so many frames of a video or camera, the first is taken.

    Raises:
        ConfigError: If it is of a kind that cannot be read, such as an address.
        DataError: If files are missing (all are named), or there is no image at all.
    """
    parts = source if isinstance(source, list | tuple) else [source]
    found = _Collector(read_image, suffixes, partial(Clip, open_capture=open_capture, stride=vid_stride))
    for part in parts:
        found.add(part)
    if found.unsupported:
        raise ConfigError(found.unsupported)
    if found.faults:
        raise DataError(found.faults)
    if not found.parts:
        raise DataError(f"source: an empty list; {_FORMS}")
    return Source(found.parts)


class _Collector:
    """Gathers pictures, clips and every fault of a source, one given thing after the other."""

    def __init__(
        self, read_image: ReadImage, suffixes: Container[str], clip_of: Callable[[str, str | int], Clip]
    ) -> None:
        self.read_image = read_image
        self.suffixes = suffixes
        self.clip_of = clip_of
        self.parts: list[Part] = []
        self.unsupported: list[str] = []
        self.faults: list[str] = []
        self.num_in_memory = 0

    def add(self, given: Any) -> None:
        if isinstance(given, str | Path):
            self._add_text(given)
        elif isinstance(given, np.ndarray):
            self._add_from_memory(given, rgb_of_array)
        elif isinstance(given, Image.Image):
            self._add_from_memory(given, rgb_of_pil)
        elif isinstance(given, torch.Tensor):
            for image in given if given.ndim == 4 and len(given) else [given]:
                self._add_from_memory(image, rgb_of_tensor)
        elif isinstance(given, Integral) and not isinstance(given, bool):
            self._add_camera(int(given))
        else:
            self.unsupported.append(f"source: a {type(given).__name__}; {_FORMS}")

    def _add_from_memory(self, image: Any, to_rgb: Callable[[Any, str], NDArray[np.uint8]]) -> None:
        name = f"image{self.num_in_memory}"
        self.num_in_memory += 1
        try:
            rgb = to_rgb(image, name)  # now, so that a wrong kind is refused before anything has run
        except ConfigError as error:
            self.unsupported.extend(error.faults)
            return
        self.parts.append(Picture(name, lambda: rgb))

    def _add_camera(self, number: int) -> None:
        if number < 0:
            self.unsupported.append(f"source = {number}: no number of a camera, which count from 0; {_FORMS}")
        else:
            self.parts.append(self.clip_of(f"camera{number}", number))

    def _add_text(self, given: str | Path) -> None:
        text = str(given)
        path = Path(given).expanduser()
        if not text:  # it would name the current folder
            self.unsupported.append(f"source: an empty text; {_FORMS}")
        elif isinstance(given, str) and (re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", text) or text == "screen"):
            self.unsupported.append(
                f"source = {text}: not on this computer's disk, and nothing is fetched; save it to a file and name that"
            )
        elif not _may_be_path(text):
            self.faults.append(f"source = {text[:_SHOWN_LETTERS]!r}...: is no path that could exist; {_FORMS}")
        elif path.is_dir():
            self._add_folder(path)
        elif path.is_file():  # before globs: a name may well hold brackets
            self._add_file(path)
        elif any(letter in text for letter in "*?["):
            matches = glob.glob(str(path), recursive=True)  # noqa: PTH207  pathlib refuses absolute patterns
            self._add_found(f"source = {text}", sorted(map(Path, matches)), "matches")
        elif re.fullmatch(r"-?\d{1,9}", text, re.ASCII):
            self._add_camera(int(text))
        else:
            self.faults.append(f"{path}: no such file; {_neighbors(path)}")

    def _add_file(self, path: Path) -> None:
        suffix = path.suffix.lower()
        if suffix in VIDEO_SUFFIXES or suffix in self.suffixes:
            self._add_readable(path)
        elif suffix == LIST_SUFFIX:
            self._add_list(path)
        else:
            self.unsupported.append(
                f"{path}: the ending {path.suffix or '(none)'} is not that of an image or a video; {_FORMS}"
            )

    def _add_list(self, path: Path) -> None:
        """Add the files that the lines of a text name; blank lines and those that begin with # are left out."""
        if path.stat().st_size > _MOST_LISTED:
            self.faults.append(f"{path}: is too large for a list of paths, one on each line; {_FORMS}")
            return
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        named = [(number, line.strip()) for number, line in enumerate(lines, start=1) if line.strip()]
        named = [(number, line) for number, line in named if not line.startswith("#")]
        files = [(number, path.parent / Path(line).expanduser()) for number, line in named if _may_be_path(line)]
        readable = [file for _, file in files if self._is_readable(file)]
        if not readable:
            self.faults.append(f"{path}: no line names an image or a video; it should hold a path on each line")
            return
        wrong = [(number, file) for number, file in files if not self._is_readable(file)]
        self.faults.extend(
            f"{path}:{number}: {file} is no image or video that is there; mend the line or take it out"
            for number, file in wrong[:_SHOWN]
        )
        if len(wrong) > _SHOWN:
            self.faults.append(f"{path}: {len(wrong) - _SHOWN} more lines name no image or video that is there")
        for file in readable:
            self._add_readable(file)

    def _is_readable(self, path: Path) -> bool:
        suffix = path.suffix.lower()
        return (suffix in self.suffixes or suffix in VIDEO_SUFFIXES) and path.is_file()

    def _add_folder(self, folder: Path) -> None:
        self._add_found(str(folder), sorted(folder.iterdir()), "holds")

    def _add_found(self, where: str, paths: list[Path], verb: str) -> None:
        """Add what can be read among paths that were found, not named: other files are nobody's fault."""
        readable = [path for path in paths if not path.name.startswith(".") and self._is_readable(path)]
        if not readable:
            others = _enumerate([path.name for path in paths]) if paths else "nothing"
            self.faults.append(
                f"{where}: no image or video; it {verb} {others} (those in folders below are found by a glob such as "
                "'folder/**/*.jpg')"
            )
        for path in readable:
            self._add_readable(path)

    def _add_readable(self, path: Path) -> None:
        if path.suffix.lower() in VIDEO_SUFFIXES:
            self.parts.append(self.clip_of(str(path), str(path)))
        else:
            self.parts.append(Picture(str(path), partial(self.read_image, path)))


def _may_be_path(text: str) -> bool:
    return "\0" not in text and all(len(os.fsencode(part)) <= _LONGEST_NAME for part in re.split(r"[/\\]", text))


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
