"""Files → upright 8-bit RGB arrays. Pure functions; nothing here knows of labels.

Files are read as bytes and decoded from memory, so any path that the system can open works. The orientation tag is
applied here and not by OpenCV, which honours it in JPEG but (5.0) neither in WebP nor in AVIF; in TIFF both libraries
apply it unasked. The size read from the header and the decoded picture therefore always agree.

Letters: H × W pixels of the upright image.
"""

from __future__ import annotations

import io
import struct
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from visiontrain.errors import DataError

if TYPE_CHECKING:
    from PIL import Image

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

ORIENTATION_TAG = 0x0112
"""Exif 2.32, 4.6.4 A: 1 upright, 2 mirrored, 3 turned by 180°, 4 flipped, 5 to 8 transposed."""
JPEG_MAGIC = b"\xff\xd8\xff"
JPEG_END = b"\xff\xd9"
REDUCED_MODES = {
    2: cv2.IMREAD_REDUCED_COLOR_2,
    4: cv2.IMREAD_REDUCED_COLOR_4,
    8: cv2.IMREAD_REDUCED_COLOR_8,
}


class Header(NamedTuple):
    """What a file says of its picture before any pixel is decoded."""

    height: int
    """As the decoder gives it, before `orientation` is applied."""
    width: int
    orientation: int


def read_image(path: Path | str, *, reduce_to: int | None = None) -> NDArray[np.uint8]:
    """Decode one image.

    Grey becomes three equal channels, alpha is left out, 16 bits are divided by 256, of several frames the first is
    taken.

    Args:
        path: The file.
        reduce_to: If given, a JPEG whose long side is at least twice this is decoded at 1/2, 1/4 or 1/8 of its size,
            never below `reduce_to`: many times faster. The image returned may still be larger than `reduce_to`.

    Returns:
        (H, W, 3) uint8 RGB, upright.

    Raises:
        DataError: If the file cannot be read, is damaged or cut short, or is not an image.
    """
    data = _read_bytes(path)
    header = _read_header(io.BytesIO(data), path)
    if data.startswith(JPEG_MAGIC) and JPEG_END not in data:
        raise DataError(f"{path}: the JPEG is cut short; replace the file or take it out of the data set")
    mode = cv2.IMREAD_COLOR
    if reduce_to is not None and header is not None and data.startswith(JPEG_MAGIC):
        mode = _reduced_mode(max(header.height, header.width), reduce_to)
    try:
        image = cv2.imdecode(np.frombuffer(data, np.uint8), mode | cv2.IMREAD_IGNORE_ORIENTATION)
    except cv2.error as error:
        raise DataError(f"{path}: cannot be decoded ({error.err or error}); replace the file") from error
    if image is None:
        raise DataError(f"{path}: is damaged or not an image; replace the file or take it out of the data set")
    cv2.cvtColor(image, cv2.COLOR_BGR2RGB, dst=image)
    return _turn_upright(np.asarray(image, np.uint8), 1 if header is None else header.orientation)


def image_size(path: Path | str) -> tuple[int, int]:
    """Height and width of the upright image, from its header alone.

    Raises:
        DataError: If the file cannot be read or is not an image.
    """
    try:
        with Path(path).open("rb") as file:
            header = _read_header(file, path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error}); mend the path or its rights") from error
    if header is None:  # a format that only the decoder knows
        height, width = read_image(path).shape[:2]
        return height, width
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


def fit_size(height: int, width: int, long_side: int) -> tuple[int, int]:
    """Height and width in the same proportion, to whole pixels, with the given long side."""
    ratio = long_side / max(height, width)
    return max(1, round(height * ratio)), max(1, round(width * ratio))


def _read_bytes(path: Path | str) -> bytes:
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error}); mend the path or its rights") from error
    if not data:
        raise DataError(f"{path}: is empty (0 bytes); replace the file or take it out of the data set")
    return data


def _read_header(file: IO[bytes], path: Path | str) -> Header | None:
    """The stored size and orientation, or None if Pillow does not know the format (OpenCV may)."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(file) as image:
            return Header(image.height, image.width, 1 if image.format == "TIFF" else _orientation_of(image))
    except Image.DecompressionBombError as error:
        raise DataError(f"{path}: is too large ({error}); reduce the image") from error
    except UnidentifiedImageError:
        return None
    except (OSError, ValueError, SyntaxError, struct.error) as error:
        raise DataError(f"{path}: its header is damaged ({error}); replace the file") from error


def _orientation_of(image: Image.Image) -> int:
    if image.format == "PNG" and "exif" not in image.info:
        return 1  # asking on would decode the whole picture
    try:
        orientation = image.getexif().get(ORIENTATION_TAG, 1)
    except (OSError, ValueError, SyntaxError, KeyError, TypeError, struct.error):
        return 1  # the block is damaged; the picture may well be whole
    return orientation if orientation in range(1, 9) else 1


def _reduced_mode(long_side: int, reduce_to: int) -> int:
    fitting = [factor for factor in REDUCED_MODES if long_side >= factor * reduce_to]
    return REDUCED_MODES[max(fitting)] if fitting else cv2.IMREAD_COLOR


def _turn_upright(image: NDArray[np.uint8], orientation: int) -> NDArray[np.uint8]:
    if orientation >= 5:
        image = cv2.transpose(image)  # type: ignore[assignment]
    flip = {2: 1, 3: -1, 4: 0, 6: 1, 7: -1, 8: 0}.get(orientation)  # of OpenCV: 0 upside down, 1 sideways, -1 both
    return image if flip is None else np.asarray(cv2.flip(image, flip), np.uint8)
