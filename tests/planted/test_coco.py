"""One fault at a time in a data set of the COCO form."""

from __future__ import annotations

import json

import pytest

TRAIN, VAL = "annotations/train.json", "annotations/val.json"


def change(edit, file=TRAIN):
    """Plants what `edit` does to the document of a file."""

    def plant(root):
        document = json.loads((root / file).read_text(encoding="utf-8"))
        edit(document)
        (root / file).write_text(json.dumps(document), encoding="utf-8")

    return plant


def annotation(file=TRAIN, **keys):
    """Plants one more annotation, of image 1 and category 1 unless told otherwise."""
    whole = {"id": 99, "image_id": 1, "category_id": 1, "bbox": [4, 6, 30, 30], "iscrowd": 0, **keys}
    return change(lambda document: document["annotations"].append(whole), file)


def every_box(convert):
    def edit(document):
        for one in document["annotations"]:
            one["bbox"] = convert(*one["bbox"])

    return change(edit)


ANNOTATIONS = {
    "no box": ({"bbox": None}, "row-no-box", ", None"),
    "a box of three numbers": ({"bbox": [1, 2, 30]}, "row-no-box", ", [1, 2, 30]"),
    "a box of texts": ({"bbox": ["1", "2", "30", "30"]}, "row-no-box", ", ['1', '2', '30', '30']"),
    "a box that is not a number": ({"bbox": [1, 2, float("nan"), 30]}, "row-no-box", ", [1, 2, nan, 30]"),
    "a box without end": ({"bbox": [1, 2, float("inf"), 30]}, "row-no-box", ", [1, 2, inf, 30]"),
    "a box with a truth": ({"bbox": [1, 2, True, 30]}, "row-no-box", ", [1, 2, True, 30]"),
    "a box that is one number": ({"bbox": 7}, "row-no-box", ", 7"),
    "a box without width": ({"bbox": [10, 10, 0, 20]}, "box-without-area", ""),
    "a box of negative height": ({"bbox": [10, 30, 20, -20]}, "box-without-area", ""),
    "a box beside the image": ({"bbox": [100, 10, 20, 20]}, "box-without-area", ""),
    "a box that reaches out": ({"bbox": [40, 10, 40, 20]}, "box-clipped", ""),
    "a crowd": ({"iscrowd": 1}, "box-crowd", ""),
    "the same box again": ({"bbox": [8, 8, 32, 24]}, "row-twice", ""),
}
"""What the annotation has, its code, and what is told behind the name of its image."""


@pytest.mark.parametrize("name", ANNOTATIONS)
def test_a_bad_annotation_is_found_alone_with_its_file_and_id(coco, check, name):
    keys, code, told = ANNOTATIONS[name]
    annotation(**keys)(coco)
    verdict = check(coco)
    assert verdict.found == [f"train {code} {TRAIN}: annotation 99 of 1.png{told}"]
    assert not verdict.stops


TOLD = {
    "an annotation of an image that is not listed": (
        annotation(image_id=77),
        f"train row-no-image {TRAIN}: annotation 99, image 77",
    ),
    "an annotation of an image of another split": (
        annotation(image_id=5),
        f"train row-no-image {TRAIN}: annotation 99, image 5",
    ),
    "an annotation of an id written as a text": (
        annotation(image_id="1"),
        f"train row-no-image {TRAIN}: annotation 99, image '1'",
    ),
    "an annotation that is a text": (
        change(lambda document: document["annotations"].append("box")),
        f"train row-no-box {TRAIN}: annotation number 10 is not keys with values",
    ),
    "a size that is not the image's": (
        change(lambda document: document["images"][1].update(width=48, height=64)),
        "train image-size images/train/1.png",
    ),
    "an image that no file lists": (
        lambda root: (root / "images/train/8.png").write_bytes((root / "images/train/1.png").read_bytes()[::-1]),
        "train image-unlisted images/train/8.png",
    ),
    "an image listed under two ids": (
        change(lambda document: document["images"].append({"id": 8, "file_name": "1.png"})),
        "train image-listed-twice images/train/1.png",
    ),
    "a category that train does not use": (
        change(lambda document: document["categories"].append({"id": 3, "name": "c"})),
        "train class-unused .",
    ),
    "a category that val does not use": (
        change(lambda document: [one.update(category_id=1) for one in document["annotations"]], VAL),
        "val class-missing .",
    ),
}


@pytest.mark.parametrize("name", TOLD)
def test_what_is_odd_is_told_and_does_not_stop_training(coco, check, name):
    plant, *expected = TOLD[name]
    plant(coco)
    verdict = check(coco)
    assert verdict.found == expected
    assert not verdict.stops


UNFIT = {
    "an image that does not exist": (
        lambda root: (root / "images/train/1.png").unlink(),
        f"train image-missing {TRAIN}: '1.png' (image id 1)",
    ),
    "a category that is not listed": (
        annotation(category_id=9),
        f"train class-unknown {TRAIN}: annotation 99 of 1.png, category 9",
    ),
    "an annotation without category": (
        annotation(category_id=None),
        f"train class-unknown {TRAIN}: annotation 99 of 1.png, category None",
    ),
    "a category of val that is not listed": (
        annotation(VAL, image_id=6, category_id=0),
        f"val class-unknown {VAL}: annotation 99 of 6.png, category 0",
    ),
    "boxes in fractions": (
        every_box(lambda x, y, width, height: [x / 64, y / 48, width / 64, height / 48]),
        f"train box-in-fractions {TRAIN} ×10: annotation 0 of 0.png",
    ),
    "boxes as corners": (
        every_box(lambda x, y, width, height: [x, y, x + width, y + height]),
        *(f"train box-clipped {TRAIN}: annotation {10 * number + 1} of {number}.png" for number in range(5)),
        f"train box-as-corners {TRAIN} ×5: annotation 1 of 0.png",
    ),
}


@pytest.mark.parametrize("name", UNFIT)
def test_what_makes_a_set_unfit_is_found_and_stops_training(coco, check, name):
    plant, *expected = UNFIT[name]
    plant(coco)
    verdict = check(coco)
    assert verdict.found == sorted(expected)
    assert verdict.stops
    assert verdict.exit_code == 3


WRONG_FILES = {
    "a file that is cut short": (
        lambda root: (root / TRAIN).write_bytes((root / TRAIN).read_bytes()[:-5]),
        "cannot be read as JSON",
    ),
    "an empty file": (lambda root: (root / TRAIN).write_bytes(b""), "cannot be read as JSON"),
    "a list of results": (lambda root: (root / TRAIN).write_bytes(b"[]"), "holds a list, not the keys images"),
    "a file without categories": (change(lambda document: document.pop("categories")), "categories is missing"),
    "two images of one id": (
        change(lambda document: document["images"].append({"id": 1, "file_name": "8.png"})),
        "images have the same id: 1; each needs its own",
    ),
    "two categories of one id": (
        change(lambda document: document["categories"].append({"id": 1, "name": "c"})),
        "categories have the same id: 1; each needs its own",
    ),
    "two categories of one name": (
        change(lambda document: document["categories"].append({"id": 3, "name": "a"})),
        "categories have the same name: a; each needs its own",
    ),
    "an image without a name": (
        change(lambda document: document["images"][2].pop("file_name")),
        "1 entries of images lack an id .* or a file_name .*: number 2",
    ),
    "a category whose id is a fraction": (
        change(lambda document: document["categories"][1].update(id=2.5)),
        "1 entries of categories lack an id .*: number 1",
    ),
    "a file without images": (change(lambda document: document["images"].clear()), "lists no images"),
    "images that lie nowhere": (
        change(lambda document: [one.update(file_name=f"x/{one['file_name']}") for one in document["images"]]),
        "none of 5 images tried of 5 was found, such as 'x/0.png'",
    ),
}


@pytest.mark.parametrize("name", WRONG_FILES)
def test_a_file_that_cannot_be_used_is_named_with_what_to_mend(coco, check, name):
    plant, message = WRONG_FILES[name]
    plant(coco)
    verdict = check(coco)
    assert verdict.exit_code in (2, 3)
    (fault,) = verdict.refused or verdict.stops
    assert fault.startswith(f"{coco / TRAIN}: ")
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(fault)


@pytest.mark.parametrize("name", ["A", "c", "a "])
def test_a_category_of_val_that_train_lacks_ends_the_check_by_its_name(coco, check, name):
    change(lambda document: document["categories"][0].update(name=name), VAL)(coco)
    verdict = check(coco)
    assert verdict.exit_code == 2
    (fault,) = verdict.refused
    assert fault.startswith(f"{coco}: val has 1 categories that train lacks: {name!r}; train has 'a', 'b'; spell them")


def image_names(convert):
    return change(lambda document: [one.update(file_name=convert(one["file_name"])) for one in document["images"]])


HARMLESS = {
    "the set as it is": lambda root: None,
    "ids from 0, with gaps, in any order": change(
        lambda document: [
            [one.update(id=7 * (2 - one["id"])) for one in document["categories"]],
            [one.update(category_id=7 * (2 - one["category_id"])) for one in document["annotations"]],
            document["images"].reverse(),
        ]
    ),
    "other ids in val": change(
        lambda document: [
            [one.update(id=one["id"] + 4) for one in document["categories"]],
            [one.update(category_id=one["category_id"] + 4) for one in document["annotations"]],
        ],
        VAL,
    ),
    "folders of another system": image_names(lambda name: f".\\images\\train\\{name}"),
    "an image without boxes": change(
        lambda document: document.update(annotations=[one for one in document["annotations"] if one["image_id"] != 3])
    ),
    "two outlines with one box": lambda root: [
        annotation(id=number, segmentation=[[number, 6, 34, 6, 34, 36]])(root) for number in (98, 99)
    ],
    "one box of two categories": annotation(category_id=2),
    "a box that reaches out by rounding": annotation(bbox=[32.0, 10.0, 32.04, 20.0]),
    "an annotation without iscrowd and id": change(
        lambda document: document["annotations"].append({"image_id": 1, "category_id": 1, "bbox": [4, 4, 30, 30]})
    ),
    "sizes that are not told": change(lambda document: [one.pop("width") for one in document["images"]]),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_where_nothing_is_wrong_nothing_is_found(coco, check, name):
    HARMLESS[name](coco)
    verdict = check(coco)
    assert verdict.found == []
    assert (verdict.exit_code, verdict.stops) == (0, ())
