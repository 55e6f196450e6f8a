"""One fault at a time in image folders and in a CSV file of labels."""

from __future__ import annotations

import shutil

import pytest


def move(source, target):
    def plant(root):
        (root / target).parent.mkdir(parents=True, exist_ok=True)
        (root / source).rename(root / target)

    return plant


IN_FOLDERS = {
    "an image in no class folder": (move("train/a/1.png", "train/1.png"), "train image-unlisted train/1.png"),
    "an image in no class folder of val": (
        lambda root: shutil.copyfile(root / "train/a/1.png", root / "val/1.png"),
        "val image-unlisted val/1.png",
    ),
    "a class that val lacks": (lambda root: shutil.rmtree(root / "val/b"), "val class-missing val"),
    "an empty class folder of val": (
        lambda root: (root / "val/b/11.png").unlink(),
        "val class-missing val",
        "val split-empty val/b",
    ),
    "a class that train lacks": (move("val/b", "val/c"), "val class-extra val/c", "val class-missing val"),
    "a class in capitals": (move("val/b", "val/B"), "val class-extra val/B", "val class-missing val"),
    "an empty class folder of train": (
        lambda root: (root / "train/c").mkdir(),
        "train class-unused .",
        "train split-empty train/c",
        "val class-missing val",
    ),
    "an image of a kind that is not read": (
        move("train/a/1.png", "train/a/1.heic"),
        "train image-suffix train/a/1.heic",
    ),
    "an image that is cut short": (
        lambda root: (root / "train/a/1.png").write_bytes((root / "train/a/1.png").read_bytes()[:900]),
        "train image-unreadable train/a/1.png",
    ),
    "an image that is a text": (
        lambda root: (root / "train/b/7.png").write_text("<html>", encoding="utf-8"),
        "train image-unreadable train/b/7.png",
    ),
    "the same image in two classes": (
        lambda root: shutil.copyfile(root / "train/a/1.png", root / "train/b/8.png"),
        "train image-same train/b/8.png",
    ),
    "an image of train in val": (
        lambda root: shutil.copyfile(root / "train/a/1.png", root / "val/a/x.png"),
        "val image-in-splits val/a/x.png",
    ),
    "no image in val": (
        lambda root: [(root / "val" / name).unlink() for name in ("a/10.png", "b/11.png")],
        *(f"val split-empty {folder}" for folder in ("val", "val/a", "val/b")),
    ),
}


@pytest.mark.parametrize("name", IN_FOLDERS)
def test_a_fault_of_image_folders_is_found_alone_with_its_file(folders, check, name):
    plant, *expected = IN_FOLDERS[name]
    plant(folders)
    verdict = check(folders)
    assert verdict.found == sorted(expected)
    assert not verdict.stops


def test_a_class_that_given_names_lack_stops_training(folders, check):
    (folders / "data.yaml").write_text("train: train\nval: val\nnames: [a, c]\n", encoding="utf-8")
    verdict = check(folders, "task=classify", data="data.yaml")
    assert "train class-unknown train/b" in verdict.found
    assert "val class-unknown val/b" in verdict.found
    assert "not among the names (a, c)" in verdict.stops[0]


def test_images_of_train_without_class_folders_are_refused(folders, check):
    for path in [*(folders / "train").rglob("*.png")]:
        path.rename(folders / "train" / path.name)
    for name in "ab":
        (folders / "train" / name).rmdir()
    verdict = check(folders, "task=classify")
    assert verdict.exit_code == 2
    assert "train: holds images, but no folders; make one for each class" in verdict.refused[0]


def line(*rows):
    """Plants rows at the end of the CSV file, from line 14 on."""

    def plant(root):
        with (root / "labels.csv").open("a", encoding="utf-8") as file:
            file.writelines(f"{row}\n" for row in rows)

    return plant


def rewrite(old, new):
    def plant(root):
        text = (root / "labels.csv").read_text(encoding="utf-8")
        assert old in text
        (root / "labels.csv").write_text(text.replace(old, new), encoding="utf-8")

    return plant


IN_TABLE = {
    "a class of val that train lacks": (
        rewrite("images/11.png,b,val", "images/11.png,c,val"),
        "val class-extra labels.csv:13",
        "val class-missing labels.csv",
    ),
    "a class that val lacks": (rewrite("images/11.png,b,val", ""), "val class-missing labels.csv"),
    "the same row twice": (line("images/1.png,a,train"), "train row-twice labels.csv:14"),
    "an image of two rows": (line("images/1.png,b,train"), "train image-listed-twice images/1.png"),
    "an image of train in val": (line("images/1.png,a,val"), "val image-in-splits images/1.png"),
    "an image that is empty": (
        lambda root: (root / "images/1.png").write_bytes(b""),
        "train image-unreadable images/1.png",
    ),
    "an image that is cut short": (
        lambda root: (root / "images/1.png").write_bytes((root / "images/1.png").read_bytes()[:900]),
        "train image-unreadable images/1.png",
    ),
}


@pytest.mark.parametrize("name", IN_TABLE)
def test_a_fault_of_a_csv_file_is_found_alone_with_its_file_and_line(table, check, name):
    plant, *expected = IN_TABLE[name]
    plant(table)
    verdict = check(table, data="labels.csv")
    assert verdict.found == sorted(expected)
    assert not verdict.stops


def test_missing_images_of_a_csv_file_stop_training_and_are_told_with_their_lines(table, check):
    line("images/gone.png,a,train", "/images/1.png,b,train")(table)
    (table / "images/11.png").unlink()
    verdict = check(table, data="labels.csv")
    assert verdict.found == [
        "train image-missing labels.csv:14",
        "train image-missing labels.csv:15",
        "val class-missing labels.csv",
        "val image-missing labels.csv:13",
    ]
    assert len(verdict.stops) == 2


WRONG_TABLES = {
    "images/12.png,a": r"labels\.csv:14: holds 2 values for 3 columns",
    "images/1,5.png,a,train": r"labels\.csv:14: holds 4 values for 3 columns; put .* in double quotes",
    ",a,train": r"labels\.csv:14: names no image",
    "images/12.png,a,training": r"labels\.csv:14: split = 'training'; it is one of train, val",
    'images/12.png,"a,train': r"labels\.csv: cannot be read as CSV",
}


@pytest.mark.parametrize("row", WRONG_TABLES)
def test_a_row_that_says_nothing_ends_the_check_with_its_line(table, check, row):
    line(row)(table)
    verdict = check(table, data="labels.csv")
    assert verdict.exit_code == 2
    (fault,) = verdict.refused
    with pytest.raises(AssertionError, match=WRONG_TABLES[row]):
        raise AssertionError(fault)


@pytest.mark.parametrize("header", ["file,label,split", "path,name,split", "path;label;split", "path,image,label"])
def test_a_header_without_the_columns_ends_the_check(table, check, header):
    rewrite("path,label,split", header)(table)
    verdict = check(table, data="labels.csv")
    assert verdict.exit_code == 2
    assert verdict.refused[0].startswith(f"{table / 'labels.csv'}: its first line, {header!r}, has ")


@pytest.mark.parametrize(
    "plant",
    [
        lambda root: None,
        line("images/12.png,,train"),
        line("images/12.png,a|b,train"),
        line('"images/12.png","a",TRAIN', ""),
        lambda root: (root / "labels.csv").write_bytes(b"\xef\xbb\xbf" + (root / "labels.csv").read_bytes()),
    ],
)
def test_where_nothing_is_wrong_with_a_csv_file_nothing_is_found(table, check, plant):
    shutil.move(table / "images/4.png", table / "images/12.png")
    rewrite("images/4.png,a,train\n", "")(table)
    plant(table)
    assert check(table, data="labels.csv").found == []


@pytest.mark.parametrize(
    "plant",
    [
        lambda root: None,
        move("train/a/1.png", "train/a/deep/er/1.png"),
        move("train/a/1.png", "train/a/1.PNG"),
        move("val", "validation"),
        lambda root: (root / "train/.DS_Store").touch(),
        lambda root: (root / "train/a/notes.txt").touch(),
    ],
)
def test_where_nothing_is_wrong_with_image_folders_nothing_is_found(folders, check, plant):
    plant(folders)
    verdict = check(folders)
    assert (verdict.exit_code, verdict.found) == (0, [])
