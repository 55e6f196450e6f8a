from __future__ import annotations

import hashlib
import os

import numpy as np
import pytest
from PIL import Image

from visiontrain.data.check import looks as looks_module
from visiontrain.data.check.looks import Look, image_paths, look_at, look_at_all, look_findings
from visiontrain.errors import DataError
from visiontrain.sample import DataSet, Record, Records

EXIF = Image.Exif()
EXIF[0x0112] = 6


@pytest.fixture
def folder(tmp_path):
    """A good picture, a turned one, one cut short, one too large for 5,000 pixels, and a name without a file."""
    pixels = np.random.default_rng(0).integers(0, 256, (48, 64, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "good.png")
    Image.fromarray(pixels).save(tmp_path / "turned.jpg", exif=EXIF)
    (tmp_path / "cut.jpg").write_bytes((tmp_path / "turned.jpg").read_bytes()[:-200])
    Image.fromarray(pixels).resize((100, 90)).save(tmp_path / "large.png")
    return tmp_path


NAMES = ("good.png", "turned.jpg", "cut.jpg", "large.png", "gone.png")


def records_of(folder, names=NAMES):
    nothing = np.zeros((0, 4), np.float32), np.zeros(0, np.int64)
    return Records([Record(folder / name, 48, 64, *nothing) for name in names])


def paths_of(folder):
    return [str(folder / name) for name in NAMES]


def looked(folder, **more):
    return dict(zip(NAMES, look_at_all(paths_of(folder), imgsz=32, max_pixels=5_000, **more).values(), strict=True))


def test_a_look_tells_the_bytes_the_tag_and_what_is_wrong(folder):
    looks = looked(folder, workers=0)
    assert looks["good.png"].digest == hashlib.sha256((folder / "good.png").read_bytes()).digest()
    assert (looks["good.png"].orientation, looks["turned.jpg"].orientation) == (1, 6)
    assert looks["cut.jpg"].fault.startswith("the JPEG is cut short")
    assert looks["large.png"].is_too_large
    assert "max_pixels" in looks["large.png"].fault
    assert looks["gone.png"].fault.startswith("cannot be read (No such file")
    assert [name for name, look in looks.items() if look.digest is None] == ["cut.jpg", "large.png", "gone.png"]


def test_processes_see_what_one_process_sees(folder):
    assert looked(folder, workers=2) == looked(folder, workers=0)


def test_every_image_is_told_to_the_progress_bar(folder):
    told = []
    looked(folder, workers=0, progress=lambda done, total: told.append((done, total)))
    assert told == [(number, 5) for number in range(1, 6)]


def test_a_process_that_ends_is_a_fault_that_tells_the_remedy(folder, monkeypatch):
    monkeypatch.setattr(looks_module, "_settle_worker", end_process)
    with pytest.raises(DataError, match=r"workers: a process .* was ended by the system.*fewer workers"):
        looked(folder, workers=1)


def end_process():
    os._exit(1)


def test_what_is_seen_becomes_findings_of_the_split(folder):
    data = DataSet(folder, ("a",), {"train": records_of(folder), "val": records_of(folder, ("turned.jpg",))})
    looks = {str(folder / name): look for name, look in looked(folder, workers=0).items()}
    findings = look_findings(data, looks)
    assert {(code, split): tally.count for code, split, tally in findings} == {
        ("image-unreadable", "train"): 2,
        ("image-too-large", "train"): 1,
        ("image-turned", "train"): 1,
        ("image-turned", "val"): 1,
    }
    (turned,) = findings.examples("image-turned", "val")
    assert (turned.file, turned.text) == (str(folder / "turned.jpg"), "orientation 6")


def test_an_image_that_is_listed_twice_is_looked_at_once(folder):
    assert image_paths(records_of(folder, ("good.png", "cut.jpg", "good.png"))) == paths_of(folder)[:3:2]


def test_looking_writes_nothing(folder):
    folder.chmod(0o555)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    looked(folder, workers=0)
    folder.chmod(0o755)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_a_look_that_failed_holds_no_picture(folder):
    path = str(folder / "gone.png")
    assert look_at(path, imgsz=32) == Look(fault=look_at(path, imgsz=32).fault)
