"""`visiontrain show`: the very sample that training sees."""

from __future__ import annotations

import numpy as np
import pytest

from visiontrain.cli import main
from visiontrain.config.load import load_config
from visiontrain.data.dataset import TrainDataset, UnreadableImage
from visiontrain.data.loader import TrainLoader
from visiontrain.data.sampler import Sampler
from visiontrain.errors import ConfigError, DataError
from visiontrain.plan import plan_run
from visiontrain.run import show as show_module
from visiontrain.run.prepare import read_data, task_of
from visiontrain.run.show import show


@pytest.fixture
def shown(monkeypatch, tmp_path, tiny_yolo):
    """A function that shows a sample of eight small images and returns the batch that was drawn."""
    drawn = []
    draw = show_module.draw_targets

    def keep(task, batch, names, path):
        drawn.append(batch)
        draw(task, batch, names, path)

    monkeypatch.setattr(show_module, "draw_targets", keep)

    def run(**keys):
        settings = {"data": str(tiny_yolo(8)), "imgsz": 64, "epochs": 20, "save_dir": str(tmp_path / "show"), **keys}
        show(load_config("show", python=settings | {"exist_ok": True}))
        return drawn[-1]

    return run


@pytest.mark.parametrize(("epoch", "index"), [(1, 0), (3, 5), (20, 7)])  # the last one without mosaic
def test_it_is_the_image_and_the_boxes_that_training_loads(shown, tiny_yolo, epoch, index):
    batch = shown(epoch=epoch, index=index)
    config = load_config("train", python={"data": str(tiny_yolo(8)), "imgsz": 64, "epochs": 20})
    task = task_of(config)
    records = read_data(config, task, ("train",)).splits["train"]
    dataset = TrainDataset(
        records, task.train_transform(config), sampler=Sampler(len(records), seed=config.seed), imgsz=64
    )
    plan = plan_run(num_images=8, batch=8, nbs=8, epochs=20)
    (trained,) = next(TrainLoader(dataset, plan, task.collate, workers=0).windows(epoch - 1))
    place = trained.indices.index(index)
    assert np.array_equal(batch.images[0], trained.images[place])
    boxes = trained.targets["boxes"][place][trained.targets["classes"][place] >= 0]
    assert np.array_equal(batch.targets["boxes"][0], boxes)


def test_it_says_where_the_sample_comes_from_and_writes_one_picture(shown, capsys, tmp_path):
    shown(epoch=2, index=3)
    assert [path.name for path in (tmp_path / "show").iterdir()] == ["epoch2_index3.jpg"]
    printed = capsys.readouterr().out
    assert "003.png: image 3, place" in printed
    assert "of epoch 2, seed 0" in printed


def test_what_the_run_does_not_have_is_refused_at_once(shown, tmp_path):
    with pytest.raises(ConfigError) as caught:
        shown(epoch=21, index=8)
    assert caught.value.faults == (
        "epoch = 21: the run has 20; type epochs= as for training",
        "index = 8: the training split has 8 images; choose 0 to 7",
    )
    assert not (tmp_path / "show").exists()


def test_an_image_that_cannot_be_read_is_named(shown, monkeypatch, tmp_path):
    def fail(self, key):
        return UnreadableImage("002.png", key.index, "002.png: is damaged; replace the file")

    monkeypatch.setattr(TrainDataset, "__getitem__", fail)
    with pytest.raises(DataError, match=r"002\.png: is damaged"):
        shown(index=2)
    assert not (tmp_path / "show").exists()


def test_the_command_shows_the_bundled_sample(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["show", "epoch=2", "index=17"]) == 0
    assert (tmp_path / "runs" / "detect" / "show" / "epoch2_index17.jpg").is_file()
