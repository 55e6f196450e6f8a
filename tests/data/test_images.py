from __future__ import annotations

import itertools

import cv2
import numpy as np
import pytest
from PIL import Image

from visiontrain.data.images import IMAGE_SUFFIXES, image_size, read_image, reduce_image
from visiontrain.errors import DataError

ORIENTATION = 0x0112


def quarters_of(image):
    """The mean color of the upper left, upper right, lower left and lower right quarter."""
    height, width = image.shape[0] // 2, image.shape[1] // 2
    parts = (image[:height, :width], image[:height, width:], image[height:, :width], image[height:, width:])
    return np.array([part.reshape(-1, 3).mean(axis=0) for part in parts])


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp", ".tif"])
def test_the_orientation_tag_turns_pixels_and_size_alike(tmp_path, orientation, suffix):
    upright = np.zeros((48, 64, 3), np.uint8)
    upright[:24, :32] = (250, 10, 10)
    back = {2: 2, 3: 3, 4: 4, 5: 5, 6: 8, 7: 7, 8: 6}  # the turn that undoes each
    stored = Image.fromarray(upright)
    if orientation > 1:
        transpose = {
            2: Image.Transpose.FLIP_LEFT_RIGHT,
            3: Image.Transpose.ROTATE_180,
            4: Image.Transpose.FLIP_TOP_BOTTOM,
            5: Image.Transpose.TRANSPOSE,
            6: Image.Transpose.ROTATE_270,
            7: Image.Transpose.TRANSVERSE,
            8: Image.Transpose.ROTATE_90,
        }
        stored = stored.transpose(transpose[back[orientation]])
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    path = tmp_path / f"turned{suffix}"
    stored.save(path, exif=exif, **({"lossless": True} if suffix == ".webp" else {}))

    image = read_image(path)

    assert image.shape == (48, 64, 3)
    assert image_size(path) == (48, 64)
    np.testing.assert_allclose(quarters_of(image), quarters_of(upright), atol=4)


@pytest.mark.parametrize(
    ("mode", "suffix"),
    [*itertools.product(["1", "L", "P", "RGB", "RGBA", "I;16"], [".png", ".tif"]), ("LA", ".png")],
)
def test_every_kind_of_pixel_becomes_8_bit_rgb(tmp_path, mode, suffix):
    grey = np.full((8, 8), 255 if mode == "1" else 200, np.uint8)
    picture = Image.fromarray(grey.astype(np.uint16) * 257) if mode == "I;16" else Image.fromarray(grey).convert(mode)
    picture.save(tmp_path / f"grey{suffix}")
    image = read_image(tmp_path / f"grey{suffix}")
    assert image.dtype == np.uint8
    assert image.shape == (8, 8, 3)
    assert (image == grey[:, :, None]).all()


@pytest.mark.parametrize("suffix", [".png", ".tif", ".pgm"])
def test_16_bits_of_grey_are_divided_by_257_and_rounded(tmp_path, suffix):
    values = np.arange(65_536, dtype=np.uint16).reshape(256, 256)
    cv2.imwrite(str(tmp_path / f"deep{suffix}"), values)
    image = read_image(tmp_path / f"deep{suffix}")
    np.testing.assert_array_equal(image, np.rint(values / 257)[:, :, None].repeat(3, axis=2))


@pytest.mark.parametrize("channels", [3, 4])
@pytest.mark.parametrize("suffix", [".png", ".tif"])
def test_16_bits_of_color_are_divided_by_257_and_rounded(tmp_path, suffix, channels):
    values = np.random.default_rng(0).integers(0, 65_536, (9, 7, channels), dtype=np.uint16)
    cv2.imwrite(str(tmp_path / f"deep{suffix}"), values)
    np.testing.assert_array_equal(read_image(tmp_path / f"deep{suffix}"), np.rint(values[:, :, 2::-1] / 257))


@pytest.mark.parametrize("value_type", [np.float32, np.int32])
def test_values_without_a_range_are_refused(tmp_path, value_type):
    Image.fromarray(np.ones((4, 4), value_type)).save(tmp_path / "height.tif")
    with pytest.raises(DataError, match=r"height\.tif: the TIFF holds .* values, .*; save it with 8 or 16 bits"):
        read_image(tmp_path / "height.tif")


@pytest.mark.parametrize(("mode", "suffix"), [("RGBA", ".png"), ("RGBA", ".webp"), ("LA", ".png"), ("P", ".png")])
def test_alpha_is_left_out(tmp_path, mode, suffix):
    picture = Image.new("RGB", (8, 8), (90, 90, 90))
    if mode == "P":
        picture.quantize(4).save(tmp_path / f"glass{suffix}", transparency=bytes([100, 0, 0, 0]))
    else:
        picture = picture.convert(mode)
        picture.putalpha(100)
        picture.save(tmp_path / f"glass{suffix}", **({"lossless": True, "exact": True} if suffix == ".webp" else {}))
    assert (read_image(tmp_path / f"glass{suffix}") == 90).all()


def test_a_cmyk_jpeg_becomes_rgb(tmp_path):
    Image.new("RGB", (16, 16), (200, 60, 20)).convert("CMYK").save(tmp_path / "print.jpg", quality=95)
    np.testing.assert_allclose(read_image(tmp_path / "print.jpg")[8, 8], (200, 60, 20), atol=3)


@pytest.mark.parametrize("suffix", [".gif", ".webp", ".tif", ".png"])
def test_of_several_frames_the_first_is_taken(tmp_path, suffix):
    first, second = Image.new("RGB", (8, 6), (250, 0, 0)), Image.new("RGB", (8, 6), (0, 0, 250))
    first.save(tmp_path / f"film{suffix}", save_all=True, append_images=[second], lossless=True)
    np.testing.assert_allclose(read_image(tmp_path / f"film{suffix}"), np.full((6, 8, 3), (250, 0, 0)), atol=2)


def test_channels_come_as_red_green_blue(tmp_path):
    Image.new("RGB", (4, 4), (10, 20, 200)).save(tmp_path / "blue.png")
    assert read_image(tmp_path / "blue.png")[0, 0].tolist() == [10, 20, 200]


def test_a_path_may_hold_any_letters(tmp_path):
    path = tmp_path / "Blüte – 花 (1).PNG"
    Image.new("RGB", (6, 4)).save(path)
    assert read_image(path).shape == (4, 6, 3)
    assert path.suffix.lower() in IMAGE_SUFFIXES


@pytest.mark.parametrize(("target", "side"), [(640, 640), (400, 640), (320, 320), (100, 160), (70, 80), (20, 80)])
def test_a_large_jpeg_is_decoded_at_a_fraction_never_below_the_target(tmp_path, target, side):
    cv2.imwrite(str(tmp_path / "large.jpg"), np.full((480, 640, 3), 90, np.uint8))
    image = read_image(tmp_path / "large.jpg", reduce_to=target)
    assert max(image.shape) == side
    assert abs(int(image.mean()) - 90) <= 1


def test_a_turned_jpeg_decoded_at_a_fraction_is_upright(tmp_path):
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    Image.new("RGB", (640, 480)).save(tmp_path / "turned.jpg", exif=exif)
    assert read_image(tmp_path / "turned.jpg", reduce_to=320).shape == (320, 240, 3)


def test_reducing_averages_areas_and_never_enlarges():
    image = np.zeros((40, 60, 3), np.uint8)
    image[:, ::2] = 200
    assert reduce_image(image, 60) is image
    reduced = reduce_image(image, 30)
    assert reduced.shape == (20, 30, 3)
    assert (reduced == 100).all()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"gone\.jpg: cannot be read \(No such file"),
        (b"", r"is empty \(0 bytes\)"),
        (b"just text", "damaged or not an image"),
        (b"\xff\xd8\xff\xe0 cut", "gone.jpg: .*(cut short|damaged)"),
    ],
)
def test_what_is_no_image_is_refused_with_its_name(tmp_path, content, message):
    path = tmp_path / "gone.jpg"
    if content is not None:
        path.write_bytes(content)
    for read in (read_image, image_size):
        with pytest.raises(DataError, match=message):
            read(path)


def test_the_content_tells_the_format_and_not_the_name(tmp_path):
    Image.new("RGB", (6, 4), (10, 20, 30)).save(tmp_path / "picture.png")
    path = (tmp_path / "picture.png").rename(tmp_path / "picture.jpg")
    assert read_image(path)[0, 0].tolist() == [10, 20, 30]
    assert image_size(path) == (4, 6)


@pytest.mark.parametrize("read", [read_image, image_size])
def test_an_image_of_more_pixels_than_allowed_is_refused_before_it_is_decoded(tmp_path, read):
    path = tmp_path / "wide.png"
    Image.new("1", (300, 200)).save(path)
    message = r"wide\.png: is too large \(300 × 200 = 0\.1 million pixels.*; reduce the image or raise max_pixels"
    with pytest.raises(DataError, match=message):
        read(path, max_pixels=59_999)
    read(path, max_pixels=60_000)


def test_a_jpeg_cut_in_the_middle_is_refused(test_data, tmp_path):
    whole = next((test_data / "bccd" / "images" / "train").iterdir()).read_bytes()
    (tmp_path / "half.jpg").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"half\.jpg: the JPEG is cut short"):
        read_image(tmp_path / "half.jpg")
