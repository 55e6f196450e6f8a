from __future__ import annotations

import errno
import gc
import os
import pickle
import sys
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from visiontrain.data import cache as cache_module
from visiontrain.data.cache import ImageCache, open_image_cache
from visiontrain.data.images import read_reduced
from visiontrain.errors import ConfigError
from visiontrain.sample import Record, Records

IMGSZ = 32
PLENTY = 10**9
OLD = 10**18
SIZES = [(20, 10), (64, 48), (48, 64), (32, 32), (129, 97), (128, 97), (1, 200), (97, 128)]
"""Heights and widths: smaller than `IMGSZ`, larger, and such that a JPEG decoded smaller is one pixel off."""


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "caches"


@pytest.fixture
def paths(tmp_path):
    """One noisy picture of each of `SIZES`, JPEG and PNG by turns."""
    rng = np.random.default_rng(0)
    found = []
    for index, (height, width) in enumerate(SIZES):
        path = tmp_path / f"{index}.{'png' if index % 2 else 'jpg'}"
        Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(path)
        os.utime(path, ns=(OLD, OLD))
        found.append(path)
    return found


def records_of(paths, sizes=SIZES):
    nothing = np.zeros((0, 4), np.float32), np.zeros(0, np.int64)
    return Records([Record(path, *size, *nothing) for path, size in zip(paths, sizes, strict=True)])


def open_cache(records, where, folder, **options):
    return open_image_cache(
        records, where, **{"imgsz": IMGSZ, "free_memory": PLENTY, "threads": 2, "folder": folder, **options}
    )


def no_memory_files(monkeypatch):
    monkeypatch.delattr(os, "memfd_create", raising=False)


@pytest.mark.parametrize("where", ["ram", "disk"])
def test_images_come_out_bit_by_bit_as_from_their_files_and_read_only(paths, folder, where):
    cache = open_cache(records_of(paths), where, folder)
    assert len(cache) == len(paths)
    for index, path in enumerate(paths):
        image = cache.get(index)
        np.testing.assert_array_equal(image, read_reduced(path, IMGSZ))
        assert image.dtype == np.uint8
        assert image.flags.c_contiguous
        with pytest.raises(ValueError, match="read-only"):
            image[0] = 0
        with pytest.raises(ValueError, match="cannot set WRITEABLE"):
            image.flags.writeable = True


@pytest.mark.parametrize("height", [64, 65, 96, 127, 128, 129, 257])
def test_every_size_that_reduced_decoding_may_give_has_room(tmp_path, folder, height):
    sizes = [(height, width) for width in range(1, 2 * height, 3)]
    paths = [tmp_path / f"{width}.jpg" for _, width in sizes]
    for path, (_, width) in zip(paths, sizes, strict=True):
        Image.new("RGB", (width, height)).save(path)
    cache = open_cache(records_of(paths, sizes), "ram", folder)
    assert all(cache.get(index) is not None for index in range(len(paths)))


@pytest.mark.parametrize("where", ["ram", "disk"])
def test_an_image_that_cannot_be_read_keeps_no_place_and_does_not_stop_the_rest(paths, folder, where):
    paths[2].write_bytes(b"gone bad")
    paths[5].unlink()
    cache = open_cache(records_of(paths), where, folder)
    assert [index for index in range(len(paths)) if cache.get(index) is None] == [2, 5]


def test_an_image_larger_than_its_record_says_is_left_out(paths, folder):
    cache = open_cache(records_of(paths, [(8, 8), *SIZES[1:]]), "ram", folder)
    assert cache.get(0) is None
    np.testing.assert_array_equal(cache.get(1), read_reduced(paths[1], IMGSZ))


def test_an_image_listed_many_times_is_kept_once(paths, folder):
    once = open_cache(records_of(paths[:2], SIZES[:2]), "ram", folder)
    often = open_cache(records_of(paths[:2] * 5, SIZES[:2] * 5), "ram", folder)
    assert often.num_bytes == once.num_bytes
    for index in range(10):
        np.testing.assert_array_equal(often.get(index), once.get(index % 2))


def test_progress_counts_every_image(paths, folder):
    calls = []
    open_cache(records_of(paths), "ram", folder, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(done, len(paths)) for done in range(1, len(paths) + 1)]


def fail_to_read(*_):
    raise AssertionError("an image was read")


def test_a_later_run_finds_the_file_and_reads_no_image(paths, folder, monkeypatch):
    first = open_cache(records_of(paths), "disk", folder)
    expected = [first.get(index).copy() for index in range(len(paths))]
    monkeypatch.setattr(cache_module, "read_reduced", fail_to_read)
    second = open_cache(records_of(paths), "disk", folder, progress=fail_to_read)
    assert "found in" in second.summary
    for index, image in enumerate(expected):
        np.testing.assert_array_equal(second.get(index), image)


def test_an_edited_image_or_another_size_makes_another_file(paths, folder):
    open_cache(records_of(paths), "disk", folder)
    os.utime(paths[0], ns=(OLD, OLD + 1_000_000))
    open_cache(records_of(paths), "disk", folder)
    open_cache(records_of(paths), "disk", folder, imgsz=64)
    open_cache(records_of(paths[1:], SIZES[1:]), "disk", folder)
    assert len(list(folder.rglob("*.bin"))) == 4


def test_another_decoder_makes_another_file(paths, folder, monkeypatch):
    open_cache(records_of(paths), "disk", folder)
    monkeypatch.setattr(cv2, "__version__", "0")
    open_cache(records_of(paths), "disk", folder)
    assert len(list(folder.rglob("*.bin"))) == 2


def test_a_file_cut_short_is_made_anew(paths, folder):
    open_cache(records_of(paths), "disk", folder)
    [file] = folder.rglob("*.bin")
    os.truncate(file, 100)
    cache = open_cache(records_of(paths), "disk", folder)
    np.testing.assert_array_equal(cache.get(4), read_reduced(paths[4], IMGSZ))


@pytest.mark.parametrize("where", ["ram", "disk"])
def test_nothing_is_left_when_filling_is_interrupted(paths, folder, where):
    def interrupt(done, _):
        if done == 3:
            raise KeyboardInterrupt

    before = open_descriptors()
    with pytest.raises(KeyboardInterrupt):
        open_cache(records_of(paths), where, folder, progress=interrupt)
    gc.collect()
    assert [path for path in folder.rglob("*") if path.is_file()] == []
    assert open_descriptors() == before


def open_descriptors():
    return len(list(Path("/proc/self/fd").iterdir())) if sys.platform == "linux" else 0


def test_memory_is_given_back_when_the_cache_is_closed(paths, folder):
    gc.collect()
    before = open_descriptors()
    cache = open_cache(records_of(paths), "ram", folder)
    cache.close()
    cache.close()
    gc.collect()
    assert open_descriptors() == before


def test_the_data_set_is_left_alone(paths, folder):
    before = sorted(path.name for path in paths[0].parent.iterdir())
    open_cache(records_of(paths), "disk", folder)
    assert sorted(path.name for path in paths[0].parent.iterdir()) == sorted([*before, folder.name])


def test_memory_is_refused_above_half_of_what_is_free(paths, folder):
    records = records_of(paths)
    needed = open_cache(records, "ram", folder).num_bytes
    open_cache(records, "ram", folder, free_memory=2 * needed)
    open_cache(records, "ram", folder, free_memory=None)
    message = (
        r"cache = 'ram': 8 images reduced to imgsz = 32 take 0\.0 MB, more than half of the free memory, which is "
        r"0\.0 MB; use cache=disk, a smaller imgsz or fraction, or leave cache out"
    )
    with pytest.raises(ConfigError, match=message):
        open_cache(records, "ram", folder, free_memory=2 * needed - 2)


def test_disk_is_refused_above_half_of_what_is_free_and_nothing_is_written(paths, folder, monkeypatch):
    monkeypatch.setattr(cache_module, "_free_disk", lambda path: 1000)
    with pytest.raises(ConfigError, match=r"cache = 'disk': .* more than half of the free disk of .*VISIONTRAIN_CACHE"):
        open_cache(records_of(paths), "disk", folder)
    assert not folder.exists()


def test_a_folder_that_cannot_be_written_is_refused(paths, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"cache = 'disk': .*file.* cannot be written .*; set VISIONTRAIN_CACHE"):
        open_cache(records_of(paths), "disk", tmp_path / "file")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has files in memory")
def test_memory_that_the_system_does_not_give_is_refused(paths, folder, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(ConfigError, match=r"cache = 'ram': 0\.0 MB of shared memory cannot be had"):
        open_cache(records_of(paths), "ram", folder)


def test_a_file_system_that_cannot_reserve_will_do(paths, folder, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "posix_fallocate", refuse, raising=False)
    cache = open_cache(records_of(paths), "disk", folder)
    np.testing.assert_array_equal(cache.get(1), read_reduced(paths[1], IMGSZ))


def send_image(cache: ImageCache, connection: Connection) -> None:
    """Runs in a process of its own."""
    image = cache.get(1)
    assert image is not None
    connection.send((image.copy(), image.flags.writeable))


@pytest.mark.parametrize("where", ["ram", "ram without memory files", "disk"])
def test_another_process_maps_the_same_block(paths, folder, where, monkeypatch):
    if "without" in where:
        no_memory_files(monkeypatch)
    cache = open_cache(records_of(paths), where.split()[0], folder)
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=send_image, args=(cache, theirs))
    process.start()
    assert ours.poll(30)
    image, is_writable = ours.recv()
    process.join()
    np.testing.assert_array_equal(image, read_reduced(paths[1], IMGSZ))
    assert not is_writable


def test_what_is_sent_to_a_process_does_not_hold_the_pixels(tmp_path, folder):
    path = tmp_path / "large.png"
    Image.new("RGB", (640, 640)).save(path)
    for where in ("ram", "disk"):
        cache = open_cache(records_of([path], [(640, 640)]), where, folder, imgsz=640)
        assert cache.num_bytes > 10**6
        assert len(pickle.dumps(cache)) < 2000
        cache.close()
