"""One fault at a time in a data set of the YOLO form: its rows, its label files, its lists and its YAML."""

from __future__ import annotations

import shutil

import pytest

LABEL = "labels/train/1.txt"
GOOD = "0 0.375 0.416667 0.5 0.5"


def row(*lines, file=LABEL):
    """Plants rows behind the two of a label file."""

    def plant(root):
        with (root / file).open("a", encoding="utf-8") as text:
            text.writelines(f"{line}\n" for line in lines)

    return plant


def text(file, content):
    """Plants a file."""

    def plant(root):
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_bytes(content.encode() if isinstance(content, str) else content)

    return plant


def rows_everywhere(content):
    def plant(root):
        for path in (root / "labels").rglob("*.txt"):
            path.write_text(content, encoding="utf-8")

    return plant


def without(*files):
    def plant(root):
        for file in files:
            shutil.rmtree(root / file) if (root / file).is_dir() else (root / file).unlink()

    return plant


def bare_folder(root):
    (root / "images/train/more").mkdir()
    (root / "images/train/1.png").rename(root / "images/train/more/1.png")
    (root / "images/train/2.png").rename(root / "images/train/more/2.png")
    without("labels/train/1.txt", "labels/train/2.txt")(root)


def listed(*lines, content=None):
    """Plants a list file in place of the folder of train."""

    def plant(root):
        images = "".join(f"images/train/{number}.png\n" for number in range(5))
        text("train.txt", images + "".join(f"{line}\n" for line in lines) if content is None else content)(root)
        text("data.yaml", "train: train.txt\nval: images/val\nnames: [a, b]\n")(root)

    return plant


DROPPED_ROWS = {
    "0 a b c d": "row-not-numbers",
    "a .5 .5 .2 .2": "row-not-numbers",
    "0,.5,.5,.2,.2": "row-not-numbers",
    "0 0,5 0,5 0,2 0,2": "row-not-numbers",
    "0 .5 .5 .2": "row-wrong-length",
    "0": "row-wrong-length",
    "0 .1 .1 .3 .1 .3 .3 .2": "row-wrong-length",
    "0 nan .5 .2 .2": "row-not-finite",
    "0 .5 .5 inf .2": "row-not-finite",
    "0 .5 -1e999 .2 .2": "row-not-finite",
    "nan .5 .5 .2 .2": "row-not-finite",
    "0 .5 .5 0 .2": "box-without-area",
    "0 .5 .5 .2 0": "box-without-area",
    "0 .5 .5 -.2 .2": "box-without-area",
    "0 1.5 .5 .2 .2": "box-without-area",
    "0 .1 .1 .2 .2 .3 .3 .1 .1": None,
    "0 .1 .1 .2 .1 .3 .1": "box-without-area",
    "0 32 24 20 20": "box-outside",
    "0 .5 .5 200 .2": "box-outside",
    "0 .95 .5 .4 .4": "box-clipped",
    "0 -.01 .5 .5 .5": "box-clipped",
    "0 1.02 .5 .5 .5": "box-clipped",
    "0 .5 1.1 .3 .6": "box-clipped",
    "0 -.1 .1 .4 .1 .4 .9 -.1 .9": "box-clipped",
    GOOD: "row-twice",
    "0 3.75e-1 .416667 .50 5e-1": "row-twice",
}
"""A row and its code, at most five of each; None: it is right."""


def test_each_of_many_bad_rows_is_found_with_its_file_and_line_and_no_other(yolo, check):
    expected = []
    for number, (line, code) in enumerate(DROPPED_ROWS.items()):
        file = f"labels/train/{number % 5}.txt"
        row(line, file=file)(yolo)
        expected += [f"train {code} {file}:{3 + number // 5}"] if code else []
    verdict = check(yolo)
    assert verdict.found == sorted(expected)
    assert not verdict.stops


def test_lines_are_counted_as_editors_count_them(yolo, check):
    text(LABEL, "0 .4 .4 .4 .4\f\r\n1 .5 .5 .4 .4\u2028\r\n\x1c\r\n0 a b c d\r\n")(yolo)
    assert check(yolo).found == [f"train row-not-numbers {LABEL}:4"]


@pytest.mark.parametrize("line", ["0 a b c d", "0 .5 .5 .2", "0 nan .5 .2 .2", "0 .5 .5 0 .2", "0 32 24 20 20", GOOD])
def test_a_bad_row_alone_is_found_as_well(yolo, check, line):
    row(line)(yolo)
    assert check(yolo).found == [f"train {DROPPED_ROWS[line]} {LABEL}:3"]


def test_of_a_fault_that_is_everywhere_the_first_places_are_shown_and_all_are_counted(yolo, check):
    for number in range(5):
        row("0 .5 .5 .2", "0 .5 .5", file=f"labels/train/{number}.txt")(yolo)
    assert check(yolo).found == [
        f"train row-wrong-length labels/train/{number}.txt:{line} ×10"
        for number, line in ((0, 3), (0, 4), (1, 3), (1, 4), (2, 3))
    ]


UNFIT = {
    "a class that the names lack": (row("2 .5 .5 .2 .2"), "train class-unknown labels/train/1.txt:3"),
    "a class below 0": (row("-1 .5 .5 .2 .2"), "train class-unknown labels/train/1.txt:3"),
    "a class between two": (row("1.5 .5 .5 .2 .2"), "train class-unknown labels/train/1.txt:3"),
    "a class of another split": (row("7 .5 .5 .2 .2", file="labels/val/5.txt"), "val class-unknown labels/val/5.txt:3"),
    "classes from one": (
        rows_everywhere("1 .4 .4 .4 .4\n2 .6 .6 .4 .4\n"),
        *(f"train class-from-one labels/train/{number}.txt:2" for number in range(5)),
        *(f"val class-from-one labels/val/{number}.txt:2" for number in (5, 6)),
    ),
    "boxes in pixels": (
        rows_everywhere("0 30 20 20 20\n1 40 20 20 20\n"),
        *(f"train box-in-pixels labels/train/{number}.txt:{line} ×10" for number in (0, 1) for line in (1, 2)),
        "train box-in-pixels labels/train/2.txt:1 ×10",
        *(f"val box-in-pixels labels/val/{number}.txt:{line}" for number in (5, 6) for line in (1, 2)),
    ),
    "a label file in Latin-1": (
        text(LABEL, "0 .5 .5 .2 .2 # größer".encode("latin-1")),
        "train label-unreadable labels/train/1.txt",
    ),
    "a label file in UTF-16": (text(LABEL, GOOD.encode("utf-16")), "train label-unreadable labels/train/1.txt"),
    "no label file at all": (without("labels/train"), "train label-missing-all images/train/0.png ×5"),
    "labels in a folder of another name": (
        lambda root: (root / "labels").rename(root / "annotations"),
        "train label-missing-all images/train/0.png ×5",
        "val label-missing-folder images/val",
    ),
    "lines of a list that lead nowhere": (
        listed("", "images/train/gone.png", "images\\train\\1.png", "/home/me/set/images/1.png"),
        "train image-missing train.txt:7",
        "train image-missing train.txt:8",
        "train image-missing train.txt:9",
    ),
}
"""What is planted, and what is found; training refuses the set."""


@pytest.mark.parametrize("name", UNFIT)
def test_what_makes_a_set_unfit_is_found_with_its_file_and_line_and_stops_training(yolo, check, name):
    plant, *expected = UNFIT[name]
    plant(yolo)
    verdict = check(yolo)
    assert verdict.found == sorted(expected)
    assert verdict.stops


TOLD = {
    "a label file without an image": (
        text("labels/train/lost.txt", GOOD),
        "train label-without-image labels/train/lost.txt",
    ),
    "an image without a label file": (without(LABEL), "train label-missing images/train"),
    "a folder without a label file": (bare_folder, "train label-missing-folder images/train/more"),
    "a folder of val without a label file": (without("labels/val"), "val label-missing-folder images/val"),
    "an empty val": (
        without("images/val/5.png", "images/val/6.png", "labels/val"),
        "val split-empty images/val",
    ),
    "an image that a list has twice": (
        listed("images/train/3.png", "./images/train/3.png"),
        "train image-listed-twice images/train/3.png ×2",
    ),
    "the same row three times": (
        row(GOOD, GOOD),
        "train row-twice labels/train/1.txt:3",
        "train row-twice labels/train/1.txt:4",
    ),
    "a class that train does not use": (
        text("data.yaml", "train: images/train\nval: images/val\nnames: [a, b, c]\n"),
        "train class-unused data.yaml",
    ),
    "a class that val lacks": (
        lambda root: [text(f"labels/val/{number}.txt", GOOD)(root) for number in (5, 6)],
        "val class-missing data.yaml",
    ),
    "a class that is hardly there": (
        lambda root: [
            text(f"labels/train/{number}.txt", "".join(f"0 .5 .5 .4 {300 + box}e-3\n" for box in range(80)))(root)
            for number in range(1, 5)
        ],
        "train class-rare data.yaml",
    ),
    "a box that is too small to see": (row("0 .5 .5 .05 .5"), "train box-tiny images/train/1.png"),
}
"""What is planted, and what is found; training uses the set."""


@pytest.mark.parametrize("name", TOLD)
def test_what_is_odd_is_told_and_does_not_stop_training(yolo, check, name):
    plant, *expected = TOLD[name]
    plant(yolo)
    verdict = check(yolo, data="data.yaml")
    assert verdict.found == sorted(expected)
    assert not verdict.stops
    assert verdict.exit_code == 0


YAML = "train: images/train\nval: images/val\n"
WRONG_YAML = {
    "path: set\ntrain: images/train\nval: images/val\nnames: [a, b]": "path = 'set': there is no folder .*set/set",
    "path: /home/me/set\ntrain: images/train\nnames: [a, b]": "path = '/home/me/set': there is no folder /home/me/set",
    "path: ${SET_THAT_IS_NOWHERE}\ntrain: images/train\nnames: [a, b]": "names an environment variable that is not set",
    "path: [.]\ntrain: images/train\nnames: [a, b]": r"path = \['\.'\] is not a text",
    YAML + "nc: 3\nnames: [a, b]": "nc = 3, but names has 2 entries",
    YAML + "nc: true\nnames: [a, b]": "nc = True is not a positive integer",
    YAML + "nc: 2.0\nnames: [a, b]": "nc = 2.0 is not a positive integer",
    YAML: "names = None; it should be a list of class names",
    YAML + "names: a b": "names = 'a b'; it should be a list of class names",
    YAML + "names: [a, no]": "names holds False, which YAML does not read as a text; put the name in quotes",
    YAML + "names: [a, null]": "names holds None, which YAML does not read as a text",
    YAML + "names: [a, b, a]": "names holds 'a' more than once",
    YAML + "names: {0: a, 2: b}": r"names has the keys \[0, 2\]; they should run from 0 to 1 without gaps",
    YAML + "names: {1: a, 2: b}": r"names has the keys \[1, 2\]; they should run from 0",
    YAML + "names: {a: 0, b: 1}": r"names has the keys \['a', 'b'\]; they should be 0, 1, 2",
    YAML + "names: [a, b": "cannot be read as YAML",
    "\t" + YAML + "names: [a, b]": "cannot be read as YAML",
    "- images/train": "holds list, not keys with values",
    "": "holds NoneType, not keys with values",
    "names: [a, b]": "names no images for train",
}


@pytest.mark.parametrize("content", WRONG_YAML)
def test_a_yaml_that_cannot_be_used_ends_the_check_with_its_file_and_what_to_mend(yolo, check, content):
    (yolo / "data.yaml").write_text(content, encoding="utf-8")
    verdict = check(yolo)
    assert verdict.exit_code == 2
    (fault,) = verdict.refused
    assert fault.startswith(f"{yolo / 'data.yaml'}: ")
    with pytest.raises(AssertionError, match=WRONG_YAML[content]):
        raise AssertionError(fault)


WRONG_SPLITS = {
    "train: images/train'": "train = \"images/train'\": there is no .*images/train'; .*holds train/, val/",
    "train: set/images/train": "there is no .*set/set/images/train; .*set holds data.yaml, images/, labels/",
    "train: [images/train, images/more]": "train = 'images/more': there is no .*holds train/, val/",
    "train: [images/train, 3]": "train = 3; it should be a folder",
    "train: images/train/0.png": r"train = 'images/train/0\.png': .* is a file; it should be a folder or a \.txt",
    "train: true": "train = True; it should be a folder",
}


@pytest.mark.parametrize("line", WRONG_SPLITS)
def test_a_split_that_leads_nowhere_does_not_hide_the_other_one(yolo, check, line):
    (yolo / "data.yaml").write_text(f"{line}\nval: images/val\nnames: [a, b]\n", encoding="utf-8")
    row("0 a b c d", file="labels/val/5.txt")(yolo)
    verdict = check(yolo)
    assert verdict.found == ["val row-not-numbers labels/val/5.txt:3"]
    (fault,) = verdict.stops
    assert fault.startswith(f"{yolo / 'data.yaml'}: ")
    with pytest.raises(AssertionError, match=WRONG_SPLITS[line]):
        raise AssertionError(fault)


def test_an_empty_folder_of_train_is_a_fault_unless_there_is_another_one(yolo, check):
    (yolo / "images/more").mkdir()
    (yolo / "data.yaml").write_text("train: images/more\nval: images/val\nnames: [a, b]\n", encoding="utf-8")
    verdict = check(yolo)
    assert verdict.found == ["train split-empty images/more"]
    assert verdict.stops == (f"{yolo / 'data.yaml'}: train = 'images/more': holds no images; name a folder that does",)
    (yolo / "data.yaml").write_text("train: [images/train, images/more]\nnames: [a, b]\n", encoding="utf-8")
    verdict = check(yolo)
    assert verdict.found == ["train split-empty images/more"]
    assert not verdict.stops


def test_two_names_of_one_split_are_a_fault(yolo, check):
    (yolo / "data.yaml").write_text(YAML + "valid: images/val\nnames: [a, b]\n", encoding="utf-8")
    assert check(yolo).stops == (f"{yolo / 'data.yaml'}: val and valid mean the same split; keep one of them",)


def test_a_list_that_is_no_text_is_named(yolo, check):
    listed(content="images/train/größe.png\n".encode("latin-1"))(yolo)
    verdict = check(yolo)
    assert verdict.exit_code == 3
    assert "train.txt cannot be read" in verdict.stops[0]


def test_labels_that_changed_by_a_byte_or_names_that_did_are_checked_anew(yolo, check):
    assert check(yolo).found == []
    row("0 .5 .5 .3 .3")(yolo)
    assert check(yolo).found == []
    (yolo / LABEL).write_text((yolo / LABEL).read_text().replace("0 .5 .5 .3 .3", "7 .5 .5 .3 .3"), encoding="utf-8")
    assert check(yolo).found == [f"train class-unknown {LABEL}:3"]
    (yolo / LABEL).write_text(GOOD, encoding="utf-8")
    (yolo / "data.yaml").write_text(YAML + "names: [a]\n", encoding="utf-8")
    assert [line.split(":")[0] for line in check(yolo).found if line.startswith("val")] == [
        "val class-unknown labels/val/5.txt",
        "val class-unknown labels/val/6.txt",
    ]


HARMLESS = {
    "the set as it is": lambda root: None,
    "a sixth column": row("0 .5 .5 .3 .3 .9"),
    "a polygon": row("0 .2 .2 .6 .2 .6 .7 .2 .7"),
    "two polygons of one hull": row("0 .2 .2 .6 .2 .6 .7 .2 .7", "0 .2 .2 .6 .7 .6 .2 .2 .7 .3 .3"),
    "one box of two classes": row("0 .5 .5 .3 .3", "1 .5 .5 .3 .3"),
    "a class written as a fraction": row("1.0 .5 .5 .3 .3", "1e0 .4 .5 .3 .3"),
    "a box that reaches out by rounding": row("0 .8501 .5 .3 .3"),
    "empty lines, tabs and ends of line of another system": text(LABEL, "\r\n0\t.5 .5  .3 .3\r\n\r\n1 .4 .5 .3 .3\r\n"),
    "a byte order mark": text(LABEL, "\ufeff0 .5 .5 .3 .3"),
    "an image of background": text(LABEL, ""),
    "lists of class names beside the labels": text("labels/train/classes.txt", "a\nb\n"),
    "files that systems leave": lambda root: [
        text(f"images/train/{name}", "")(root) for name in (".DS_Store", "._1.png", "Thumbs.db")
    ],
    "names as a mapping": text("data.yaml", YAML + "nc: 2\nnames: {1: b, 0: a}\n"),
    "names that are numbers": text("data.yaml", YAML + "names: [2024, 2025]\n"),
    "val left out": text("data.yaml", "train: images/train\nval: false\nnames: [a, b]\n"),
    "val by another name": text("data.yaml", "train: images/train\nvalid: images/val\nnames: [a, b]\n"),
    "a list of images": listed(),
    "a list with empty lines": listed("", "   "),
    "paths with a step back": text("data.yaml", "train: ../images/train\nval: ../images/val\nnames: [a, b]\n"),
    "an unused folder of other images": lambda root: text("extra/9.png", (root / "images/val/5.png").read_bytes())(
        root
    ),
    "letters of other languages": lambda root: [
        (root / f"{kind}/train/1.{end}").rename(root / f"{kind}/train/Blüte (1) – 花.{end}")
        for kind, end in (("images", "png"), ("labels", "txt"))
    ],
    "several dots in a name": lambda root: [
        (root / f"{kind}/train/1.{end}").rename(root / f"{kind}/train/1.rf.0a1.{end}")
        for kind, end in (("images", "png"), ("labels", "txt"))
    ],
    "a suffix in capitals": lambda root: (root / "images/train/1.png").rename(root / "images/train/1.PNG"),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_where_nothing_is_wrong_nothing_is_found(yolo, check, name):
    HARMLESS[name](yolo)
    verdict = check(yolo)
    assert verdict.found == []
    assert (verdict.exit_code, verdict.stops) == (0, ())


def test_a_key_that_is_misspelled_is_told_as_unused(yolo, check):
    (yolo / "data.yaml").write_text("train: images/train\nvaild: images/val\nnames: [a, b]\n", encoding="utf-8")
    verdict = check(yolo)
    assert (verdict.exit_code, verdict.found) == (0, [])
    assert verdict.notes == (
        f"{yolo / 'data.yaml'}: keys vaild: not used; it may have train, val, test, path, names, nc",
    )


def test_labels_beside_images_in_a_folder_called_images_are_all_read(yolo, check):
    for split in ("train", "val"):
        for path in (yolo / "labels" / split).iterdir():
            path.rename(yolo / "images" / split / path.name)
    (yolo / "labels").rename(yolo / "empty")
    row("0 a b c d", file="images/train/1.txt")(yolo)
    assert check(yolo).found == ["train row-not-numbers images/train/1.txt:3"]
