from __future__ import annotations

import os

import pytest

from visiontrain.data.formats import CLASSIFY_FORMATS, read_data_set
from visiontrain.data.formats.labels_csv import LabelsCsvReader
from visiontrain.errors import DataError


def read(source, splits=("train", "val", "test"), **more):
    return read_data_set(source, splits=splits, formats=CLASSIFY_FORMATS, **more)


def labels_of(data, split):
    return {record.path.name: [data.names[label] for label in record.classes] for record in data.splits[split]}


def told(data, code, split=None):
    return [str(finding) for finding in data.findings.examples(code, split)]


@pytest.fixture
def table(tmp_path, write_images):
    """A function that writes a CSV file beside images 1.png to 5.png, and returns its path."""
    write_images(tmp_path / "photos", *(f"{number}.png" for number in range(1, 6)), size=(8, 6))

    def write(text, name="labels.csv", encoding="utf-8"):
        path = tmp_path / "photos" / name
        path.write_bytes(text.encode(encoding))
        return path

    return write


def test_each_row_is_an_image_and_its_label(table):
    data = read(table("path,label\n1.png,dog\n2.png,cat\n./3.png,dog\n"))
    assert data.names == ("cat", "dog")
    assert labels_of(data, "train") == {"1.png": ["dog"], "2.png": ["cat"], "3.png": ["dog"]}
    assert list(data.splits) == ["train"]
    record = data.splits["train"][0]
    assert (record.height, record.width, record.boxes.shape) == (6, 8, (0, 4))
    assert data.messages == ()


@pytest.mark.parametrize("header", ["path,label", "image,labels", "filename,class", " Path , Label ", "label,path"])
def test_columns_go_by_several_names_and_stand_in_any_order(header, table):
    row = "a b,1.png" if header.startswith("label") else "1.png,a b"
    assert labels_of(read(table(f"{header}\n{row}\n")), "train") == {"1.png": ["a b"]}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_line_ends_marks_and_quotes_of_other_programs_are_read(encoding, line_end, table):
    text = line_end.join(["path,label", '"1.png","größe, ""gut"""', "", "2.png, b ", ",", ""])
    assert labels_of(read(table(text, encoding=encoding)), "train") == {"1.png": ['größe, "gut"'], "2.png": ["b"]}


def test_an_image_may_have_several_labels_or_none(table):
    data = read(table("path,label\n1.png,b|a\n2.png,a;c d ;a\n3.png,\n4.png,|\n"))
    assert data.names == ("a", "b", "c d")
    assert labels_of(data, "train") == {"1.png": ["b", "a"], "2.png": ["a", "c d"], "3.png": [], "4.png": []}
    assert [len(record.boxes) for record in data.splits["train"]] == [0] * 4


def test_a_column_tells_the_split(table):
    data = read(table("path,label,split\n1.png,a,train\n2.png,b,Train\n3.png,b,valid\n4.png,a,test\n"))
    assert {split: list(labels_of(data, split).values()) for split in data.splits} == {
        "train": [["a"], ["b"]],
        "val": [["b"]],
        "test": [["a"]],
    }
    assert data.splits["val"][0].classes.tolist() == [1]
    assert list(read(data.source, ("val",)).splits["val"][0].classes) == [1]


def test_a_folder_holds_a_file_for_each_split(table):
    folder = table("path,label\n1.png,a\n2.png,b\n", "train.csv").parent
    table("path,label\n3.png,b\n", "val.csv")
    data = read(folder)
    assert labels_of(data, "val") == {"3.png": ["b"]}
    assert data.splits["val"][0].classes.tolist() == [1]
    assert told(data, "class-missing", "val") == [f"{folder / 'val.csv'} (a)"]


def test_a_yaml_names_files_and_the_order_of_classes(table, tmp_path):
    table("path,label\n1.png,a\n2.png,b\n", "one.csv")
    table("path,label\n3.png,a\n", "two.csv")
    description = tmp_path / "data.yaml"
    description.write_text("train: photos/one.csv\nval: photos/two.csv\nnames: [b, a]\n", encoding="utf-8")
    for source in (description, tmp_path):
        data = read(source)
        assert data.names == ("b", "a")
        assert labels_of(data, "train") == {"1.png": ["a"], "2.png": ["b"]}
        assert labels_of(data, "val") == {"3.png": ["a"]}


def test_an_unknown_class_of_val_is_left_out_and_told_with_its_line(table):
    path = table("path,label,split\n1.png,a,train\n2.png,b,train\n3.png,a|z,val\n4.png,z,val\n5.png,b,val\n")
    data = read(path)
    assert labels_of(data, "val") == {"5.png": ["b"]}
    assert told(data, "class-extra") == [f"{path}:4 (z: 2 images)"]
    assert not data.faults


def test_a_label_that_is_not_among_given_names_stops_training(table, tmp_path):
    path = table("path,label\n1.png,a\n2.png,A\n", "one.csv")
    (tmp_path / "data.yaml").write_text("train: photos/one.csv\nnames: [a]\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"train: 'A': not among the names \(a\)"):
        read(tmp_path)
    assert told(read(tmp_path, is_lenient=True), "class-unknown") == [f"{path}:3 (A: 1 image)"]


def test_missing_images_stop_training_and_are_told_with_their_lines(table):
    path = table("path,label\n1.png,a\n7.png,a\nx/2.png,b\n2.png,b\n")
    with pytest.raises(DataError, match=r"2 of its 4 images do not exist: '7\.png' \(line 3\), 'x/2\.png' \(line 4\)"):
        read(path)
    data = read(path, is_lenient=True)
    assert told(data, "image-missing") == [f"{path}:3 ('7.png')", f"{path}:4 ('x/2.png')"]
    assert len(data.splits["train"]) == 2


@pytest.mark.parametrize("split", ["train", "val"])
def test_where_no_image_exists_that_alone_is_told(split, table):
    others = {"train": "val", "val": "train"}
    path = table(f"path,label,split\n7.png,a,{split}\n1.png,a,{others[split]}\n")
    with pytest.raises(DataError) as caught:
        read(path)
    (fault,) = caught.value.faults
    assert fault.startswith(f"{split}: {path}: 1 of its 1 images do not exist: '7.png' (line 2)")
    assert {code for code, _, _ in read(path, is_lenient=True).findings} == {"image-missing"}


def test_repeated_rows_are_dropped_and_repeated_images_are_told(table):
    path = table("path,label\n1.png,a\n1.png,a\n2.png,a\n2.png,b\n")
    data = read(path)
    assert len(data.splits["train"]) == 3
    assert told(data, "row-twice") == [f"{path}:3 (1.png)"]
    assert data.findings.count("image-listed-twice") == 1


def test_unreadable_images_are_left_out(table, tmp_path):
    (tmp_path / "photos" / "2.png").write_bytes(b"no image")
    data = read(table("path,label\n1.png,a\n2.png,b\n"))
    assert (len(data.splits["train"]), data.num_unreadable("train"), data.names) == (1, 1, ("a", "b"))


def test_columns_without_a_meaning_are_told(table):
    path = table("id,path,label,author\n1,1.png,a,me\n")
    assert read(path).notes == (f"{path}: columns id, author: not used",)


@pytest.fixture
def kept(table, tmp_path):
    """The path of a table whose reading is kept: neither it nor its images were written just now."""
    path = table("path,label\n1.png,a\n2.png,b\n")
    for file in (tmp_path / "photos").iterdir():
        os.utime(file, (1, 1))
    return path


def test_another_order_of_names_is_another_reading(kept, tmp_path):
    for names in (["a", "b"], ["b", "a"]):
        (tmp_path / "data.yaml").write_text(f"train: photos/labels.csv\nnames: {names}\n", encoding="utf-8")
        assert labels_of(read(tmp_path), "train") == {"1.png": ["a"], "2.png": ["b"]}


def test_another_bound_of_pixels_is_another_reading(kept):
    assert len(read(kept, max_pixels=48).splits["train"]) == 2
    with pytest.raises(DataError, match="none of the 2 images can be read"):
        read(kept, max_pixels=47)


def test_a_changed_label_is_read_although_the_images_are_the_same(kept, table):
    assert labels_of(read(kept), "train") == labels_of(read(kept), "train") == {"1.png": ["a"], "2.png": ["b"]}
    path = table("path,label\n1.png,b\n2.png,a\n")
    os.utime(path, (1, 1))  # a time of the file that does not tell
    assert labels_of(read(path), "train") == {"1.png": ["b"], "2.png": ["a"]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty; its first line names the columns"),
        ("1.png,a\n2.png,b\n", "has no column called path or image or filename"),
        ("path;label\n1.png;a\n", "separate values by commas"),
        ("path,image,label\n1.png,2.png,a\n", "has 2 columns called path or image or filename"),
        ("path,score\n1.png,3\n", "has no column called label or labels or class"),
        ("path,label\n1.png,a,b\n", r"labels\.csv:2: holds 3 values for 2 columns"),
        ("path,label\n\n,a\n", r"labels\.csv:3: names no image"),
        ("path,label,split\n1.png,a,dev\n", r"labels\.csv:2: split = 'dev'; it is one of train, val, valid"),
        ("path,label,split\n1.png,a,\n", r"labels\.csv:2: split = ''"),
        ('path,label\n1.png,"a\n', "cannot be read as CSV"),
        ("path,label\n1.png,\n", "holds no class; each image of train needs a label"),
        ("path,label\n", "holds no class"),
        ("filename,width,height,class,xmin,ymin,xmax,ymax\n1.png,8,6,a,1,1,2,2\n", "has a column xmin; boxes are read"),
    ],
)
def test_a_wrong_file_is_told_with_its_line(text, message, table):
    with pytest.raises(DataError, match=message):
        read(table(text))


def test_many_wrong_rows_are_counted(table):
    with pytest.raises(DataError) as caught:
        read(table("path,label\n" + "1.png\n" * 8))
    assert len(caught.value.faults) == 6
    assert "3 more rows" in caught.value.faults[-1]


def test_a_file_in_another_encoding_is_said(table):
    with pytest.raises(DataError, match="save it as UTF-8"):
        read(table("path,label\n1.png,größe\n", encoding="latin-1"))


def test_faults_of_all_files_are_told_at_once(table, tmp_path):
    table("path,label\n1.png\n", "one.csv")
    table("path,label,split\n1.png,a,train\n", "two.csv")
    (tmp_path / "data.yaml").write_text("train: photos/one.csv\nval: photos/two.csv\ntest: photos/no.csv\n", "utf-8")
    with pytest.raises(DataError) as caught:
        read(tmp_path)
    told = "\n".join(caught.value.faults)
    assert len(caught.value.faults) == 3
    for part in ("one.csv:2: holds 1 values", "has a column split, but is all val", "there is no such file"):
        assert part in told


@pytest.mark.parametrize("val", ["[photos/one.csv, photos/one.csv]", "photos"])
def test_each_split_of_a_yaml_is_one_file(val, table, tmp_path):
    table("path,label\n1.png,a\n", "one.csv")
    (tmp_path / "data.yaml").write_text(f"train: photos/one.csv\nval: {val}\n", encoding="utf-8")
    with pytest.raises(DataError, match="give one CSV file for each split"):
        read(tmp_path, data_format="csv")


def test_a_folder_that_holds_no_table_of_labels_is_not_recognized(table):
    folder = table("filename,class,xmin\n1.png,a,3\n", "train.csv").parent
    assert not LabelsCsvReader().recognizes(folder)
    with pytest.raises(DataError, match="has a column xmin"):
        read(folder, data_format="csv")
    (folder / "train.csv").unlink()
    with pytest.raises(DataError, match=r"holds no train\.csv"):
        read(folder, data_format="csv")


def test_signs_as_a_table_are_signs_as_folders(test_data, tmp_path):
    root = test_data / "signs"
    rows = [
        f"{path},{path.parent.name},{path.parent.parent.name}"
        for split in ("train", "val")
        for path in sorted((root / split).glob("*/*.JPG"))
        if path.parent.name in "01"
    ]
    (tmp_path / "signs.csv").write_text("\n".join(["path,label,split", *rows]) + "\n", encoding="utf-8")
    table, folders = read(tmp_path / "signs.csv"), read(root)
    for split, records in table.splits.items():
        expected = [record for record in folders.splits[split] if record.classes[0] < 2]
        assert [(r.path, r.height, r.classes.tolist()) for r in records] == [
            (r.path, r.height, r.classes.tolist()) for r in expected
        ]
