"""The bundled samples: complete, small, rightly labelled, and what their script draws."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import cv2
import numpy as np
import pytest
import yaml

from visiontrain.bundled import make_shapes

MOST_BYTES = 4_000_000


@pytest.fixture(scope="module")
def shapes() -> Path:
    return Path(str(files("visiontrain.bundled") / "shapes"))


def read_labels(path: Path) -> np.ndarray:
    """(N, 5): class, cx, cy, w, h."""
    return np.array([line.split() for line in path.read_text("utf-8").splitlines()], np.float64).reshape(-1, 5)


def test_the_description_names_folders_classes_and_suggestions(shapes):
    description = yaml.safe_load((shapes / "data.yaml").read_text("utf-8"))
    assert list(description["names"].values()) == list(make_shapes.NAMES)
    assert description["suggested"]["imgsz"] == make_shapes.SIZE
    assert description["suggested"]["epochs"] > 0
    for split in make_shapes.SPLITS:
        assert (shapes / description["path"] / description[split]).is_dir()


def test_all_of_it_is_under_four_megabytes(shapes):
    assert sum(path.stat().st_size for path in shapes.rglob("*") if path.is_file()) < MOST_BYTES


@pytest.mark.parametrize(("split", "count"), make_shapes.SPLITS.items())
def test_every_image_has_one_to_five_labelled_objects_inside_it(shapes, split, count):
    images = sorted((shapes / "images" / split).iterdir())
    assert len(images) == count
    assert [path.stem for path in images] == sorted(path.stem for path in (shapes / "labels" / split).iterdir())
    for image in images:
        labels = read_labels(shapes / "labels" / split / f"{image.stem}.txt")
        assert 1 <= len(labels) <= make_shapes.MOST_OBJECTS
        assert set(labels[:, 0]) <= set(range(len(make_shapes.NAMES)))
        edges = np.concatenate([labels[:, 1:3] - labels[:, 3:] / 2, labels[:, 1:3] + labels[:, 3:] / 2], axis=1)
        pixels = edges * make_shapes.SIZE
        np.testing.assert_allclose(pixels, np.round(pixels), atol=1e-3)
        assert pixels.min() >= -1e-3
        assert pixels.max() <= make_shapes.SIZE + 1e-3
        assert (pixels[:, 2:] - pixels[:, :2]).min() >= make_shapes.LEAST_SIDE - 1e-3


def test_every_class_is_common_in_both_splits(shapes):
    for split in make_shapes.SPLITS:
        labels = np.concatenate([read_labels(path) for path in (shapes / "labels" / split).iterdir()])
        shares = np.bincount(labels[:, 0].astype(int), minlength=len(make_shapes.NAMES)) / len(labels)
        assert shares.min() > 0.15


def test_the_splits_share_no_picture(shapes):
    contents = [path.read_bytes() for path in (shapes / "images").rglob("*.jpg")]
    assert len(set(contents)) == len(contents)


@pytest.mark.parametrize(("split", "index"), [("train", 0), ("train", 511), ("val", 0), ("val", 77)])
def test_the_script_draws_what_is_bundled(shapes, split, index):
    image, rows = make_shapes.draw_picture(split, index)
    assert (shapes / "labels" / split / f"{index:04d}.txt").read_text("utf-8").splitlines() == rows
    bundled = cv2.imread(str(shapes / "images" / split / f"{index:04d}.jpg"))
    assert bundled.shape == (make_shapes.SIZE, make_shapes.SIZE, 3)
    # JPEG keeps pictures only nearly, and its encoders differ in the last bits.
    assert np.abs(bundled.astype(int) - image).mean() < 8


def test_drawing_twice_writes_the_same_bytes(tmp_path):
    for folder in ("first", "second"):
        make_shapes.draw_data_set(tmp_path / folder, {"train": 3, "val": 2})
    first = sorted(path for path in (tmp_path / "first").rglob("*") if path.is_file())
    assert len(first) == 11
    for path in first:
        assert (tmp_path / "second" / path.relative_to(tmp_path / "first")).read_bytes() == path.read_bytes()


def test_a_box_is_tight_around_what_later_layers_leave_in_sight():
    lower, upper = np.zeros((2, make_shapes.SIZE, make_shapes.SIZE), np.float32)
    lower[10:30, 20:60] = 1
    upper[0:20, 0:128] = 1
    black = np.zeros(3, np.float32)
    layers = [make_shapes.Layer(1, lower, 800.0, black), make_shapes.Layer(None, upper, 2560.0, black)]
    visible, _ = make_shapes._visible_masks(layers)
    assert make_shapes._tight_box(visible) == (20, 20, 60, 30)


@pytest.fixture(scope="module")
def shapes_classify() -> Path:
    return Path(str(files("visiontrain.bundled") / "shapes_classify"))


def test_the_description_of_the_classification_sample_names_folders_and_suggestions(shapes_classify):
    description = yaml.safe_load((shapes_classify / "data.yaml").read_text("utf-8"))
    assert description["suggested"] == {"imgsz": make_shapes.CLASSIFY_SIZE, "epochs": make_shapes.CLASSIFY_EPOCHS}
    for split in make_shapes.CLASSIFY_SPLITS:
        classes = sorted(folder.name for folder in (shapes_classify / description[split]).iterdir())
        assert classes == sorted(make_shapes.NAMES)


@pytest.mark.parametrize(("split", "count"), make_shapes.CLASSIFY_SPLITS.items())
def test_every_class_of_the_classification_sample_has_as_many_pictures(shapes_classify, split, count):
    for name in make_shapes.NAMES:
        images = sorted((shapes_classify / split / name).iterdir())
        assert [image.name for image in images] == [f"{index:04d}.jpg" for index in range(count)]
        assert cv2.imread(str(images[-1])).shape == (make_shapes.CLASSIFY_SIZE, make_shapes.CLASSIFY_SIZE, 3)


def test_the_classification_sample_is_small_and_holds_no_picture_twice(shapes_classify):
    contents = [path.read_bytes() for path in shapes_classify.rglob("*.jpg")]
    assert len(set(contents)) == len(contents)
    assert sum(map(len, contents)) < MOST_BYTES


@pytest.mark.parametrize(("split", "label", "index"), [("train", 0, 0), ("train", 3, 127), ("val", 1, 5)])
def test_the_script_draws_the_bundled_classification_sample(shapes_classify, split, label, index):
    name = make_shapes.NAMES[label]
    bundled = cv2.imread(str(shapes_classify / split / name / f"{index:04d}.jpg"))
    drawn = make_shapes.draw_classify_picture(split, label, index)
    assert np.abs(bundled.astype(int) - drawn).mean() < 8


def test_drawing_the_classification_sample_twice_writes_the_same_bytes(tmp_path, shapes_classify):
    make_shapes.draw_classify_set(tmp_path, {"val": 1})
    written = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file())
    assert len(written) == 1 + len(make_shapes.NAMES)
    assert (tmp_path / "data.yaml").read_bytes() == (shapes_classify / "data.yaml").read_bytes()
    make_shapes.draw_classify_set(tmp_path / "again", {"val": 1})
    for path in written:
        assert (tmp_path / "again" / path).read_bytes() == (tmp_path / path).read_bytes()
