"""Files → upright 8-bit RGB arrays. Pure functions; nothing here knows of labels.

The header is read first, and an absurd size refused; then the bytes are read and decoded from memory, so any path that
the system can open works. One rule for the orientation (the Exif tag of JPEG, PNG, WebP and TIFF, the rotation and
mirror boxes of AVIF): it is always applied, to the size as to the picture, so the two agree.

Letters: H × W pixels of the upright image.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import cv2
import numpy as np
from numpy.typing import NDArray

from visiontrain.data.decoders import decode
from visiontrain.data.headers import Header, ImageFault, SizeFault, read_header
from visiontrain.errors import DataError

IMAGE_SUFFIXES = frozenset(
    {
        ".avif",
        ".bmp",
        ".dib",
        ".gif",
        ".jfif",
        ".jp2",
        ".jpe",
        ".jpeg",
        ".jpg",
        ".mpo",
        ".pbm",
        ".pgm",
        ".png",
        ".pnm",
        ".ppm",
        ".tif",
        ".tiff",
        ".webp",
    }
)
"""Lower case; compare with `path.suffix.lower()`."""

MAX_PIXELS = 180_000_000
"""Of one image, unless told otherwise: 540 MB when decoded."""


class TooLargeError(DataError):
    """An image has more pixels than are allowed."""


def read_image(path: Path | str, *, reduce_to: int | None = None, max_pixels: int = MAX_PIXELS) -> NDArray[np.uint8]:
    """Decode one image.

    Grey becomes three equal channels, alpha is left out, 16 bits are divided by 257 and rounded, CMYK becomes RGB
    without a profile; of several frames or pages the first is taken.

    Args:
        path: The file.
        reduce_to: If given, a JPEG whose long side is at least twice this is decoded at 1/2, 1/4 or 1/8 of its size,
            never below `reduce_to`: many times faster. The image returned may still be larger than `reduce_to`.
        max_pixels: A larger image is refused before it is decoded.

    Returns:
        (H, W, 3) uint8 RGB, upright.

    Raises:
        TooLargeError: If the image has more than `max_pixels`.
        DataError: If the file cannot be read, is damaged or cut short, or is not an image.
    """
    with _naming(path):
        with Path(path).open("rb") as file:
            header = _header_within(file, max_pixels)
            file.seek(0)
            data = file.read()
        return _turn_upright(decode(data, header, reduce_to=reduce_to), header.orientation)


def image_size(path: Path | str, *, max_pixels: int = MAX_PIXELS) -> tuple[int, int]:
    """Height and width of the upright image, from its header alone.

    Args:
        path: The file.
        max_pixels: A larger image is refused.

    Raises:
        TooLargeError: If the image has more than `max_pixels`.
        DataError: If the file cannot be read, is not an image, or its header is damaged. Damage behind the header may
            go unnoticed.
    """
    with _naming(path), Path(path).open("rb") as file:
        header = _header_within(file, max_pixels)
    is_transposed = header.orientation >= 5
    return (header.width, header.height) if is_transposed else (header.height, header.width)


def reduce_image(image: NDArray[np.uint8], long_side: int) -> NDArray[np.uint8]:
    """Reduce by area averaging so that the long side is at most `long_side` pixels; never enlarges.

    Args:
        image: (H, W, 3) uint8.
        long_side: Pixels.
    """
    height, width = image.shape[:2]
    if max(height, width) <= long_side:
        return image
    new_height, new_width = fit_size(height, width, long_side)
    return np.asarray(cv2.resize(image, (new_width, new_height), interpolation=cv2.INTER_AREA), np.uint8)


def read_reduced(path: Path | str, imgsz: int, *, max_pixels: int = MAX_PIXELS) -> NDArray[np.uint8]:
    """(H, W, 3) uint8 RGB, upright, long side at most `imgsz`: an image as training sees it.

    Raises:
        DataError: If the image cannot be read or has more than `max_pixels`.
    """
    return reduce_image(read_image(path, reduce_to=imgsz, max_pixels=max_pixels), imgsz)


def fit_size(height: int, width: int, long_side: int) -> tuple[int, int]:
    """Height and width in the same proportion, to whole pixels, with the given long side."""
    ratio = long_side / max(height, width)
    return max(1, round(height * ratio)), max(1, round(width * ratio))


@contextmanager
def _naming(path: Path | str) -> Iterator[None]:
    """Turn faults of a file into errors that name it."""
    try:
        yield
    except SizeFault as error:
        raise TooLargeError(f"{path}: {error}") from error
    except ImageFault as error:
        raise DataError(f"{path}: {error}") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error}); mend the path or its rights") from error


def _header_within(file: IO[bytes], max_pixels: int) -> Header:
    if file.seek(0, os.SEEK_END) == 0:
        raise ImageFault("is empty (0 bytes); replace the file or take it out of the data set")
    file.seek(0)
    header = read_header(file)
    pixels = header.height * header.width
    if pixels > max_pixels:
        raise SizeFault(
            f"is too large ({header.width} × {header.height} = {pixels / 1e6:,.1f} million pixels, more than "
            f"max_pixels = {max_pixels / 1e6:,.1f} million); reduce the image or raise max_pixels"
        )
    return header


def _turn_upright(image: NDArray[np.uint8], orientation: int) -> NDArray[np.uint8]:
    if orientation >= 5:
        image = cv2.transpose(image)  # type: ignore[assignment]
    flip = {2: 1, 3: -1, 4: 0, 6: 1, 7: -1, 8: 0}.get(orientation)  # of OpenCV: 0 upside down, 1 sideways, -1 both
    return image if flip is None else np.asarray(cv2.flip(image, flip), np.uint8)
