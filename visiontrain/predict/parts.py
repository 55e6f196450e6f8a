"""What a source is made of: pictures and clips, each of which gives its images when its turn comes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Note: TypeAlias = Callable[[str], None]
"""Is told what was left out, in one line."""


@dataclass(frozen=True)
class Frame:
    """Which frame of a video or a camera an image is."""

    number: int
    """From 1; frames that were passed over count."""
    fps: float
    """Frames a second, of those that are handed out."""
    is_live: bool = False
    """Whether it comes from a camera, which nobody may keep waiting."""


@dataclass(frozen=True)
class SourceImage:
    """One image to predict on."""

    path: str
    """The file, `image0`, `image1`, ... for images that come from memory, or `camera0` for a camera."""
    image: NDArray[np.uint8]
    """(H, W, 3) RGB, upright."""
    frame: Frame | None = None
    """Which one of a video or camera it is; None for a picture."""

    @property
    def is_live(self) -> bool:
        return self.frame is not None and self.frame.is_live


class Part(Protocol):
    """A picture or a clip."""

    @property
    def path(self) -> str: ...

    @property
    def is_live(self) -> bool:
        """Whether it never ends by itself."""

    def images(self, note: Note) -> Iterator[SourceImage]:
        """Read its images; raises DataError or OSError where there is none."""


@dataclass(frozen=True)
class Picture:
    """A single image."""

    path: str
    read: Callable[[], NDArray[np.uint8]]
    """Gives (H, W, 3) RGB."""
    is_live = False

    def images(self, note: Note) -> Iterator[SourceImage]:
        yield SourceImage(self.path, self.read())


def stem_of(path: str, frame: Frame | None = None) -> str:
    """The name without ending that files made of an image have, such as `cells` or `street_frame_12`."""
    stem = Path(path).stem
    return stem if frame is None else f"{stem}_frame_{frame.number}"
