from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from visiontrain.data.formats import read_data_set
from visiontrain.errors import DataError

BOX = (8, 12, 16, 24)


def pixels(record):
    return (record.boxes * ([record.width, record.height] * 2)).tolist()


def test_a_box_is_x_y_width_height_in_pixels(one_json):
    data = read_data_set(one_json([(1, 2, BOX)]))
    (record,) = data.splits["train"]
    assert pixels(record) == [[8, 12, 24, 36]]
    assert record.classes.tolist() == [1]
    assert (record.height, record.width) == (48, 64)
    assert data.names == ("a", "b")
    assert data.messages == ()


def test_ids_may_be_sparse_from_0_negative_or_in_any_order_and_unused_categories_stay(one_json):
    categories = [{"id": 90, "name": "z"}, {"id": 0, "name": "parent"}, {"id": 7, "name": "m"}, {"id": 33, "name": "c"}]
    images = [{"id": 5_000_000_000, "file_name": "2.png"}, {"id": 0, "file_name": "1.png"}]
    root = one_json([(0, 90, BOX), (5_000_000_000, 7, (0, 0, 8, 8))], images=["1.png", "2.png"])
    document = json.loads((root / "labels.json").read_text())
    (root / "labels.json").write_text(json.dumps({**document, "images": images, "categories": categories}))
    data = read_data_set(root)
    assert data.names == ("parent", "m", "c", "z")
    assert [(record.path.name, record.classes.tolist()) for record in data.splits["train"]] == [
        ("2.png", [1]),
        ("1.png", [3]),
    ]


def test_ids_may_be_texts(one_json):
    images = [{"id": "one", "file_name": "1.png"}]
    root = one_json()
    document = json.loads((root / "labels.json").read_text())
    annotations = [{"id": "x", "image_id": "one", "category_id": 2, "bbox": BOX}]
    (root / "labels.json").write_text(json.dumps({**document, "images": images, "annotations": annotations}))
    assert read_data_set(root).splits["train"].classes.tolist() == [1]


def test_an_image_without_boxes_is_background_and_not_worth_a_message(one_json):
    data = read_data_set(one_json([(1, 1, BOX)], images=["1.png", "2.png"]))
    assert [len(record.classes) for record in data.splits["train"]] == [1, 0]
    assert data.messages == ()


def test_a_set_of_background_only_is_read(one_json):
    assert len(read_data_set(one_json([])).splits["train"].classes) == 0


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        ({"iscrowd": 1}, r"train: 1 crowd regions, .* left out: .*labels\.json \(annotation 7 of 1\.png\)"),
        ({"image_id": 99}, r"1 labels of images that are not listed, dropped: .*annotation 7, image 99"),
        ({"image_id": [1]}, "1 labels of images that are not listed, dropped: "),
        (
            {"bbox": [1, 2, 3]},
            r"1 labels without a box of four finite numbers, dropped: .*annotation 7 of 1\.png",
        ),
        ({"bbox": [1, 2, 3, float("nan")]}, "1 labels without a box of four finite numbers, dropped: "),
        ({"bbox": ["1", "2", "3", "4"]}, "1 labels without a box of four finite numbers, dropped: "),
        ({"bbox": [1, 2, True, 4]}, "1 labels without a box of four finite numbers, dropped: "),
        ({"bbox": None}, "1 labels without a box of four finite numbers, dropped: "),
        ({"bbox": [10, 10, 0, 5]}, r"1 boxes without area inside the image, dropped: .*labels\.json \(annotation 7"),
        ({"bbox": [10, 10, -4, 5]}, "1 boxes without area inside the image, dropped: "),
        ({"bbox": [100, 10, 4, 5]}, "1 boxes without area inside the image, dropped: "),
        ({"bbox": list(BOX)}, r"1 rows that repeat another one exactly, dropped: .*annotation 7 of 1\.png"),
    ],
)
def test_a_faulty_annotation_alone_is_dropped_and_named(one_json, annotation, message):
    faulty = {"id": 7, "image_id": 1, "category_id": 1, "bbox": [30, 30, 5, 5], **annotation}
    data = read_data_set(one_json([(1, 1, BOX), faulty]))
    assert len(data.splits["train"].classes) == 1
    (line,) = data.messages
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(line)


def test_what_is_no_annotation_is_dropped(one_json):
    (line,) = read_data_set(one_json([(1, 1, BOX), 3])).messages
    assert line.startswith("train: 1 labels without a box of four finite numbers, dropped: ")
    assert "labels.json (annotation number 1 is not keys with values)" in line


def test_two_outlines_with_the_same_box_are_two_objects(one_json):
    twins = [
        {"id": number, "image_id": 1, "category_id": 1, "bbox": list(BOX), "segmentation": [[number, 1, 2, 3, 4, 5]]}
        for number in range(2)
    ]
    assert len(read_data_set(one_json(twins)).splits["train"].classes) == 2


def test_overflow_is_clipped_and_told_unless_rounding_explains_it(one_json):
    data = read_data_set(one_json([(1, 1, (-5, 0, 20, 20)), (1, 2, (44, 28, 20.05, 20.04)), *[(1, 1, BOX)]]))
    (record,) = data.splits["train"]
    assert record.boxes.min() >= 0
    assert record.boxes.max() <= 1
    (line,) = data.messages
    assert line.startswith("train: 1 boxes reaching beyond the image, clipped: ")
    assert "labels.json (annotation 10 of 1.png)" in line


def test_sizes_are_those_of_the_image_and_a_difference_is_told(one_json):
    data = read_data_set(one_json(images=[{"id": 1, "file_name": "1.png", "width": 640, "height": 480}]))
    (record,) = data.splits["train"]
    assert (record.width, record.height) == (64, 48)
    assert pixels(record) == [[8, 12, 24, 36]]
    (line,) = data.messages
    assert "1.png (width × height 64×48, labels 640×480)" in line


def test_a_size_of_0_tells_nothing(one_json):
    assert read_data_set(one_json(images=[{"id": 1, "file_name": "1.png", "width": 0, "height": 0}])).messages == ()


def test_file_names_may_have_folders_of_either_slash(tmp_path, write_images, write_coco):
    write_images(tmp_path / "set", "images/x/1.png", "images/y/1.png")
    names = ["images/x/1.png", "images\\y\\1.png"]
    write_coco(tmp_path / "set" / "annotations" / "train.json", [(1, 1, BOX)], images=names)
    records = read_data_set(tmp_path / "set").splits["train"]
    assert [record.path.parent.name for record in records] == ["x", "y"]


def test_images_lie_in_the_folder_that_holds_most_of_them(tmp_path, write_images, write_coco):
    names = ["1.png", "2.png", "3.png"]
    write_images(tmp_path / "set", "1.png")  # a copy beside the JSON, which is looked for first
    write_images(tmp_path / "set" / "images", *names)
    data = read_data_set(write_coco(tmp_path / "set" / "train.json", [(1, 1, BOX)], images=names))
    assert [record.path for record in data.splits["train"]] == [tmp_path / "set" / "images" / name for name in names]


def test_a_few_images_tell_their_folder(tmp_path, write_coco):
    with pytest.raises(DataError, match=r"none of 20 images tried of 40 was found, such as '0\.png'"):
        read_data_set(write_coco(tmp_path / "train.json", images=[f"{number}.png" for number in range(40)]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read as JSON"),
        ('{"images": ' + "[" * 100_000, "cannot be read as JSON"),
        ("[]", "holds a list, not the keys images, annotations and categories"),
        ('{"images": [], "categories": {}}', r"annotations is missing; .*\n.*categories is no list"),
    ],
)
def test_what_is_no_coco_file_is_refused(tmp_path, text, message):
    (tmp_path / "1.json").write_text(text)
    with pytest.raises(DataError, match=message):
        read_data_set(tmp_path / "1.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": [{"file_name": "1.png"}]}, r"1 entries of images lack an id .* or a file_name .*: number 0"),
        ({"images": [{"id": 1}]}, "1 entries of images lack"),
        ({"images": [{"id": True, "file_name": "1.png"}]}, "1 entries of images lack"),
        ({"images": [{"id": 1, "file_name": "1.png"}] * 2}, "images have the same id: 1; each needs its own"),
        ({"images": []}, "lists no images"),
        ({"categories": []}, "train has no categories; label at least one object"),
        ({"categories": [{"id": 1, "name": ""}]}, "1 entries of categories lack"),
        ({"categories": ["a"]}, "1 entries of categories lack"),
        ({"categories": [{"id": 1, "name": "a"}, {"id": 1, "name": "b"}]}, "categories have the same id: 1"),
        ({"categories": [{"id": 1, "name": "a"}, {"id": 2, "name": "a"}]}, "categories have the same name: a"),
        (
            {"images": [{"id": 1, "file_name": "x.png"}]},
            r"none of 1 images tried of 1 was found, such as 'x\.png'.*`train_images`",
        ),
        (
            {"images": [{"id": 1, "file_name": "1.png"}, {"id": 2, "file_name": "x.png"}]},
            r"train: 1 of 2 images do not exist: 'x\.png' \(image id 2\); they were looked for below .*set",
        ),
    ],
)
def test_faulty_entries_are_refused_with_what_to_mend(one_json, change, message):
    root = one_json([])
    document = json.loads((root / "labels.json").read_text())
    (root / "labels.json").write_text(json.dumps({**document, **change}))
    with pytest.raises(DataError, match=message):
        read_data_set(root)


@pytest.mark.parametrize(
    ("boxes", "message"),
    [
        (
            [(1, 3, BOX), (1, 0, BOX)],
            r"2 annotations have a category that .*labels\.json does not list: .*annotation 10 of 1\.png, category 3\)",
        ),
        (
            [(1, 1, (0.1, 0.2, 0.3, 0.4))],
            r"all 1 boxes hold fractions, such as .*annotation 10 of 1\.png\) \(0\.1 0\.2 0\.3 0\.4\)",
        ),
        (
            [(1, 1, (20, 20, 60, 40)), (1, 1, (1, 2, 10, 12))],
            r"1 of 2 boxes reach beyond .* two corners, such as .*\(20 20 60 40\)",
        ),
    ],
)
def test_what_is_systematically_wrong_stops_the_reading(one_json, boxes, message):
    with pytest.raises(DataError, match=message):
        read_data_set(one_json(boxes))


def test_boxes_without_area_alone_are_no_sign_of_fractions(one_json):
    (line,) = read_data_set(one_json([(1, 1, (0, 0, 0, 0))])).messages
    assert line.startswith("train: 1 boxes without area inside the image, dropped: ")


def test_boxes_beyond_the_image_that_are_no_corners_either_are_clipped(one_json):
    (line,) = read_data_set(one_json([(1, 1, (20, 20, 60, 40)), (1, 1, (30, 30, 10, 10))])).messages
    assert line.startswith("train: 1 boxes reaching beyond the image, clipped: ")


def test_a_tenth_of_the_boxes_beyond_the_image_makes_no_corners(one_json):
    boxes = [(1, 1, (20, 20, 60, 40)), *[(1, 1, (1, 2, 10 + size, 12)) for size in range(9)]]
    assert read_data_set(one_json(boxes)).findings.count("box-clipped") == 1
    with pytest.raises(DataError, match="1 of 9 boxes reach beyond the image"):
        read_data_set(one_json(boxes[:-1]))


def test_an_unreadable_image_is_left_out_and_named(one_json):
    root = one_json(images=["1.png", "2.png"])
    (root / "2.png").write_bytes(b"no image")
    data = read_data_set(root)
    assert [record.path.name for record in data.splits["train"]] == ["1.png"]
    assert data.messages[0].startswith("train: 1 images that cannot be read, left out: ")
    (root / "1.png").write_bytes(b"no image")
    with pytest.raises(DataError, match="train: none of the 2 images can be read"):
        read_data_set(root)


def test_an_image_listed_twice_is_told(one_json):
    assert read_data_set(one_json(images=["1.png"] * 2)).findings.count("image-listed-twice") == 1


def test_what_makes_the_data_unfit_is_told_instead_of_raised_where_that_is_asked_for(one_json):
    data = read_data_set(one_json([(1, 1, BOX), (1, 3, BOX)]), is_lenient=True)
    assert data.splits["train"].classes.tolist() == [0]
    (fault,) = data.faults
    assert "1 annotations have a category" in fault
    (finding,) = data.findings.examples("class-unknown", "train")
    assert Path(finding.file).name == "labels.json"
    assert Path(finding.image).name == "1.png"


def test_boxes_keep_their_order_and_their_images(one_json):
    rng = np.random.default_rng(0)
    names = [f"{number}.png" for number in range(1, 6)]
    rows = [
        (int(image), int(rng.integers(1, 3)), (image, place % 40, 5, 5))
        for place, image in enumerate(rng.integers(1, 6, 30))
    ]
    rows = [(image, category, tuple(map(int, box))) for image, category, box in rows]
    records = read_data_set(one_json(rows, images=names)).splits["train"]
    for number, record in enumerate(records, 1):
        expected = [(x, y, x + 5, y + 5) for image, _, (x, y, _, _) in rows if image == number]
        np.testing.assert_allclose(pixels(record), expected, atol=1e-4)
        assert record.classes.tolist() == [category - 1 for image, category, _ in rows if image == number]


def annotation_of(**changes):
    return {"id": 7, "image_id": 1, "category_id": 1, "bbox": list(BOX), "iscrowd": 0} | changes


def test_a_crowd_region_is_no_label_and_is_kept_for_scoring(one_json):
    crowd = annotation_of(iscrowd=1, category_id=2, bbox=[32, 24, 64, 12], area=5)
    plain, with_crowd = (read_data_set(one_json([annotation_of(), *more])).splits["train"] for more in ((), (crowd,)))
    np.testing.assert_array_equal(with_crowd.boxes, plain.boxes)
    np.testing.assert_array_equal(with_crowd.classes, plain.classes)
    assert plain[0].scoring is None
    scoring = with_crowd[0].scoring
    assert scoring.crowd_boxes.tolist() == [[0.5, 0.5, 1, 0.75]]  # clipped
    assert scoring.crowd_classes.tolist() == [1]
    assert not scoring.is_difficult.any()


@pytest.mark.parametrize("bbox", [[100, 10, 4, 5], None, [1, 2, 3], [1, 2, float("nan"), 4], [10, 10, 0, 5]])
def test_a_crowd_region_without_a_box_in_the_image_is_left_out_for_good(one_json, bbox):
    data = read_data_set(one_json([annotation_of(), annotation_of(id=8, iscrowd=1, bbox=bbox)]))
    assert data.splits["train"][0].scoring is None
    assert not data.findings.has_errors


def test_the_area_of_an_object_is_what_its_annotation_tells(one_json):
    areas = [100.5, None, "8", -1, float("nan"), 10**400]
    rows = [annotation_of(id=number, bbox=[number, 2, 8, 8], area=area) for number, area in enumerate(areas)]
    data = read_data_set(one_json([*rows, annotation_of(id=6, bbox=[6, 2, 8, 8])]))
    told = data.splits["train"][0].scoring.areas
    assert told[0] == 100.5
    assert len(told) == 7
    assert np.isnan(told[1:]).all()


def test_areas_stay_with_their_boxes_where_others_are_dropped(one_json):
    outside = annotation_of(bbox=[100, 10, 4, 5], area=1)
    data = read_data_set(one_json([outside, annotation_of(area=2), outside, annotation_of(bbox=[0, 0, 4, 4], area=3)]))
    assert data.splits["train"][0].scoring.areas.tolist() == [2, 3]


def test_a_crowd_of_a_category_that_the_given_names_lack_is_left_out(one_json):
    crowds = [annotation_of(iscrowd=1, category_id=category) for category in (1, 2)]
    root = one_json([annotation_of(), *crowds])
    (root / "data.yaml").write_text("train: labels.json\nnames: [a]\n")
    data = read_data_set(root / "data.yaml")
    assert data.splits["train"][0].scoring.crowd_classes.tolist() == [0]
