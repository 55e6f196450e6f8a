"""Files that loaders get wrong: turned, cut, damaged, lying. Made here; and real ones, where the test data are."""

from __future__ import annotations

import io
import json
import struct
import zlib

import cv2
import numpy as np
import pytest
from PIL import Image

from visiontrain.data.decoders import QUIET_OPENCV
from visiontrain.data.headers import orientation_of
from visiontrain.data.images import MAX_PIXELS, image_size, read_image
from visiontrain.errors import DataError

ORIENTATION = 0x0112
RNG = np.random.default_rng(0)
PICTURE = cv2.resize(RNG.integers(0, 256, (6, 8, 3), dtype=np.uint8), (64, 48), interpolation=cv2.INTER_LINEAR)


def encoded(format_name, picture=PICTURE, *, mode="RGB", **options):
    file = io.BytesIO()
    Image.fromarray(picture).convert(mode).save(file, format_name, **options)
    return file.getvalue()


def exif_of(orientation):
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    return exif


def quarters_of(image):
    """The mean color of the upper left, upper right, lower left and lower right quarter."""
    height, width = image.shape[0] // 2, image.shape[1] // 2
    parts = (image[:height, :width], image[:height, width:], image[height:, :width], image[height:, width:])
    return np.array([part.reshape(-1, 3).mean(axis=0) for part in parts])


def picture_or_fault(path):
    try:
        return read_image(path)
    except DataError as error:
        return str(error)


def png_chunk(name, content):
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def tiff_of(pixels, *, width, height, bits, white_is_zero=False, order="<", rows_per_strip=None):
    """A TIFF of one grey strip, made by hand."""
    entries = [(256, width), (257, height), (258, bits), (259, 1), (262, 0 if white_is_zero else 1)]
    entries += [(273, 8), (277, 1), (278, rows_per_strip or height), (279, len(pixels))]
    directory = struct.pack(f"{order}H", len(entries))
    for tag, value in entries:
        directory += struct.pack(f"{order}HHII", tag, 4, 1, value)
    head = (b"II" if order == "<" else b"MM") + struct.pack(f"{order}HI", 42, 8 + len(pixels))
    return head + pixels + directory + bytes(4)


KINDS = {
    "baseline.jpg": encoded("JPEG", quality=95),
    "progressive.jpg": encoded("JPEG", progressive=True),
    "turned.jpg": encoded("JPEG", exif=exif_of(6)),
    "cmyk.jpg": encoded("JPEG", mode="CMYK"),
    "grey.jpg": encoded("JPEG", mode="L"),
    "color.png": encoded("PNG"),
    "palette.png": encoded("PNG", mode="P"),
    "deep.png": cv2.imencode(".png", PICTURE.astype(np.uint16) * 257)[1].tobytes(),
    "lossy.webp": encoded("WebP"),
    "lossless.webp": encoded("WebP", lossless=True),
    "color.avif": encoded("AVIF", speed=10),
    "color.gif": encoded("GIF"),
    "color.bmp": encoded("BMP"),
    "bits.bmp": encoded("BMP", mode="1"),
    "plain.tif": encoded("TIFF"),
    "lzw.tif": encoded("TIFF", compression="tiff_lzw"),
    "packed.tif": encoded("TIFF", compression="packbits"),
    "jpeg.tif": encoded("TIFF", compression="jpeg"),
    "deep.tif": cv2.imencode(".tif", PICTURE.astype(np.uint16) * 257)[1].tobytes(),
    "wavelet.jp2": encoded("JPEG2000"),
    "color.ppm": encoded("PPM"),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_cut_file_is_refused_by_name_or_has_lost_nothing_of_its_picture(tmp_path, name, capfd):
    data = KINDS[name]
    path = tmp_path / name
    path.write_bytes(data)
    whole = read_image(path)
    places = {*np.linspace(1, len(data) - 1, 25).astype(int).tolist(), *range(len(data) - 4, len(data))}
    num_refused = 0
    for place in sorted(places):
        path.write_bytes(data[:place])
        found = picture_or_fault(path)
        if isinstance(found, str):
            assert found.startswith(f"{path}: ")
            num_refused += 1
        else:
            np.testing.assert_array_equal(found, whole)
    assert num_refused >= len(places) - 2
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", KINDS)
def test_size_and_picture_agree_and_nothing_is_printed(tmp_path, name, capfd):
    path = tmp_path / name
    path.write_bytes(KINDS[name])
    image = read_image(path)
    assert image.shape == ((64, 48, 3) if name == "turned.jpg" else (48, 64, 3))
    assert image_size(path) == image.shape[:2]
    assert max(read_image(path, reduce_to=16).shape) in (16, 64)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["color.png", "deep.png", "lossless.webp", "color.bmp", "plain.tif", "color.ppm"])
def test_a_lossless_file_gives_the_very_pixels(tmp_path, name):
    (tmp_path / name).write_bytes(KINDS[name])
    expected = PICTURE[:, :, ::-1] if name == "deep.png" else PICTURE  # OpenCV writes blue first
    np.testing.assert_array_equal(read_image(tmp_path / name), expected)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_rotation_and_mirror_boxes_of_avif_turn_pixels_and_size_alike(tmp_path, orientation):
    red = np.zeros((48, 64, 3), np.uint8)
    red[:24, :32] = (250, 10, 10)
    (tmp_path / "turned.avif").write_bytes(encoded("AVIF", red, exif=exif_of(orientation)))
    (tmp_path / "turned.png").write_bytes(encoded("PNG", red, exif=exif_of(orientation)))
    image = read_image(tmp_path / "turned.avif")
    assert image_size(tmp_path / "turned.avif") == image.shape[:2]
    np.testing.assert_allclose(quarters_of(image), quarters_of(read_image(tmp_path / "turned.png")), atol=8)


@pytest.mark.parametrize("bits", [8, 16])
def test_a_png_may_tell_its_orientation_behind_its_pixels(tmp_path, bits):
    whole = KINDS["deep.png" if bits == 16 else "color.png"]
    end = png_chunk(b"IEND", b"")
    assert whole.endswith(end)
    exif = exif_of(6).tobytes().removeprefix(b"Exif\0\0")
    path = tmp_path / "late.png"
    path.write_bytes(whole[: -len(end)] + png_chunk(b"eXIf", exif) + end)
    assert image_size(path) == (64, 48)
    (tmp_path / "upright.png").write_bytes(whole)
    np.testing.assert_array_equal(read_image(path), np.rot90(read_image(tmp_path / "upright.png"), -1))


@pytest.mark.parametrize("orientation", [0, 9, 274, 65_535])
def test_an_orientation_that_does_not_exist_means_upright(orientation):
    assert orientation_of(exif_of(orientation).tobytes()) == 1


def test_damaged_exif_means_upright_where_the_tag_is_lost():
    exif = exif_of(6).tobytes()
    assert orientation_of(exif) == 6
    for length in range(len(exif)):
        assert orientation_of(exif[:length]) in (1, 6)
    assert orientation_of(exif[:20]) == 1


@pytest.mark.parametrize(("order", "white_is_zero"), [("<", False), ("<", True), (">", False)])
def test_a_16_bit_tiff_is_scaled_whatever_its_byte_order_and_its_white(tmp_path, order, white_is_zero):
    values = np.linspace(0, 65_535, 48).astype(np.uint16).reshape(6, 8)
    pixels = values.astype(f"{order}u2").tobytes()
    (tmp_path / "grey.tif").write_bytes(
        tiff_of(pixels, width=8, height=6, bits=16, white_is_zero=white_is_zero, order=order)
    )
    expected = np.rint((65_535 - values.astype(int) if white_is_zero else values) / 257)
    np.testing.assert_array_equal(read_image(tmp_path / "grey.tif")[:, :, 0], expected)


def test_a_tiff_of_a_kind_that_is_not_read_is_not_called_damaged_alone(tmp_path):
    pixels = bytes(2 * 48)
    (tmp_path / "rare.tif").write_bytes(tiff_of(pixels, width=8, height=6, bits=16, white_is_zero=True, order=">"))
    with pytest.raises(DataError, match=r"rare\.tif: the TIFF is damaged or of a kind that is not read"):
        read_image(tmp_path / "rare.tif")


def test_a_tiff_with_a_strip_too_few_is_refused(tmp_path):
    (tmp_path / "strips.tif").write_bytes(tiff_of(bytes(range(1, 25)), width=8, height=6, bits=8, rows_per_strip=3))
    with pytest.raises(DataError, match=r"strips\.tif: the TIFF is damaged \(it has too few strips\)"):
        read_image(tmp_path / "strips.tif")


def test_a_12_bit_tiff_is_scaled_by_its_own_white(tmp_path):
    values = [0, 4095, 2048, 1024]
    pixels = b"".join(struct.pack(">I", a << 12 | b)[1:] for a, b in zip(values[::2], values[1::2], strict=True))
    (tmp_path / "grey.tif").write_bytes(tiff_of(pixels, width=4, height=1, bits=12))
    np.testing.assert_array_equal(read_image(tmp_path / "grey.tif")[0, :, 0], np.rint(np.array(values) * 255 / 4095))


@pytest.mark.parametrize("bits", [2, 4])
def test_a_tiff_of_few_bits_is_scaled_to_the_whole_range(tmp_path, bits):
    (tmp_path / "grey.tif").write_bytes(tiff_of(b"\x1b\xe4", width=16 // bits, height=1, bits=bits))
    levels = [int(bit, 4) for bit in ("0", "1", "2", "3", "3", "2", "1", "0")] if bits == 2 else [0x1, 0xB, 0xE, 0x4]
    white = (1 << bits) - 1
    assert read_image(tmp_path / "grey.tif")[0, :, 0].tolist() == [level * 255 // white for level in levels]


def test_a_cut_jpeg_is_refused_though_its_thumbnail_is_whole(tmp_path):
    exif = exif_of(1).tobytes() + encoded("JPEG", PICTURE[:8, :8])
    whole = encoded("JPEG", exif=exif)
    assert b"\xff\xd9" in whole[: len(whole) // 2]
    (tmp_path / "thumb.jpg").write_bytes(whole[: -len(whole) // 4])
    with pytest.raises(DataError, match=r"thumb\.jpg: the JPEG is cut short"):
        read_image(tmp_path / "thumb.jpg")


@pytest.mark.parametrize("stray", [b"\xff\x00", b"\xff\xff\xff", b"junk"])
def test_stray_bytes_between_the_segments_of_a_jpeg_do_no_harm_and_print_nothing(tmp_path, stray, capfd):
    whole = KINDS["baseline.jpg"]
    place = whole.index(b"\xff\xdb")  # in front of the first table
    (tmp_path / "stray.jpg").write_bytes(whole[:place] + stray + whole[place:])
    (tmp_path / "clean.jpg").write_bytes(whole)
    np.testing.assert_array_equal(read_image(tmp_path / "stray.jpg"), read_image(tmp_path / "clean.jpg"))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["baseline.jpg", "color.png"])
def test_bytes_behind_the_end_do_no_harm(tmp_path, name):
    (tmp_path / name).write_bytes(KINDS[name])
    expected = read_image(tmp_path / name)
    (tmp_path / name).write_bytes(KINDS[name] + b"\0" * 100 + b"more")
    np.testing.assert_array_equal(read_image(tmp_path / name), expected)


def test_one_wrong_bit_in_a_png_is_found(tmp_path, capfd):
    damaged = bytearray(KINDS["color.png"])
    damaged[len(damaged) // 2] ^= 1
    (tmp_path / "bit.png").write_bytes(damaged)
    with pytest.raises(DataError, match=r"bit\.png: the PNG is damaged \(the checksum of its IDAT chunk is wrong\)"):
        read_image(tmp_path / "bit.png")
    assert capfd.readouterr() == ("", "")


def test_texts_and_damaged_remarks_in_a_png_do_no_harm(tmp_path):
    whole = KINDS["color.png"]
    head = 8 + 25  # signature and IHDR
    text = png_chunk(b"zTXt", b"parameters\0\0" + zlib.compress(bytes(3_000_000)))
    remark = png_chunk(b"tEXt", b"comment\0all well")[:-1] + b"?"
    (tmp_path / "texts.png").write_bytes(whole[:head] + text + remark + whole[head:])
    np.testing.assert_array_equal(read_image(tmp_path / "texts.png"), PICTURE)


def with_size(name, height, width):
    """A file of `KINDS` whose header lies about its size."""
    data = bytearray(KINDS[name])
    if name.endswith("png"):
        data[16:24] = struct.pack(">II", width, height)
        data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
    elif name.endswith("jpg"):
        place = data.index(b"\xff\xc0") + 5
        data[place : place + 4] = struct.pack(">HH", height, width)
    elif name.endswith("bmp"):
        data[18:26] = struct.pack("<ii", width, height)
    elif name.endswith("gif"):
        data[6:10] = struct.pack("<HH", width, height)
    elif name.endswith("ppm"):
        data[: data.index(b"255")] = f"P6\n{width} {height}\n".encode()
    return bytes(data)


@pytest.mark.parametrize("name", ["color.png", "baseline.jpg", "color.bmp", "color.gif", "color.ppm"])
@pytest.mark.parametrize("read", [read_image, image_size])
def test_absurd_sizes_are_refused_before_anything_is_decoded(tmp_path, name, read, monkeypatch):
    monkeypatch.setattr("visiontrain.data.images.decode", lambda *_, **__: pytest.fail("it was decoded"))
    (tmp_path / name).write_bytes(with_size(name, 60_000, 60_001))
    assert MAX_PIXELS < 60_000 * 60_001
    with pytest.raises(DataError, match=rf"{name}: is too large \(60001 × 60000 = 3,600\.1 million pixels"):
        read(tmp_path / name)


@pytest.mark.parametrize("name", ["color.png", "color.bmp", "color.ppm"])
def test_a_header_that_promises_more_than_there_is_makes_no_picture(tmp_path, name):
    (tmp_path / name).write_bytes(with_size(name, 96, 64))
    with pytest.raises(DataError, match=f"{name}: the .* is damaged"):
        read_image(tmp_path / name)


def png_of(rows, *, width, height, bits=8, color_type=0, interlace=0):
    """A PNG with the given rows, unfiltered, however many the size asks for."""
    head = struct.pack(">IIBBBBB", width, height, bits, color_type, 0, 0, interlace)
    data = zlib.compress(b"".join(b"\0" + row for row in rows))
    cut = len(data) // 2
    chunks = png_chunk(b"IDAT", data[:cut]) + png_chunk(b"IDAT", data[cut:])
    return b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", head) + chunks + png_chunk(b"IEND", b"")


@pytest.mark.parametrize(("bits", "color_type"), [(1, 0), (8, 0), (16, 0), (8, 2), (8, 4), (16, 6)])
def test_a_black_png_is_whole_if_and_only_if_no_row_is_missing(tmp_path, bits, color_type):
    num_bytes = -(-9 * bits * {0: 1, 2: 3, 4: 2, 6: 4}[color_type] // 8)
    rows = [bytes(num_bytes)] * 7
    path = tmp_path / "black.png"
    path.write_bytes(png_of(rows, width=9, height=7, bits=bits, color_type=color_type))
    assert read_image(path).shape == (7, 9, 3)
    assert not read_image(path).any()
    path.write_bytes(png_of(rows[:-1], width=9, height=7, bits=bits, color_type=color_type))
    with pytest.raises(
        DataError, match=rf"black\.png: the PNG is damaged \({num_bytes + 1} bytes of pixels are missing"
    ):
        read_image(path)


@pytest.mark.parametrize(("width", "height"), [(1, 1), (3, 5), (8, 8), (9, 13)])
def test_an_interlaced_png_is_whole_if_and_only_if_no_row_of_a_pass_is_missing(tmp_path, width, height):
    steps = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    picture = RNG.integers(1, 256, (height, width), dtype=np.uint8)
    passes = [picture[top::down, left::right] for left, top, right, down in steps]
    rows = [row.tobytes() for part in passes if part.size for row in part]
    path = tmp_path / "passes.png"
    path.write_bytes(png_of(rows, width=width, height=height, interlace=1))
    np.testing.assert_array_equal(read_image(path)[:, :, 0], picture)
    path.write_bytes(png_of(rows[:-1], width=width, height=height, interlace=1))
    with pytest.raises(DataError, match=r"passes\.png: the PNG is damaged"):
        read_image(path)


@pytest.mark.parametrize("name", ["color.png", "baseline.jpg", "color.ppm"])
def test_a_size_of_zero_is_damage(tmp_path, name):
    (tmp_path / name).write_bytes(with_size(name, 0, 64))
    for read in (read_image, image_size):
        with pytest.raises(DataError, match=rf"{name}: .*damaged"):
            read(tmp_path / name)


def test_random_damage_ends_in_a_picture_of_the_size_told_or_in_a_named_fault(tmp_path):
    rng = np.random.default_rng(1)
    path = tmp_path / "any.img"
    for data in KINDS.values():
        for _ in range(20):
            damaged = bytearray(data)
            for place in rng.integers(0, min(len(data), 300), 3):
                damaged[place] = rng.integers(0, 256)
            path.write_bytes(damaged)
            found = picture_or_fault(path)
            if isinstance(found, str):
                assert found.startswith(f"{path}: ")
            else:
                assert image_size(path) == found.shape[:2]


def test_the_log_level_of_opencv_is_left_as_it_was(tmp_path):
    (tmp_path / "a.jpg").write_bytes(KINDS["baseline.jpg"])
    level = cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_INFO)
    try:
        with QUIET_OPENCV:
            read_image(tmp_path / "a.jpg")  # a second one inside, as of another thread
            assert cv2.utils.logging.getLogLevel() == cv2.utils.logging.LOG_LEVEL_SILENT
        assert cv2.utils.logging.getLogLevel() == cv2.utils.logging.LOG_LEVEL_INFO
    finally:
        cv2.utils.logging.setLogLevel(level)


def read_reduced(path):
    return read_image(path, reduce_to=64)


@pytest.mark.parametrize("read", [read_image, read_reduced])
def test_real_odd_files_load_rightly_or_are_refused_by_name(test_data, read, capfd):
    folder = test_data / "odd_images"
    entries = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    assert len(entries) >= 32
    for entry in entries:
        path = folder / entry["file"]
        if entry["verdict"] in ("corrupt", "refuse"):
            with pytest.raises(DataError) as caught:
                read(path)
            assert str(caught.value).startswith(f"{path}: ")
            assert ("too large" in str(caught.value)) == (entry["verdict"] == "refuse")
            continue
        image = read(path)  # also where reporting would do
        width, height = map(int, entry["seen"].split("x"))
        assert image_size(path) == (height, width), path.name
        if read is read_image:
            assert image.shape == (height, width, 3), path.name
        else:
            assert max(image.shape) >= min(64, height, width), path.name
            assert image.shape[0] * width == pytest.approx(image.shape[1] * height, rel=0.05), path.name
        if "quarters" in entry:
            np.testing.assert_allclose(quarters_of(image), entry["quarters"], atol=3, err_msg=path.name)
    assert capfd.readouterr() == ("", "")


def test_a_real_4_bit_tiff_is_the_picture_that_it_shows(test_data):
    grey = read_image(test_data / "odd_images" / "hopper_gray.jpg")
    np.testing.assert_allclose(
        quarters_of(read_image(test_data / "odd_images" / "hopper4.tif")), quarters_of(grey), atol=6
    )


def test_the_size_of_a_real_bomb_is_refused_though_its_screen_is_small(test_data):
    with pytest.raises(DataError, match="too large"):
        image_size(test_data / "odd_images" / "decompression_bomb.gif")
