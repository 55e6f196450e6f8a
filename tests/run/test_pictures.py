"""Pictures of what a run trains on."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from visiontrain.config.load import load_config
from visiontrain.data.dataset import TrainDataset
from visiontrain.data.formats import read_data_set
from visiontrain.data.multi_scale import AtWindowSize, WindowSizes
from visiontrain.data.sampler import Sampler
from visiontrain.run import pictures
from visiontrain.run.prepare import task_of


@pytest.fixture
def drawn(monkeypatch, tmp_path, tiny_yolo):
    """A function that draws the first samples of some small images; returns the dataset and the batches drawn."""

    def run(num_images, *, sizes=None, is_readable=True):
        data = read_data_set(tiny_yolo(num_images))
        config = load_config("train", python={"data": str(data.source), "imgsz": 64})
        task, records = task_of(config), data.splits["train"]
        for record in () if is_readable else records:
            record.path.write_bytes(b"gone bad")
        transform = task.train_transform(config)
        dataset = TrainDataset(
            records,
            transform if sizes is None else AtWindowSize(transform, task.stored_size),
            sampler=Sampler(num_images, seed=config.seed, sizes=sizes),
            imgsz=64,
        )
        batches = {}
        monkeypatch.setattr(
            pictures, "draw_targets", lambda task, batch, names, path: batches.update({path.name: batch})
        )
        session = SimpleNamespace(task=task, config=config, data=data, train=records)
        pictures.draw_train_batches(session, dataset, tmp_path)
        return dataset, batches

    return run


@pytest.mark.parametrize("sizes", [None, WindowSizes(64, 32, seed=0)])
def test_the_first_images_of_the_run_are_drawn_at_one_size_whatever_those_of_their_windows(drawn, sizes):
    dataset, batches = drawn(37, sizes=sizes)
    assert list(batches) == ["train_batch0.jpg", "train_batch1.jpg"]
    np.testing.assert_array_equal(sum((batch.indices for batch in batches.values()), ()), dataset.sampler.order(0)[:32])
    sample = dataset[dataset.sampler.key(16, size=64)]
    np.testing.assert_array_equal(batches["train_batch1.jpg"].images[0].permute(1, 2, 0), sample.image)
    assert {batch.images.shape for batch in batches.values()} == {(16, 3, 64, 64)}


def test_a_set_smaller_than_a_picture_is_drawn_once(drawn):
    _, batches = drawn(3)
    assert [len(batch) for batch in batches.values()] == [3]


def test_a_picture_of_which_nothing_can_be_read_is_not_drawn(drawn):
    assert drawn(2, is_readable=False)[1] == {}
