"""What an image file says of its picture before any pixel is decoded, and whether its bytes are all there.

The content tells the format, never the file's name. JPEG and PNG are walked here: libraries tell the place of the first
scan and of a late eXIf chunk to nobody, and some versions fill what is missing of a cut file with grey. The headers of
the other formats are Pillow's to read.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from typing import IO, NamedTuple

from PIL import (
    AvifImagePlugin,
    BmpImagePlugin,
    GifImagePlugin,
    Image,
    ImageFile,
    Jpeg2KImagePlugin,
    PngImagePlugin,
    PpmImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
)

SIGNATURES = {
    "JPEG": re.compile(rb"\xff\xd8\xff"),
    "PNG": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "WebP": re.compile(rb"RIFF....WEBP", re.DOTALL),
    "TIFF": re.compile(rb"II[*+]\0|MM\0[*+]"),
    "GIF": re.compile(rb"GIF8[79]a"),
    "BMP": re.compile(rb"BM"),
    "AVIF": re.compile(rb"....ftyp(avif|avis|mif1|msf1)", re.DOTALL),
    "JPEG 2000": re.compile(rb"\0\0\0\x0cjP  \r\n\x87\n|\xff\x4f\xff\x51"),
    "PNM": re.compile(rb"P[1-6]\s"),
}
SIGNATURE_BYTES = 16
READERS: dict[str, type[ImageFile.ImageFile]] = {
    "PNG": PngImagePlugin.PngImageFile,
    "WebP": WebPImagePlugin.WebPImageFile,
    "TIFF": TiffImagePlugin.TiffImageFile,
    "GIF": GifImagePlugin.GifImageFile,
    "BMP": BmpImagePlugin.BmpImageFile,
    "AVIF": AvifImagePlugin.AvifImageFile,
    "JPEG 2000": Jpeg2KImagePlugin.Jpeg2KImageFile,
    "PNM": PpmImagePlugin.PpmImageFile,
}
"""Used directly: `Image.open` has a limit of pixels of its own, for the whole process."""

LIBRARY_FAULTS = (
    ArithmeticError,
    EOFError,
    LookupError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    struct.error,
    zlib.error,
    Warning,  # where the user turned warnings into errors
)
"""What Pillow raises at damaged files."""

ORIENTATION_TAG = 0x0112
"""Exif 2.32, 4.6.4 A: 1 upright, 2 mirrored, 3 turned by 180°, 4 flipped, 5 to 8 transposed."""
SHORT, LONG = 3, 4
TIFF_TYPE_BYTES = {SHORT: 2, LONG: 4, 5: 8, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8}
"""What one value of an entry's type takes, where it is not 1: TIFF 6.0, section 2, and BigTIFF."""
MOST_TIFF_ENTRIES = 65_535
EXIF_PREFIX = b"Exif\0\0"
JPEG_END = b"\xff\xd9"
EXIF_MARKER, SCAN_MARKER = 0xE1, 0xDA
SIZE_MARKERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""ITU-T T.81, table B.1: SOF0 to SOF15."""
PNG_PIXEL_CHUNKS = (b"IHDR", b"PLTE", b"IDAT", b"IEND")
MOST_EXIF_BYTES = 2**20


class ImageFault(Exception):
    """What is wrong with a file's content and what to do, without its name."""

    @classmethod
    def cut_short(cls, kind: str) -> ImageFault:
        return cls(f"the {kind} is cut short; replace the file or take it out of the data set")

    @classmethod
    def damaged(cls, kind: str, detail: object) -> ImageFault:
        return cls(f"the {kind} is damaged ({detail}); replace the file or take it out of the data set")

    @classmethod
    def undecodable(cls, kind: str, detail: object) -> ImageFault:
        return cls(
            f"the {kind} is damaged or of a kind that is not read ({detail}); "
            "replace the file or take it out of the data set"
        )


class SizeFault(ImageFault):
    """The picture has more pixels than are allowed."""


class Header(NamedTuple):
    """Of the picture that a decoder gives before `orientation` is applied, in pixels."""

    format: str
    """A key of `SIGNATURES`."""
    height: int
    width: int
    orientation: int = 1
    scan: int = 0
    """Of a JPEG: where its first scan begins, in bytes from the file's start."""
    has_stray_bytes: bool = False
    """Of a JPEG: whether bytes that mean nothing stand between its segments."""


class Segment(NamedTuple):
    """A segment of a JPEG, from its marker on."""

    marker: int
    """The byte behind 0xFF."""
    start: int
    """Of the marker, in bytes from the file's start."""
    length: int
    """With the marker."""


class Chunk(NamedTuple):
    """A chunk of a PNG: its name and the place of its content in the file."""

    name: bytes
    start: int
    length: int


def read_header(file: IO[bytes]) -> Header:
    """Size and orientation, for the price of a few reads.

    Raises:
        ImageFault: If the file is of no known format, or its header is damaged or cut short.
    """
    prefix = file.read(SIGNATURE_BYTES)
    kind = next((name for name, signature in SIGNATURES.items() if signature.match(prefix)), None)
    if kind is None:
        raise ImageFault(
            f"is damaged or not an image of a known format ({', '.join(SIGNATURES)}); "
            "replace the file or take it out of the data set"
        )
    try:
        if kind == "JPEG":
            header = _read_jpeg_header(file)
        elif kind == "PNG":
            header = _read_png_header(file)
        else:
            header = _read_other_header(file, kind)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise SizeFault(f"is too large ({error}); reduce the image") from error
    except LIBRARY_FAULTS as error:
        raise ImageFault.undecodable(kind, f"its header: {error}") from error
    if min(header.height, header.width) < 1:
        raise ImageFault.damaged(kind, f"its header says {header.width} × {header.height} pixels")
    return header


def jpeg_segments(file: IO[bytes]) -> Iterator[Segment]:
    """Every segment up to the start of the first scan, which is the last one given; the file stands at its content.

    Fill bytes, and whatever else stands between the segments, are passed over, as libjpeg does.

    Source: ITU-T T.81, B.1.1.

    Raises:
        ImageFault: If the file or the image ends before.
    """
    position = 2
    marker = 0
    while marker != SCAN_MARKER:
        file.seek(position)
        marker = _next_marker(file)
        start = file.tell() - 2
        length = 2
        if marker == 0xD9:
            raise ImageFault.damaged("JPEG", "it ends before its pixels begin")
        if marker != 0x01 and not 0xD0 <= marker <= 0xD8:  # these have no content
            length += max(2, int.from_bytes(_read_exactly(file, 2, "JPEG"), "big"))
            yield Segment(marker, start, length)
        position = start + length


def png_chunks(file: IO[bytes]) -> Iterator[Chunk]:
    """Every chunk up to IEND, from the file's start.

    Raises:
        ImageFault: If the file ends before.
    """
    size = file.seek(0, 2)
    position = 8  # behind the signature
    name = b""
    while name != b"IEND":
        file.seek(position)
        head = file.read(8)
        length = int.from_bytes(head[:4], "big")
        if len(head) < 8 or position + 12 + length > size:
            raise ImageFault.cut_short("PNG")
        name = head[4:]
        yield Chunk(name, position + 8, length)
        position += 12 + length


def orientation_of(exif: bytes) -> int:
    """The orientation that a block of Exif data tells; 1 where it tells none or is damaged.

    Read here and not by Pillow, which warns of faults in any other tag.
    """
    block = exif.removeprefix(EXIF_PREFIX)
    order = {b"II": "<", b"MM": ">"}.get(block[:2])
    if order is None:
        return 1
    try:
        (directory,) = struct.unpack_from(f"{order}I", block, 4)
        (count,) = struct.unpack_from(f"{order}H", block, directory)
        for entry in range(directory + 2, directory + 2 + 12 * count, 12):
            tag, kind = struct.unpack_from(f"{order}HH", block, entry)
            if tag == ORIENTATION_TAG and kind in (SHORT, LONG):
                (value,) = struct.unpack_from(f"{order}{'H' if kind == SHORT else 'I'}", block, entry + 8)
                return value if value in range(1, 9) else 1
    except struct.error:
        pass  # the block is cut short; the picture may well be whole
    return 1


def _read_jpeg_header(file: IO[bytes]) -> Header:
    size: tuple[int, int] | None = None
    orientation: int | None = None
    has_stray_bytes = False
    end = 2
    for marker, start, length in jpeg_segments(file):
        has_stray_bytes |= start > end
        end = start + length
        if marker in SIZE_MARKERS:
            _, height, width = struct.unpack(">BHH", _read_exactly(file, 5, "JPEG"))
            size = height, width
        elif marker == EXIF_MARKER and orientation is None:
            content = _read_exactly(file, length - 4, "JPEG")
            if content.startswith(EXIF_PREFIX):
                orientation = orientation_of(content)
    if size is None:
        raise ImageFault.damaged("JPEG", "its size is missing")
    return Header("JPEG", *size, orientation or 1, scan=start, has_stray_bytes=has_stray_bytes)


def _next_marker(file: IO[bytes]) -> int:
    while True:
        while _read_exactly(file, 1, "JPEG") != b"\xff":
            pass
        while (byte := _read_exactly(file, 1, "JPEG")) == b"\xff":
            pass
        if byte != b"\0":
            return byte[0]


def _read_png_header(file: IO[bytes]) -> Header:
    chunks = list(png_chunks(file))
    if chunks[0].name != b"IHDR":
        raise ImageFault.damaged("PNG", "it does not begin with its size")
    file.seek(chunks[0].start)
    width, height = struct.unpack(">II", _read_exactly(file, 8, "PNG"))
    orientation = 1
    for chunk in chunks:
        if chunk.name == b"eXIf" and chunk.length <= MOST_EXIF_BYTES:  # may stand behind the pixels
            file.seek(chunk.start)
            orientation = orientation_of(file.read(chunk.length))
    return Header("PNG", height, width, orientation)


def _read_other_header(file: IO[bytes], kind: str) -> Header:
    if kind == "TIFF":
        _refuse_cut_tiff(file)
    file.seek(0)
    with READERS[kind](file) as image:
        # A TIFF is turned by its decoder. The rotation and mirror boxes of AVIF reach us as Exif, through Pillow.
        exif = b"" if kind == "TIFF" else image.info.get("exif") or b""
        return Header(kind, image.height, image.width, orientation_of(exif))


def _refuse_cut_tiff(file: IO[bytes]) -> None:
    """Refuse a TIFF whose first directory, or what that points to, lies behind the end; Pillow would warn and go on."""
    size = file.seek(0, 2)
    file.seek(0)
    head = file.read(16)
    order = "<" if head.startswith(b"II") else ">"
    is_big = head[2:4] in (b"+\0", b"\0+")
    pointer, counter, first = ("Q", "Q", 8) if is_big else ("I", "H", 4)
    (directory,) = struct.unpack_from(order + pointer, head, first)
    file.seek(directory)
    (count,) = struct.unpack(order + counter, _read_exactly(file, struct.calcsize(counter), "TIFF"))
    entry = struct.Struct(f"{order}HH{pointer}{pointer}")
    content = _read_exactly(file, min(count, MOST_TIFF_ENTRIES) * entry.size, "TIFF")
    _read_exactly(file, struct.calcsize(pointer), "TIFF")  # the place of the next directory
    for _, kind, length, place in entry.iter_unpack(content):
        num_bytes = length * TIFF_TYPE_BYTES.get(kind, 1)
        if num_bytes > struct.calcsize(pointer) and place + num_bytes > size:  # shorter ones stand in `place` itself
            raise ImageFault.cut_short("TIFF")


def _read_exactly(file: IO[bytes], count: int, kind: str) -> bytes:
    content = file.read(count)
    if len(content) < count:
        raise ImageFault.cut_short(kind)
    return content
