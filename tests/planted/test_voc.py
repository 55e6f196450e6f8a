"""One fault at a time in a data set of the Pascal VOC form."""

from __future__ import annotations

import pytest

XML = "Annotations/1.xml"


def replace(old, new, *files):
    """Plants another text in files, in train's image 1 unless told otherwise; of each the first place changes."""

    def plant(root):
        for file in files or (XML,):
            content = (root / file).read_text(encoding="utf-8")
            assert old in content, file
            (root / file).write_text(content.replace(old, new, 1), encoding="utf-8")

    return plant


def everywhere(convert):
    """Plants another text for each side of each box."""

    def plant(root):
        for path in (root / "Annotations").iterdir():
            lines = path.read_text(encoding="utf-8").splitlines()
            path.write_text("\n".join(map(convert, lines)) + "\n", encoding="utf-8")

    return plant


def as_fraction(line):
    for tag in ("xmin", "ymin", "xmax", "ymax"):
        if line.startswith(f"<{tag}>"):
            return f"<{tag}>{int(line[6:-7]) / 64}</{tag}>"
    return line


OBJECT = "<object>\n<name>b</name>"
"""The second one, on line 14."""
SIDES = "<xmin>24</xmin>\n<ymin>16</ymin>\n<xmax>56</xmax>\n<ymax>40</ymax>"
FIRST = "<object>\n<name>a</name>\n<bndbox>\n<xmin>8</xmin>\n<ymin>8</ymin>\n<xmax>40</xmax>\n<ymax>32</ymax>\n"
FIRST += "</bndbox>\n</object>\n"

OBJECTS = {
    "an object without a name": (replace("<name>b</name>", ""), "row-no-name"),
    "an object of an empty name": (replace("<name>b</name>", "<name> </name>"), "row-no-name"),
    "an object without a box": (replace(f"<bndbox>\n{SIDES}\n</bndbox>", ""), "row-no-box"),
    "a box without one side": (replace("<xmax>56</xmax>", ""), "row-no-box"),
    "a box of words": (replace("<xmax>56</xmax>", "<xmax>far</xmax>"), "row-no-box"),
    "a box that is not a number": (replace("<ymin>16</ymin>", "<ymin>nan</ymin>"), "row-no-box"),
    "a box without end": (replace("<ymax>40</ymax>", "<ymax>inf</ymax>"), "row-no-box"),
    "a box without area": (replace("<xmax>56</xmax>", "<xmax>24</xmax>"), "box-without-area"),
    "corners that are exchanged": (replace("<ymax>40</ymax>", "<ymax>10</ymax>"), "box-without-area"),
    "a box that reaches out": (replace("<xmax>56</xmax>", "<xmax>80</xmax>"), "box-clipped"),
    "the same object again": (replace(OBJECT, FIRST + OBJECT), "row-twice"),
}
"""What is planted, always on line 14, and its code."""


@pytest.mark.parametrize("name", OBJECTS)
def test_a_bad_object_is_found_alone_with_its_file_and_line(voc, check, name):
    plant, code = OBJECTS[name]
    plant(voc)
    verdict = check(voc)
    assert verdict.found == [f"train {code} {XML}:14"]
    assert not verdict.stops


def orphan(root):
    (root / "Annotations/8.xml").write_bytes((root / XML).read_bytes())


TOLD = {
    "a size that is not the image's": (
        replace("<width>64</width>", "<width>640</width>"),
        "train image-size JPEGImages/1.png",
    ),
    "an image without XML": (lambda root: (root / XML).unlink(), "train label-missing Annotations"),
    "a name listed twice": (
        lambda root: (root / "ImageSets/Main/train.txt").write_text("0\n1\n2\n3\n4\n1\n", encoding="utf-8"),
        "train image-listed-twice JPEGImages/1.png",
    ),
    "a class that val lacks": (
        replace("<name>b</name>", "<name>a</name>", "Annotations/5.xml", "Annotations/6.xml"),
        "val class-missing .",
    ),
}


@pytest.mark.parametrize("name", TOLD)
def test_what_is_odd_is_told_and_does_not_stop_training(voc, check, name):
    plant, *expected = TOLD[name]
    plant(voc)
    verdict = check(voc)
    assert verdict.found == expected
    assert not verdict.stops
    assert verdict.exit_code == 0


UNFIT = {
    "a file that is cut short": (
        replace("</annotation>", ""),
        f"train label-unreadable {XML}",
    ),
    "an empty file": (lambda root: (root / XML).write_bytes(b""), f"train label-unreadable {XML}"),
    "another kind of XML": (
        lambda root: (root / XML).write_text("<html></html>", encoding="utf-8"),
        f"train label-unreadable {XML}",
    ),
    "an XML file without image": (lambda root: (root / "JPEGImages/1.png").unlink(), f"train image-missing {XML}"),
    "a listed name without image and XML": (
        lambda root: (root / "ImageSets/Main/val.txt").write_text("5\n6\n77\n", encoding="utf-8"),
        "val image-missing ImageSets/Main/val.txt:3",
    ),
    "boxes in fractions": (
        everywhere(as_fraction),
        "train box-in-fractions Annotations/0.xml:5 ×10",
        "val box-in-fractions Annotations/5.xml:5 ×4",
    ),
}


@pytest.mark.parametrize("name", UNFIT)
def test_what_makes_a_set_unfit_is_found_with_its_file_and_line_and_stops_training(voc, check, name):
    plant, *expected = UNFIT[name]
    plant(voc)
    verdict = check(voc)
    assert verdict.found == sorted(expected)
    assert verdict.stops
    assert verdict.exit_code == 3


def test_a_class_of_val_that_train_lacks_ends_the_check_by_its_name(voc, check):
    replace("<name>b</name>", "<name>B</name>", "Annotations/6.xml")(voc)
    verdict = check(voc)
    assert verdict.exit_code == 2
    assert verdict.refused[0].startswith(f"{voc}: val has 1 classes that train lacks: 'B'; train has 'a', 'b'; spell")


HARMLESS = {
    "the set as it is": lambda root: None,
    "a list with suffixes and folders": lambda root: (root / "ImageSets/Main/train.txt").write_text(
        "JPEGImages/0.png\n1.png\n2\n3.xml\n\n4\n", encoding="utf-8"
    ),
    "an image of background": lambda root: (root / XML).write_text("<annotation></annotation>", encoding="utf-8"),
    "an XML file that no list names": orphan,
    "no size": replace("<width>64</width>", "<width>0</width>"),
    "one box of two classes": replace(SIDES, SIDES.replace("24", "8").replace("16", "8").replace("56", "40")),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_where_nothing_is_wrong_nothing_is_found(voc, check, name):
    HARMLESS[name](voc)
    verdict = check(voc)
    assert verdict.found == []
    assert (verdict.exit_code, verdict.stops) == (0, ())
