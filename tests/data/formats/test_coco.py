from __future__ import annotations

import json

import pytest

from visiontrain.data.formats import read_data_set
from visiontrain.data.formats.coco import CocoReader
from visiontrain.errors import DataError

BOX = (8, 12, 16, 24)


def test_a_published_file_among_its_images_is_read_with_the_parent_category_of_id_0(test_data):
    data = read_data_set(test_data / "chess_coco")
    categories = json.loads((test_data / "chess_coco" / "_annotations.coco.json").read_text())["categories"]
    assert data.names == tuple(category["name"] for category in categories)
    assert len(data.names) == 14
    assert data.names[0] == "pieces"
    assert data.messages == ()
    (records,) = data.splits.values()
    assert len(records) == 10
    assert len(records.classes) == 71
    assert 0 not in records.classes
    assert 1 not in records.classes
    assert sum(len(record.classes) == 0 for record in records) == 1
    assert {(record.width, record.height) for record in records} == {(2048, 1371)}


LAYOUTS = {
    "instances": ("annotations/instances_{}.json", "images/{}", ("train", "val", "test")),
    "years": ("annotations/instances_{}2017.json", "{}2017", ("train", "val")),
    "folders beside": ("annotations/{}.json", "{}", ("train", "val")),
    "capital": ("Annotations/{}.json", "images", ("train", "valid")),
    "exported": ("{}/_annotations.coco.json", "{}", ("train", "valid", "test")),
    "among": ("{}/labels.json", "{}/images", ("train", "val")),
    "flat": ("instances_{}.json", "images/{}", ("train", "val")),
    "root": ("{}.json", ".", ("train", "val", "test")),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_folder_is_read_by_its_customary_layout(tmp_path, write_images, write_coco, layout):
    file, images, splits = LAYOUTS[layout]
    root = tmp_path / "set"
    for number, split in enumerate(splits, 1):
        names = [f"{split}{place}.png" for place in range(number)]
        write_images(root / images.format(split), *names)
        write_coco(root / file.format(split), [(1, 1, BOX)], images=names)
    write_coco(root / "annotations" / "captions_train.json") if layout == "instances" else None
    data = read_data_set(root)
    assert [len(records) for records in data.splits.values()] == list(range(1, len(splits) + 1))
    assert [next(iter(records)).path.name for records in data.splits.values()] == [f"{split}0.png" for split in splits]
    assert set(data.splits) <= {"train", "val", "test"}


def test_a_json_alone_is_the_split_that_its_name_or_folder_tells_else_train(tmp_path, write_images, write_coco):
    for name, split in {
        "labels.json": "train",
        "instances_val2017.json": "val",
        "my-test.json": "test",
        "contest.json": "train",
        "valid/_annotations.coco.json": "val",
        "trainval.json": "train",
    }.items():
        path = tmp_path / name
        write_images(path.parent, "1.png")
        data = read_data_set(write_coco(path, [(1, 1, BOX)]))
        assert set(data.splits) == {split}, name


def test_a_yaml_may_name_the_files_and_the_folders_of_images(tmp_path, write_images, write_coco):
    write_images(tmp_path / "pictures", "p/1.png", "q/2.png", "v/3.png")
    write_coco(tmp_path / "one.json", [(1, 1, BOX)])
    write_coco(tmp_path / "two.json", [(1, 2, BOX)], images=["2.png"])
    write_coco(tmp_path / "three.json", [(1, 2, BOX)], images=["3.png"])
    (tmp_path / "data.yaml").write_text(
        "train: [one.json, two.json]\ntrain_images: [pictures/p, pictures/q]\nvalid: three.json\n"
        "valid_images: pictures/v\ndownload: https://example.com\n"
    )
    for source in (tmp_path, tmp_path / "data.yaml"):
        data = read_data_set(source)
        assert {split: records.classes.tolist() for split, records in data.splits.items()} == {
            "train": [0, 1],
            "val": [1],
        }
        assert data.messages == (
            f"{tmp_path / 'data.yaml'}: `download` is never run; fetch the data yourself where they are missing",
        )


def test_names_of_a_yaml_set_the_order_and_may_leave_out_categories_without_boxes(tmp_path, write_images, write_coco):
    write_images(tmp_path, "1.png")
    write_coco(tmp_path / "one.json", [(1, 2, BOX)], categories=[{"id": 0, "name": "parent"}, {"id": 2, "name": "b"}])
    (tmp_path / "data.yaml").write_text("train: one.json\nnames: [new, b]\n")
    data = read_data_set(tmp_path)
    assert data.names == ("new", "b")
    assert data.splits["train"].classes.tolist() == [1]
    (tmp_path / "data.yaml").write_text("train: one.json\nnames: [new, parent]\n")
    with pytest.raises(DataError, match=r"train has 1 categories that `names` lacks: 'b'; `names` has 'new', 'parent'"):
        read_data_set(tmp_path)


@pytest.fixture
def two_splits(tmp_path, write_images, write_coco):
    """A function that writes train and val with the categories given for val; returns the folder."""

    def write(categories, boxes):
        write_images(tmp_path / "set" / "images", "1.png")
        write_coco(tmp_path / "set" / "annotations" / "train.json", [(1, 1, BOX)])
        write_coco(tmp_path / "set" / "annotations" / "val.json", boxes, categories=categories)
        return tmp_path / "set"

    return write


def test_splits_are_matched_by_the_names_of_train_whatever_their_ids(two_splits):
    root = two_splits([{"id": 9, "name": "a"}, {"id": 4, "name": "b"}], [(1, 4, BOX), (1, 9, (0, 0, 9, 9))])
    data = read_data_set(root)
    assert data.names == ("a", "b")
    assert data.splits["val"].classes.tolist() == [1, 0]
    alone = read_data_set(root, splits=("val",))
    assert alone.names == ("a", "b")
    assert alone.splits["val"].classes.tolist() == [1, 0]


def test_val_may_lack_a_category(two_splits):
    assert read_data_set(two_splits([{"id": 1, "name": "b"}], [(1, 1, BOX)])).splits["val"].classes.tolist() == [1]


def test_a_category_of_val_that_train_lacks_is_refused(two_splits):
    with pytest.raises(DataError, match=r"val has 2 categories that train lacks: 'c', 'd'; train has 'a', 'b'"):
        read_data_set(two_splits([{"id": 1, "name": "c"}, {"id": 2, "name": "d"}, {"id": 3, "name": "a"}], []))


def test_an_image_that_no_split_lists_is_told_once_all_splits_are_read(two_splits, write_images):
    root = two_splits([{"id": 1, "name": "a"}], [(1, 1, BOX)])
    write_images(root / "images", "stray.png")
    for splits, count in ((("train", "val"), 1), (("train",), 0)):
        assert read_data_set(root, splits=splits).findings.count("image-unlisted") == count


def test_faults_of_all_splits_are_told_at_once(two_splits):
    root = two_splits([{"id": 1, "name": "a"}], [(1, 7, BOX)])
    (root / "annotations" / "train.json").write_text("{")
    with pytest.raises(DataError) as caught:
        read_data_set(root)
    assert len(caught.value.faults) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train: gone.json", r"train = 'gone\.json': there is no .*gone\.json; .* holds "),
        ("train: one.json\nval: images", "val = 'images': is no JSON file, as other entries are"),
        ("train: one.json\ntrain_images: gone", r"train_images = 'gone': there is no folder .*gone; it is relative to"),
        ("train: one.json\ntrain_images: [., .]", "it should be one folder, or a list of 1"),
        ("train: one.json\ntrain_images: 3", "it should be one folder"),
        ("train: one.json\nval_images: .", "val_images is given, but no val"),
        ("train: one.json\nnc: 2", "nc = 2 has no effect without names"),
        ("train: one.json\nval: one.json\nvalid: one.json", "val and valid mean the same split"),
    ],
)
def test_a_wrong_yaml_is_refused_with_what_to_mend(tmp_path, write_images, write_coco, text, message):
    write_images(tmp_path, "1.png")
    write_coco(tmp_path / "one.json", [(1, 1, BOX)])
    (tmp_path / "data.yaml").write_text(text)
    with pytest.raises(DataError, match=message):
        read_data_set(tmp_path / "data.yaml")


def test_two_files_of_one_split_are_refused_unless_a_yaml_tells(tmp_path, write_images, write_coco):
    write_images(tmp_path / "images", "1.png")
    for year in (2014, 2017):
        write_coco(tmp_path / "annotations" / f"instances_train{year}.json", [(1, 1, BOX)])
    with pytest.raises(DataError, match=r"instances_train2014\.json and instances_train2017\.json are all of train"):
        read_data_set(tmp_path)


def test_a_split_that_is_not_there_is_refused_with_those_that_are(one_json):
    with pytest.raises(DataError, match="has train, but no val"):
        read_data_set(one_json(), splits=("val",))


def test_a_format_that_was_told_is_not_guessed(one_json, tiny_yolo):
    assert set(read_data_set(one_json(), data_format="coco").splits) == {"train"}
    with pytest.raises(DataError, match="holds no COCO JSON, neither itself nor in annotations/"):
        read_data_set(tiny_yolo(2).parent, data_format="coco")
    with pytest.raises(DataError, match="names no JSON files"):
        read_data_set(tiny_yolo(2), data_format="coco")


def test_other_json_files_are_no_coco(tmp_path):
    (tmp_path / "package.json").write_text('{"name": "x"}')
    assert not CocoReader().recognizes(tmp_path)
    (tmp_path / "data.yaml").write_text("train: images\nnames: [a]\n")
    assert not CocoReader().recognizes(tmp_path)


def test_reading_writes_nothing_into_the_data_set(one_json):
    root = one_json()
    before = {path: path.stat().st_mtime_ns for path in (root, *root.rglob("*"))}
    read_data_set(root)
    assert {path: path.stat().st_mtime_ns for path in (root, *root.rglob("*"))} == before
