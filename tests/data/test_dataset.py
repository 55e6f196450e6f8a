from __future__ import annotations

import pickle

import numpy as np
import pytest

from visiontrain.data import dataset as dataset_module
from visiontrain.data.cache import open_image_cache
from visiontrain.data.dataset import EvalDataset, ImageStore, TrainDataset, UnreadableImage
from visiontrain.data.formats import read_data_set
from visiontrain.data.sampler import Sampler
from visiontrain.data.transforms.letterbox import Letterbox
from visiontrain.data.transforms.train import AugmentSettings, TrainTransform
from visiontrain.sample import Sample, SampleKey

SETTINGS = AugmentSettings(imgsz=32, mosaic_until_epoch=9)


@pytest.fixture
def records(tiny_yolo):
    return read_data_set(tiny_yolo(6)).splits["train"]


def train_set(records, **options):
    return TrainDataset(
        records, TrainTransform(SETTINGS, 0), sampler=Sampler(len(records), seed=0), imgsz=32, **options
    )


def test_a_loaded_image_is_reduced_to_the_size_of_training_and_read_only(records):
    image = train_set(records).load(0)
    assert image.shape == (32, 32, 3)
    with pytest.raises(ValueError, match="read-only"):
        image[0] = 0


def test_samples_do_not_depend_on_how_many_images_are_kept(records):
    keys = [SampleKey(epoch, index, index) for epoch in range(2) for index in range(6)]
    large, small = train_set(records), train_set(records, store_bytes=1)
    for key in keys:
        np.testing.assert_array_equal(large[key].image, small[key].image)


def test_a_data_set_survives_pickling_without_what_it_has_loaded(records):
    dataset = train_set(records)
    first = dataset[SampleKey(0, 0, 0)]
    data = pickle.dumps(dataset)
    assert len(data) == len(pickle.dumps(train_set(records))) < 10_000
    np.testing.assert_array_equal(pickle.loads(data)[SampleKey(0, 0, 0)].image, first.image)


def test_a_worker_keeps_few_records_and_hands_out_the_right_ones(records, monkeypatch):
    monkeypatch.setattr(dataset_module, "RECENT_RECORDS", 2)
    dataset = train_set(records)
    for index in (0, 1, 1, 2, 5, 0, 3, 1):
        record = dataset.record(index)
        assert record.path == records[index].path
        np.testing.assert_array_equal(record.boxes, records[index].boxes)
        assert len(dataset._recent) <= 2
    assert dataset.record(1) is record


def test_an_image_that_became_unreadable_is_marked_and_spares_its_neighbors(records):
    records[2].path.write_bytes(b"gone bad")
    dataset = train_set(records)
    samples = [dataset[SampleKey(0, index, index)] for index in range(6)]
    assert [type(sample) for sample in samples] == [Sample, Sample, UnreadableImage, Sample, Sample, Sample]
    assert samples[2].path == str(records[2].path)
    assert "damaged" in samples[2].reason
    evaluated = EvalDataset(records, Letterbox(32, 32))
    assert isinstance(evaluated[2], UnreadableImage)
    assert isinstance(evaluated[3], Sample)


def test_evaluation_sees_each_image_whole_with_all_its_boxes(records):
    dataset = EvalDataset(records, Letterbox(96, 32))
    assert len(dataset) == 6
    sample = dataset[4]
    assert sample.image.shape == (96, 96, 3)
    np.testing.assert_allclose(sample.boxes, records[4].boxes * 96, rtol=1e-5)
    assert sample.index == 4


def test_the_store_drops_what_was_not_used_for_longest_and_keeps_the_latest():
    store = ImageStore(200)
    images = [np.zeros(100, np.uint8) for _ in range(3)]
    store.put(0, images[0])
    store.put(1, images[1])
    assert store.get(0) is images[0]
    store.put(2, images[2])
    assert store.get(1) is None
    assert store.get(0) is images[0]
    store.put(3, np.zeros(500, np.uint8))
    assert store.get(3) is not None
    assert store.get(0) is None


def test_a_cached_image_is_not_read_and_one_that_is_not_cached_is_reported_as_without(records, tmp_path):
    records[2].path.write_bytes(b"gone bad")
    plain = train_set(records)
    cache = open_image_cache(records, "disk", imgsz=32, free_memory=None, threads=1, folder=tmp_path / "caches")
    cached = train_set(records, cache=cache)
    expected = [plain[SampleKey(0, index, index)] for index in range(6)]
    for index in (0, 1, 3, 4, 5):
        records[index].path.unlink()
        sample = cached[SampleKey(0, index, index)]
        np.testing.assert_array_equal(sample.image, expected[index].image)
        np.testing.assert_array_equal(sample.boxes, expected[index].boxes)
    assert cached[SampleKey(0, 2, 2)] == expected[2]
    assert isinstance(expected[2], UnreadableImage)


def test_a_cache_of_other_images_is_not_taken(records, tmp_path):
    for length, imgsz in ((5, 32), (6, 64)):
        cache = open_image_cache(records[:length], "ram", imgsz=imgsz, free_memory=None, threads=1)
        with pytest.raises(AssertionError, match="other images"):
            train_set(records, cache=cache)


def test_an_image_above_the_limit_of_pixels_counts_as_unreadable(records, tmp_path):
    for limit, kind in ((64 * 64, Sample), (64 * 64 - 1, UnreadableImage)):
        options = {"imgsz": 32, "free_memory": None, "threads": 1, "folder": tmp_path, "max_pixels": limit}
        cache = open_image_cache(records, "disk", **options)
        assert (cache.get(1) is not None) == (kind is Sample)
        assert isinstance(train_set(records, max_pixels=limit)[SampleKey(0, 1, 1)], kind)
        assert isinstance(train_set(records, max_pixels=limit, cache=cache)[SampleKey(0, 1, 1)], kind)
        assert isinstance(EvalDataset(records, Letterbox(32, 32), max_pixels=limit)[1], kind)
