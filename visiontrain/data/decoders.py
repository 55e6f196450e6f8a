"""Bytes of an image file → 8-bit RGB pixels as stored, before the orientation is applied.

OpenCV decodes JPEG, at twice the speed of Pillow and at fractions of the size, and the colors of 16-bit files, of which
Pillow keeps the upper half. Everything else is Pillow's, which knows more kinds and refuses damaged files without
printing of them. OpenCV sees only what has been found whole. One fault gets past all this: a JPEG with an end whose
coded pixels are damaged in the middle, of which libjpeg tells nobody but the standard error stream.

Letters: H × W pixels as stored.
"""

from __future__ import annotations

import io
import struct
import threading
import zlib

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFile, TiffImagePlugin

from visiontrain.data.headers import (
    JPEG_END,
    LIBRARY_FAULTS,
    PNG_PIXEL_CHUNKS,
    READERS,
    SCAN_MARKER,
    Header,
    ImageFault,
    jpeg_segments,
    png_chunks,
)

REDUCED_MODES = {
    1: cv2.IMREAD_COLOR,
    2: cv2.IMREAD_REDUCED_COLOR_2,
    4: cv2.IMREAD_REDUCED_COLOR_4,
    8: cv2.IMREAD_REDUCED_COLOR_8,
}
IMAGE_LENGTH_TAG, BITS_PER_SAMPLE_TAG, PHOTOMETRIC_TAG = 257, 258, 262
"""Of TIFF 6.0, section 8."""
WHITE_IS_ZERO = 0
PNG_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""By color type; PNG specification, 11.2.1."""
ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
"""Left, top and steps to the right and down of each pass; PNG specification, 8.1."""
INFLATE_BYTES = 2**20
MOST_16_BIT = 65535


class QuietOpenCV:
    """A context in which OpenCV logs nothing: what it would log of a file, an exception says.

    The level belongs to the process: the first thread that enters changes it, the last one that leaves restores it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._num_inside = 0
        self._level = 0

    def __enter__(self) -> None:
        with self._lock:
            if self._num_inside == 0:
                self._level = cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)
            self._num_inside += 1

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._num_inside -= 1
            if self._num_inside == 0:
                cv2.utils.logging.setLogLevel(self._level)


QUIET_OPENCV = QuietOpenCV()


def decode(data: bytes, header: Header, *, reduce_to: int | None) -> NDArray[np.uint8]:
    """Decode the first picture of a file.

    Args:
        data: The whole file.
        header: Of the same file.
        reduce_to: A JPEG may come at 1/2, 1/4 or 1/8 of its size, with a long side of this many pixels or more.

    Returns:
        (H, W, 3) uint8 RGB.

    Raises:
        ImageFault: If the file is damaged or cut short, or its values have no range.
    """
    if header.format == "JPEG":
        return _decode_jpeg(data, header, reduce_to)
    try:
        image = _decode_png(data) if header.format == "PNG" else _decode_by_pillow(data, header.format)
    except LIBRARY_FAULTS as error:
        raise ImageFault.undecodable(header.format, error) from error
    return _of_size(image, (header.height, header.width), header.format)


def _decode_jpeg(data: bytes, header: Header, reduce_to: int | None) -> NDArray[np.uint8]:
    if data.rfind(JPEG_END, header.scan) < 0:  # an earlier one may belong to a thumbnail
        raise ImageFault.cut_short("JPEG")
    if header.has_stray_bytes:  # libjpeg would print of them
        segments = jpeg_segments(io.BytesIO(data))
        parts = [data[start : start + length] for marker, start, length in segments if marker != SCAN_MARKER]
        data = b"".join([data[:2], *parts, data[header.scan :]])
    factor = 1
    if reduce_to is not None:
        long_side = max(header.height, header.width)
        factor = max(factor for factor in REDUCED_MODES if factor == 1 or long_side >= factor * reduce_to)
    image = _decode_by_opencv(data, REDUCED_MODES[factor])
    if image is None:
        raise ImageFault.undecodable("JPEG", "such as 12 bits, lossless")
    return _of_size(image, (-(-header.height // factor), -(-header.width // factor)), "JPEG")


def _decode_png(data: bytes) -> NDArray[np.uint8]:
    """Decode from the chunks that make pixels alone: nothing else, animation and texts, can then do harm."""
    kept: dict[bytes, list[bytes]] = {name: [] for name in PNG_PIXEL_CHUNKS}
    parts = [data[:8]]
    for name, start, length in png_chunks(io.BytesIO(data)):
        if name not in kept:
            continue
        end = start + length
        if zlib.crc32(data[start - 4 : end]) != int.from_bytes(data[end : end + 4], "big"):
            raise ImageFault.damaged("PNG", f"the checksum of its {name.decode('ascii')} chunk is wrong")
        kept[name].append(data[start:end])
        parts.append(data[start - 8 : end + 4])
    bare = b"".join(parts)
    (layout, *_) = kept[b"IHDR"]
    with READERS["PNG"](io.BytesIO(bare)) as image:
        image.load()
        _refuse_missing_rows(image, layout, kept[b"IDAT"])
        deep = _decode_deep(bare) if layout[8] == 16 else None
        return _to_rgb(image, "PNG") if deep is None else deep


def _refuse_missing_rows(image: Image.Image, layout: bytes, compressed: list[bytes]) -> None:
    """Refuse a PNG with less data than its size asks for, of which Pillow would leave the rest black.

    Inflating it once more is needed only where the last row is black, or where rows come in several passes.

    Args:
        image: Loaded.
        layout: The content of the IHDR chunk.
        compressed: The content of the IDAT chunks.
    """
    width, height, bits, color_type, _, _, interlace = struct.unpack(">IIBBBBB", layout[:13])
    if interlace == 0 and np.asarray(image.crop((0, height - 1, width, height))).any():
        return
    bits *= PNG_CHANNELS[color_type]
    missing = 0
    for left, top, step_x, step_y in ADAM7 if interlace else [(0, 0, 1, 1)]:
        columns, rows = -(-(width - left) // step_x), -(-(height - top) // step_y)
        if columns > 0:
            missing += max(rows, 0) * (1 + -(-columns * bits // 8))
    inflate = zlib.decompressobj()
    for part in compressed:
        while missing > 0 and part and not inflate.eof:
            missing -= len(inflate.decompress(part, min(missing, INFLATE_BYTES)))
            part = inflate.unconsumed_tail
    if missing > 0:
        raise ImageFault.damaged("PNG", f"{missing:,} bytes of pixels are missing")


def _decode_by_pillow(data: bytes, kind: str) -> NDArray[np.uint8]:
    with READERS[kind](io.BytesIO(data)) as image:
        bits = _tiff_bits(image)
        num_rows = _tiff_tag(image, IMAGE_LENGTH_TAG)
        if isinstance(num_rows, int) and max(tile[1][3] for tile in image.tile) < num_rows:
            raise ImageFault.damaged(kind, "it has too few strips")  # Pillow would leave the rest black
        image.load()
        deep = _decode_deep(data) if bits == 16 and image.mode in ("RGB", "RGBA", "RGBX") else None
        return _to_rgb(image, kind, bits=bits) if deep is None else deep


def _to_rgb(image: ImageFile.ImageFile, kind: str, *, bits: int = 16) -> NDArray[np.uint8]:
    """8-bit RGB of a loaded image; alpha is left out.

    Args:
        image: Of Pillow.
        kind: Its format.
        bits: Of a grey value that is wider than 8 bits.
    """
    if image.mode.startswith("I;16") or (image.mode == "I" and kind in ("PNG", "PNM")):
        grey = np.asarray(image).astype(np.uint16)  # OpenCV knows no other order of bytes
        if kind == "TIFF" and _tiff_tag(image, PHOTOMETRIC_TAG) == WHITE_IS_ZERO:
            grey = (1 << bits) - 1 - grey
        return cv2.cvtColor(_to_8_bit(grey, (1 << bits) - 1), cv2.COLOR_GRAY2RGB)  # type: ignore[return-value]
    if image.mode in ("I", "F"):
        kind_of_value = "floating-point" if image.mode == "F" else "32-bit or signed"
        raise ImageFault(
            f"the {kind} holds {kind_of_value} values, of which nobody says what is black and white; "
            "save it with 8 or 16 bits a channel"
        )
    image.info.pop("transparency", None)  # else Pillow warns of a transparent palette
    return np.array(image if image.mode == "RGB" else image.convert("RGB"))


def _decode_deep(data: bytes) -> NDArray[np.uint8] | None:
    """The colors of a 16-bit file that was found whole; None if OpenCV does not know its kind."""
    image = _decode_by_opencv(data, cv2.IMREAD_COLOR | cv2.IMREAD_ANYDEPTH)
    return _to_8_bit(image, MOST_16_BIT) if image is not None and image.dtype == np.uint16 else image


def _decode_by_opencv(data: bytes, mode: int) -> NDArray | None:
    try:
        with QUIET_OPENCV:
            image = cv2.imdecode(np.frombuffer(data, np.uint8), mode | cv2.IMREAD_IGNORE_ORIENTATION)
    except cv2.error:
        return None
    return None if image is None else cv2.cvtColor(image, cv2.COLOR_BGR2RGB, dst=image)


def _to_8_bit(values: NDArray, white: int) -> NDArray[np.uint8]:
    """Scale so that `white` becomes 255, and round."""
    return np.asarray(cv2.convertScaleAbs(values, alpha=255 / white), np.uint8)


def _tiff_bits(image: ImageFile.ImageFile) -> int:
    bits = _tiff_tag(image, BITS_PER_SAMPLE_TAG)
    return max(bits) if isinstance(bits, tuple) and bits else 16


def _tiff_tag(image: ImageFile.ImageFile, tag: int) -> object:
    return image.tag_v2.get(tag) if isinstance(image, TiffImagePlugin.TiffImageFile) else None


def _of_size(image: NDArray[np.uint8], size: tuple[int, int], kind: str) -> NDArray[np.uint8]:
    height, width = image.shape[:2]
    if (height, width) != size:
        raise ImageFault.damaged(
            kind, f"its header says {size[1]} × {size[0]} pixels, the picture has {width} × {height}"
        )
    return image
