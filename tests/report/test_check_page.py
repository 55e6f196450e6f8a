from __future__ import annotations

import base64
import re
from dataclasses import replace

import pytest

from visiontrain.report import check_page as module
from visiontrain.report.check_page import Page, Picture, Place, Section, check_page, write_check_page

HISTOGRAM = {"edges": [0.0, 1.0, 2.0, float("inf")], "counts": [1, 0, 3]}
SPLIT = {
    "images": 4,
    "background": 1,
    "labels": 7,
    "classes": {"a": {"images": 3, "labels": 6}, "b": {"images": 1, "labels": 1}},
    "imbalance": 6.0,
    "labels_per_image": {"mean": 1.75, "most": 3, **HISTOGRAM},
    "image_sizes": [{"width": 64, "height": 48, "images": 4}],
    "different_image_sizes": 1,
    "boxes": {
        "small": 1,
        "medium": 2,
        "large": 4,
        "area": {"edges": [0.0, 0.01, 1.0], "counts": [3, 4]},
        "aspect_ratio": {"edges": [0.0, 0.5, 2.0, float("inf")], "counts": [0, 7, 0]},
    },
}
EVIL = "<script>alert('1')</script>&\""


def section(**changed):
    place = Place("labels/1.txt:3", "0 1 2", [Picture("1.jpg", b"\xff\xd8pixels"), Picture("2.jpg", None)])
    return replace(Section("row-twice", "warning", "train", 9, "rows twice", [place], has_more=True), **changed)


def page(**changed):
    plain = Page(
        source="my/data.yaml",
        verdict="FAILED: 1 error",
        passed=False,
        faults=["train: all rows hold pixels"],
        notes=["val: split off"],
        sections=[section(), section(code="box-outside", severity="error", says="rows outside")],
        splits={"train": SPLIT, "val": {**SPLIT, "boxes": None}},
        imgsz=640,
    )
    return replace(plain, **changed)


def test_the_page_is_well_formed_and_needs_neither_network_nor_script(checked):
    text = check_page(page())
    checker = checked(text)
    assert "script" not in checker.tags
    assert checker.fetched
    assert all(source.startswith("data:image/jpeg;base64,") for source in checker.fetched)
    assert not re.search(r"https?:|@import|url\(", text)


def test_names_and_texts_of_the_user_are_escaped(checked):
    place = Place(EVIL, EVIL, [Picture(EVIL, b"jpeg"), Picture(EVIL, None)])
    split = {**SPLIT, "classes": {EVIL: {"images": 1, "labels": 1}}}
    evil = page(
        source=EVIL,
        verdict=EVIL,
        faults=[EVIL],
        notes=[EVIL],
        sections=[section(split=EVIL, says=EVIL, places=[place])],
        splits={EVIL: split},
    )
    text = check_page(evil)
    assert "<script" not in text
    checked(text)


def test_names_that_are_no_valid_unicode_are_written_as_escapes(tmp_path):
    write_check_page(tmp_path / "check.html", page(source="bl\udcfcte"))
    assert r"<h1>bl\udcfcte</h1>" in (tmp_path / "check.html").read_text(encoding="utf-8")


def test_errors_come_before_warnings_and_both_tell_count_place_and_code():
    text = check_page(page())
    assert text.index("Errors") < text.index("box-outside") < text.index("Warnings") < text.index("row-twice")
    for told in (
        "train: 9 rows twice",
        "labels/1.txt:3",
        "0 1 2",
        "and more",
        "all rows hold pixels",
        "val: split off",
    ):
        assert told in text


def test_pictures_are_in_the_page_and_unreadable_ones_have_a_stand_in():
    text = check_page(page())
    assert base64.b64encode(b"\xff\xd8pixels").decode() in text
    assert text.count("cannot be read") == 2


def test_a_page_without_findings_has_no_empty_chapters():
    text = check_page(page(sections=[], faults=[], notes=[], passed=True))
    assert not re.search("Errors|Warnings|Unfit|Notes", text)
    assert 'class="verdict good"' in text


def test_classes_and_distributions_of_every_split_are_shown():
    text = check_page(page())
    assert text.count("<svg") == 3 + 1  # val has no boxes
    for told in ("1.00%", "100.0%", "64 × 48 (4)", "6 times", ">2+<", ">2:1<", ">1:2<"):
        assert told in text or told.replace("1.00%", "16.7%") in text


def test_the_page_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "check.html"
    write_check_page(path, page())
    before = path.read_text(encoding="utf-8")
    assert before == check_page(page())
    with monkeypatch.context() as patched:
        patched.setattr(module.Path, "replace", interrupt)
        with pytest.raises(KeyboardInterrupt):
            write_check_page(path, page(source="other"))
    assert path.read_text(encoding="utf-8") == before
    assert list(tmp_path.iterdir()) == [path]


def interrupt(*arguments):
    raise KeyboardInterrupt
