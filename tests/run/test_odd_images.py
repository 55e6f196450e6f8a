"""Files that loaders get wrong, through training, scoring and prediction. `check` is in test_check.py."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from visiontrain.config.load import load_config
from visiontrain.data.cache import open_image_cache
from visiontrain.data.collate import collate_detection
from visiontrain.data.dataset import EvalDataset, TrainDataset, UnreadableImage
from visiontrain.data.formats import read_data_set
from visiontrain.data.images import read_image
from visiontrain.data.sampler import Sampler
from visiontrain.data.transforms.letterbox import Letterbox
from visiontrain.data.transforms.train import AugmentSettings, TrainTransform
from visiontrain.run.predict import open_images, open_predictor
from visiontrain.sample import Sample, SampleKey

IMGSZ = 64
BOX = (0.25, 0.25, 0.5, 0.5)
"""Of each image: center, width and height."""


@pytest.fixture
def truth(test_data):
    """What is to be expected, by file name."""
    entries = json.loads((test_data / "odd_images" / "expected.json").read_text(encoding="utf-8"))
    return {entry["file"]: entry for entry in entries}


@pytest.fixture
def records(test_data, truth, tmp_path):
    """The odd images as the training split of a data set, with a box in the upper left quarter of each."""
    root = tmp_path / "odd"
    for folder in ("images", "labels"):
        (root / folder).mkdir(parents=True)
    for name in truth:
        shutil.copyfile(test_data / "odd_images" / name, root / "images" / name)
        (root / "labels" / f"{Path(name).stem}.txt").write_text(f"0 {' '.join(map(str, BOX))}\n", encoding="utf-8")
    (root / "data.yaml").write_text("train: images\nnames: [thing]\n", encoding="utf-8")
    data = read_data_set(root)
    left_out = {Path(finding.file).name for finding in data.findings.examples("image-too-large")}
    assert left_out == of_verdict(truth, "refuse")
    return data.splits["train"]


def of_verdict(truth, *verdicts):
    return {name for name, entry in truth.items() if entry["verdict"] in verdicts}


def quarters_of(image):
    height, width = image.shape[0] // 2, image.shape[1] // 2
    parts = (image[:height, :width], image[:height, width:], image[height:, :width], image[height:, width:])
    return np.array([part.reshape(-1, 3).mean(axis=0) for part in parts])


def seen_size(entry):
    width, height = map(int, entry["seen"].split("x"))
    return height, width


def assert_is_as_expected(entry, image):
    if "quarters" in entry:
        np.testing.assert_allclose(quarters_of(image), entry["quarters"], atol=3, err_msg=entry["file"])


@pytest.mark.parametrize("is_cached", [False, True])
def test_training_sees_the_pictures_upright_and_leaves_out_the_damaged_by_name(records, truth, is_cached):
    cache = open_image_cache(records, "ram", imgsz=512, free_memory=10**10, threads=1) if is_cached else None
    transform = TrainTransform(AugmentSettings(imgsz=IMGSZ, mosaic_until_epoch=9), 0)
    dataset = TrainDataset(records, transform, sampler=Sampler(len(records), seed=0), imgsz=512, cache=cache)
    samples = [dataset[SampleKey(epoch=0, place=index, index=index)] for index in range(len(records))]
    batch = collate_detection(samples)
    unreadable = {Path(path).name for path in batch.unreadable}
    left_out = unreadable | (truth.keys() - {record.path.name for record in records})
    assert of_verdict(truth, "corrupt", "refuse") <= left_out <= of_verdict(truth, "corrupt", "refuse", "either")
    assert len(batch) == len(records) - len(unreadable)
    for index, record in enumerate(records):
        if record.path.name not in unreadable:
            entry = truth[record.path.name]
            assert (record.height, record.width) == seen_size(entry)
            assert_is_as_expected(entry, dataset.load(index))


def test_scoring_sees_the_pictures_upright_with_their_boxes_and_names_the_damaged(records, truth):
    dataset = EvalDataset(records, Letterbox(IMGSZ, 32))
    for index, record in enumerate(records):
        entry, sample = truth[record.path.name], dataset[index]
        if isinstance(sample, UnreadableImage):
            assert entry["verdict"] in ("corrupt", "either")
            assert sample.reason.startswith(f"{record.path}: ")
            continue
        assert isinstance(sample, Sample)
        height, width = seen_size(entry)
        assert sample.original_size == (height, width)
        assert_is_as_expected(entry, dataset.load(index))
        corners = np.array([[0, 0, 1], [width / 2, height / 2, 1]]) @ sample.matrix.T  # the box, in the input's pixels
        np.testing.assert_allclose(sample.boxes[0], corners[:, :2].ravel(), atol=1e-3)


@pytest.mark.slow
def test_prediction_sees_the_very_pictures_and_tells_which_it_left_out(test_data, truth, run_training):
    trained = run_training(epochs=1, val=False)
    folder = test_data / "odd_images"
    config = load_config("predict", python={"model": str(trained.last), "batch": 4})
    source = open_images(config, str(folder))
    results = {Path(one.path).name: one for one in open_predictor(config)(source)}
    left_out = truth.keys() - results.keys()
    assert of_verdict(truth, "corrupt", "refuse") <= left_out <= of_verdict(truth, "corrupt", "refuse", "either")
    assert len(source.messages) == len(left_out)
    for name in left_out:
        (message,) = (message for message in source.messages if message.startswith(f"{folder / name}: "))
        assert ("too large" in message) == (truth[name]["verdict"] == "refuse")
    for name, result in results.items():
        assert result.orig_shape == seen_size(truth[name]), name
        np.testing.assert_array_equal(result.orig_img, read_image(folder / name)[..., ::-1])
        assert_is_as_expected(truth[name], result.orig_img[..., ::-1])
