"""The bundled sample: complete, small, rightly labelled, and what its script draws."""

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
