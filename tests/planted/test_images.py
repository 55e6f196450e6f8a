"""One fault at a time in the image files of a data set."""

from __future__ import annotations

import io
import shutil
import struct
import zlib

import pytest
from PIL import Image

IMAGE = "images/train/1.png"
TURNED = 0x0112


def replaced(make, name="1.png"):
    """Plants what `make` makes of the bytes of train's image 1, under a name of its own."""

    def plant(root):
        data = (root / IMAGE).read_bytes()
        (root / IMAGE).unlink()
        (root / "images/train" / name).write_bytes(make(data))

    return plant


def encoded(kind, **options):
    """Plants the picture in another format, whatever its name."""

    def make(data):
        file = io.BytesIO()
        size = options.pop("size", None)
        with Image.open(io.BytesIO(data)) as image:
            (image.resize(size) if size else image).save(file, kind, **options)
        return file.getvalue()

    return make


def turned(orientation):
    exif = Image.Exif()
    exif[TURNED] = orientation
    return exif


def of_size(width, height):
    """The bytes of a PNG whose header tells another size."""

    def make(data):
        header = b"IHDR" + struct.pack(">II", width, height) + data[24:29]
        return data[:12] + header + struct.pack(">I", zlib.crc32(header)) + data[33:]

    return make


def damaged(data):
    middle = len(data) // 2
    return data[:middle] + bytes(200) + data[middle + 200 :]


FAULTS = {
    "a text named as an image": (replaced(lambda data: b"<html>not found</html>"), f"train image-unreadable {IMAGE}"),
    "an empty file": (replaced(lambda data: b""), f"train image-unreadable {IMAGE}"),
    "a header alone": (replaced(lambda data: data[:40]), f"train image-unreadable {IMAGE}"),
    "a PNG that is cut short": (replaced(lambda data: data[:-300]), f"train image-unreadable {IMAGE}"),
    "a PNG that is damaged inside": (replaced(damaged), f"train image-unreadable {IMAGE}"),
    "a JPEG that is cut short": (
        replaced(lambda data: encoded("JPEG")(data)[:-100], "1.jpg"),
        "train image-unreadable images/train/1.jpg",
    ),
    "a TIFF that is cut short": (
        replaced(lambda data: encoded("TIFF")(data)[:200], "1.tif"),
        "train image-unreadable images/train/1.tif",
    ),
    "a size without pixels": (replaced(of_size(0, 48)), f"train image-unreadable {IMAGE}"),
    "a size that no memory holds": (replaced(of_size(60_000, 60_000)), f"train image-too-large {IMAGE}"),
    "a folder named as an image": (
        lambda root: [(root / IMAGE).unlink(), (root / IMAGE).mkdir()],
        "train label-without-image labels/train/1.txt",
    ),
    "a link that leads nowhere": (
        lambda root: [(root / IMAGE).unlink(), (root / IMAGE).symlink_to(root / "gone.png")],
        f"train image-unreadable {IMAGE}",
    ),
    "a turned JPEG": (
        replaced(encoded("JPEG", exif=turned(6)), "1.jpg"),
        "train image-turned images/train/1.jpg",
    ),
    "a mirrored PNG": (replaced(encoded("PNG", exif=turned(2))), f"train image-turned {IMAGE}"),
    "a turned WebP": (
        replaced(encoded("WebP", exif=turned(8)), "1.webp"),
        "train image-turned images/train/1.webp",
    ),
    "a picture of a kind that is not read": (
        lambda root: shutil.copyfile(root / IMAGE, root / "images/train/8.heic"),
        "train image-suffix images/train/8.heic",
    ),
    "a picture twice in train": (
        lambda root: [
            shutil.copyfile(root / f"{kind}/train/1.{end}", root / f"{kind}/train/8.{end}")
            for kind, end in (("images", "png"), ("labels", "txt"))
        ],
        "train image-same images/train/8.png",
    ),
    "a picture of train in val": (
        lambda root: shutil.copyfile(root / IMAGE, root / "images/val/5.png"),
        "val image-in-splits images/val/5.png",
    ),
    "a picture of train in val in another format": (
        lambda root: (root / "images/val/5.png").write_bytes(encoded("JPEG", quality=75)((root / IMAGE).read_bytes())),
        "val image-alike images/val/5.png",
    ),
    "a picture of train in val at another size": (
        lambda root: (root / "images/val/5.png").write_bytes(
            encoded("PNG", size=(160, 120))((root / IMAGE).read_bytes())
        ),
        "val image-alike images/val/5.png",
    ),
    "val that is train": (
        lambda root: (root / "data.yaml").write_text(
            "train: images/train\nval: images/train\nnames: [a, b]\n", encoding="utf-8"
        ),
        *(f"val image-in-splits images/train/{number}.png" for number in range(5)),
    ),
    "val that lies in train": (
        lambda root: (root / "data.yaml").write_text(
            "train: images\nval: images/val\nnames: [a, b]\n", encoding="utf-8"
        ),
        *(f"val image-in-splits images/val/{number}.png" for number in (5, 6)),
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_an_image_is_found_alone_with_its_file(yolo, check, name):
    plant, *expected = FAULTS[name]
    plant(yolo)
    verdict = check(yolo)
    assert verdict.found == expected
    assert not verdict.stops


def test_images_of_more_pixels_than_are_allowed_are_told_and_not_called_damaged(yolo, check):
    replaced(encoded("PNG", size=(80, 60)))(yolo)
    assert check(yolo, "max_pixels=4000").found == [f"train image-too-large {IMAGE}"]
    assert check(yolo, "max_pixels=4800").found == []


def test_a_split_none_of_whose_images_can_be_read_is_a_fault(yolo, check):
    for path in (yolo / "images/train").iterdir():
        path.write_bytes(b"x")
    verdict = check(yolo)
    assert verdict.exit_code == 3
    assert verdict.stops[0].startswith("train: none of the 5 images can be read; the first is ")
    assert verdict.found == [f"train image-unreadable images/train/{number}.png" for number in range(5)]


HARMLESS = {
    "a JPEG named as a PNG": replaced(encoded("JPEG")),
    "a PNG named as a JPEG": replaced(lambda data: data, "1.jpg"),
    "a suffix in capitals": replaced(encoded("JPEG"), "1.JPEG"),
    "bytes behind the end of a JPEG": replaced(lambda data: encoded("JPEG")(data) + b"trailing", "1.jpg"),
    "bytes behind the end of a PNG": replaced(lambda data: data + b"trailing"),
    "an upright tag": replaced(encoded("JPEG", exif=turned(1)), "1.jpg"),
    "a tag that does not exist": replaced(encoded("JPEG", exif=turned(9)), "1.jpg"),
    "WebP": replaced(encoded("WebP"), "1.webp"),
    "AVIF": replaced(encoded("AVIF"), "1.avif"),
    "BMP": replaced(encoded("BMP"), "1.bmp"),
    "TIFF": replaced(encoded("TIFF"), "1.tiff"),
    "GIF": replaced(encoded("GIF"), "1.gif"),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_an_image_that_can_be_read_is_no_fault_whatever_its_kind_and_name(yolo, check, name):
    HARMLESS[name](yolo)
    assert check(yolo).found == []
