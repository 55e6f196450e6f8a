"""A validation split that is taken from train, where the data set has none."""

from __future__ import annotations

import pytest

from visiontrain.config.load import load_config
from visiontrain.run.prepare import read_data, task_of
from visiontrain.run.val import val_run

RANKING = "metrics/mAP50-95(B)"


def paths_of(records):
    return {record.path.name for record in records}


@pytest.fixture
def read(tiny_yolo):
    def run(*, splits=("train",), **keys):
        config = load_config("train", python={"data": str(tiny_yolo(20, splits=splits)), **keys})
        return read_data(config, task_of(config), ("train", "val"))

    return run


def test_a_part_of_train_becomes_val_by_the_seed_and_that_is_said(read):
    data = read(val_fraction=0.2)
    train, val = (paths_of(data.splits[split]) for split in ("train", "val"))
    assert (len(train), len(val)) == (16, 4)
    assert not train & val
    assert data.messages[-1] == "val: 4 of train's images, split off by val_fraction = 0.2 and seed = 0; 16 are left"
    assert paths_of(read(val_fraction=0.2).splits["val"]) == val
    assert paths_of(read(val_fraction=0.2, seed=1).splits["val"]) != val


def test_a_val_split_of_the_data_set_stays_what_it_is(read):
    data = read(splits=("train", "val"), val_fraction=0.2)
    assert (len(data.splits["train"]), len(data.splits["val"])) == (20, 20)
    assert "nothing is split off" in data.messages[-1]


def test_without_the_key_there_is_no_val(read):
    assert set(read().splits) == {"train"}


@pytest.mark.slow
def test_val_scores_the_weights_on_the_images_that_they_were_validated_on(run_training, tiny_yolo, tmp_path):
    result = run_training(data=str(tiny_yolo(10, splits=("train",))), val_fraction=0.3, seed=3)
    scored = val_run(load_config("val", python={"model": str(result.best), "save_dir": str(tmp_path / "val")}))
    assert float(scored.metrics[RANKING]) == result.metrics[RANKING]
    assert "3 of train's images" in (result.save_dir / "train.log").read_text(encoding="utf-8")
