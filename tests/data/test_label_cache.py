from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from visiontrain.data.label_cache import Reading, cached, cached_records, file_keys
from visiontrain.errors import DataError
from visiontrain.findings import Findings
from visiontrain.sample import Record


class Scan:
    """Reads label files and counts how often it is asked to."""

    def __init__(self, files: list[Path], folder: Path, names=("a", "b"), slot="set train") -> None:
        self.files, self.folder, self.names, self.slot = files, folder, names, slot
        self.readings = 0

    def __call__(self) -> str:
        def compute():
            self.readings += 1
            texts = [path.read_text() for path in self.files if path.exists()]
            return {"texts": np.array(texts, np.str_), "numbers": np.arange(3)}

        arrays = cached([*self.names, *file_keys(self.files)], compute, slot=self.slot, folder=self.folder)
        assert sorted(arrays) == ["numbers", "texts"]
        np.testing.assert_array_equal(arrays["numbers"], np.arange(3))
        return " ".join(arrays["texts"].tolist())


@pytest.fixture
def files(tmp_path):
    """Three label files that nobody has touched for long."""
    paths = [tmp_path / f"{index}.txt" for index in range(3)]
    for path in paths:
        write(path, f"{path.stem} .5")
    return paths


@pytest.fixture
def scan(files, tmp_path):
    return Scan(files, tmp_path / "caches")


def write(path, text, mtime=10**18):
    path.write_text(text)
    os.utime(path, ns=(mtime, mtime))


def test_files_that_did_not_change_are_read_once(scan):
    assert scan() == scan() == "0 .5 1 .5 2 .5"
    assert scan.readings == 1


def test_an_edit_of_the_same_length_is_seen_by_its_time(scan, files):
    scan()
    write(files[1], "9 .5", mtime=10**18 + 1_000_000)
    assert scan() == scan() == "0 .5 9 .5 2 .5"
    assert scan.readings == 2


def test_a_file_that_comes_or_goes_is_seen(scan, files):
    scan()
    files[0].unlink()
    assert scan() == "1 .5 2 .5"
    write(files[0], "7 .5")
    assert scan() == "7 .5 1 .5 2 .5"
    assert scan.readings == 3


def test_a_file_written_just_now_is_not_trusted_to_be_done(scan, files):
    files[2].write_text("2 .5")
    scan()
    scan()
    assert scan.readings == 2


def test_other_names_are_another_reading_and_replace_the_file(scan):
    scan()
    scan.names = ("a",)
    scan()
    assert scan.readings == 2
    assert len(list(scan.folder.rglob("*.npz"))) == 1


def test_two_lists_of_the_same_files_do_not_drive_each_other_out(files, tmp_path):
    scans = [Scan(files, tmp_path / "c", slot="one"), Scan(files[:2], tmp_path / "c", slot="two")]
    for _ in range(2):
        for scan in scans:
            scan()
    assert [scan.readings for scan in scans] == [1, 1]


@pytest.mark.parametrize("damage", ["cut", "empty", "flipped", "another", "array", "pickle"])
def test_a_damaged_file_is_ignored_and_written_anew(scan, damage):
    expected = scan()
    [path] = scan.folder.rglob("*.npz")
    content = bytearray(path.read_bytes())
    if damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "flipped":
        place = content.index("1 .5".encode("utf-32-le"))
        content[place] ^= 1
        path.write_bytes(content)
    elif damage == "another":
        np.savez(path, other=np.zeros(3))
    elif damage == "array":
        with path.open("wb") as file:
            np.save(file, np.zeros(3))
    else:
        np.savez(path, __key__=np.array([object()], dtype=object))
    assert scan() == expected
    assert scan.readings == 2
    assert scan() == expected
    assert scan.readings == 2


def test_a_folder_that_cannot_be_written_means_no_cache(scan, tmp_path):
    (tmp_path / "file").touch()
    scan.folder = tmp_path / "file"
    assert scan() == scan()
    assert scan.readings == 2


def test_an_error_of_the_reader_is_passed_on_and_nothing_is_kept(tmp_path):
    def fail():
        raise DataError("bad.txt:1: is bad")

    with pytest.raises(DataError, match=r"bad\.txt:1"):
        cached(["key"], fail, slot="set", folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_by_default_caches_lie_in_the_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("VISIONTRAIN_CACHE", str(tmp_path))
    cached([], dict, slot="set")
    assert len(list(tmp_path.rglob("*.npz"))) == 1


@pytest.fixture
def images(tmp_path):
    """Four image files that nobody has touched for long; what is in them does not matter here."""
    paths = [tmp_path / f"{index}.png" for index in range(4)]
    for path in paths:
        write(path, "pixels")
    return paths


def reader_of(images, counts, texts=(), faults=()):
    """A function that makes records with so many boxes, and the list that tells how often it was called."""
    rng, calls = np.random.default_rng(0), []
    records = [
        Record(path, 30 + index, 40, rng.random((count, 4), np.float32), rng.integers(0, 9, count))
        for index, (path, count) in enumerate(zip(images, counts, strict=False))
    ]

    findings = Findings()
    for line, text in enumerate(texts, 1):
        findings.add("row-twice", "train", "labels.txt", line, text, image="é.png")

    def read():
        calls.append(None)
        return Reading(records, findings, faults)

    return read, calls


@pytest.mark.parametrize("counts", [(2, 2, 2, 2), (0, 3, 1, 0), (0, 0, 0, 0)])
@pytest.mark.parametrize("texts", [(), ("é\udce9:3", "", "more")])
def test_records_and_findings_come_back_as_they_were(tmp_path, images, counts, texts):
    read, calls = reader_of(images, counts, texts)
    labels = [None] * len(images)
    for _ in range(2):
        found = cached_records(images, labels, read, key_parts=["a"], slot="set", folder=tmp_path / "c")
        assert list(found.findings) == list(read().findings)
        assert found.faults == ()
        for one, other in zip(found.records, read().records, strict=True):
            assert (one.path, one.height, one.width) == (other.path, other.height, other.width)
            np.testing.assert_array_equal(one.boxes, other.boxes)
            np.testing.assert_array_equal(one.classes, other.classes)
            assert (one.boxes.dtype, one.classes.dtype) == (np.float32, np.int64)
    assert len(calls) == 1 + 4


@pytest.mark.parametrize("changed", ["image", "label", "names", "order"])
def test_records_are_read_again_when_any_of_their_files_or_the_names_change(tmp_path, images, files, changed):
    read, calls = reader_of(images, (1, 1, 1, 1))
    labels, names = [*files, None], ["a", "b"]
    options = {"slot": "set", "folder": tmp_path / "c"}
    cached_records(images, labels, read, key_parts=names, **options)
    if changed == "image":
        write(images[3], "pixels", mtime=10**18 + 1_000_000)
    elif changed == "label":
        write(files[0], "1 .5", mtime=10**18 + 1_000_000)
    elif changed == "names":
        names = ["a"]
    else:
        images = images[::-1]
    for _ in range(2):
        cached_records(images, labels, read, key_parts=names, **options)
    assert len(calls) == 2


@pytest.mark.parametrize(("counts", "faults"), [((1, 1, 1), ()), ((1, 1, 1, 1), ("train: all in pixels",))])
def test_while_an_image_cannot_be_read_or_the_labels_are_unfit_nothing_is_kept(tmp_path, images, counts, faults):
    read, calls = reader_of(images, counts, faults=faults)
    for _ in range(2):
        found = cached_records(images, [None] * 4, read, key_parts=[], slot="set", folder=tmp_path / "c")
        assert (len(found.records), found.faults) == (len(counts), faults)
    assert len(calls) == 2
