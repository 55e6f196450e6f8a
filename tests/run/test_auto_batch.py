"""batch=auto takes the largest micro-batch that is measured to fit, leaves everything as it was, and is kept."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import yaml

from visiontrain.cli import main
from visiontrain.config.load import load_config
from visiontrain.engine.checkpoint import load_checkpoint
from visiontrain.engine.memory import NEVER_FITS, meter_of
from visiontrain.errors import ConfigError
from visiontrain.run import auto_batch
from visiontrain.run.auto_batch import MEASURED, most_labels
from visiontrain.run.planning import plan_document
from visiontrain.run.session import open_session
from visiontrain.run.train import train_run

MB = 2**20
FIXED, IMAGE = 100 * MB, 50 * MB


class Meter:
    """Tells bytes that grow with the images by a rule of its own, of what it runs or not."""

    def __init__(self):
        self.tried = []
        self.runs = False

    def peak(self, run):
        (images,) = run.args
        self.tried.append(images)
        if self.runs:
            run()
        return FIXED + images * IMAGE


@pytest.fixture
def meter(monkeypatch):
    """The meter in place of the system's."""
    meter = Meter()
    monkeypatch.setattr(auto_batch, "meter_of", lambda device: meter)
    return meter


@pytest.fixture
def free(monkeypatch):
    """A function that sets the free memory, so that training may take so many images' worth and no byte more."""

    def room_for(images, *, window=16 * 3 * 64**2):
        num_bytes = FIXED + images * IMAGE + window
        monkeypatch.setattr(auto_batch, "free_memory", lambda device: int(num_bytes / 0.6) + 2)

    return room_for


@pytest.fixture
def data(tiny_yolo):
    """20 images."""
    return str(tiny_yolo(20))


@pytest.fixture
def opened(small_network, data):
    """A function that opens the session of a small network on them, with windows of 16 images."""

    def open_it(**keys):
        settings = {
            "model": str(small_network),
            "data": data,
            "imgsz": 64,
            "epochs": 2,
            "batch": "auto",
            "nbs": 16,
            **keys,
        }
        return open_session(load_config("plan", python=settings))

    return open_it


@pytest.mark.parametrize(("images", "batch"), [(200, 16), (16, 16), (15, 8), (3, 2), (1, 1)])
def test_it_is_the_largest_that_divides_the_window_and_fits(opened, meter, free, images, batch):
    free(images)
    keys = {"norm": "group"} if batch == 1 else {}
    session = opened(**keys)
    assert session.config.batch == batch
    assert session.recipe.plan.batch == batch
    assert session.recipe.plan.full_window == 16
    assert session.config.origin("batch") == "decided"
    assert meter.tried == list(MEASURED)


def test_minus_one_means_the_same(opened, meter, free):
    free(9)
    assert opened(batch=-1).config.batch == 8


def test_no_more_images_than_there_are_and_no_more_than_nbs(opened, meter, free):
    free(1000)
    assert opened(nbs=64).config.batch == 16  # of 20 images
    assert opened(nbs=12).config.batch == 12


def test_where_no_divisor_comes_near_a_power_of_two_is_taken(opened, meter, free):
    free(10, window=13 * 3 * 64**2)
    assert opened(nbs=13).config.batch == 8


def test_a_single_image_that_does_not_fit_is_told_before_anything_is_made(opened, meter, free):
    free(0)
    with pytest.raises(ConfigError, match=r"a single image takes about 0\.1 GB, and of 0\.2 GB that are free 0\.1 may"):
        opened()


def test_a_system_that_tells_nothing_asks_for_a_number(opened, meter, monkeypatch):
    monkeypatch.setattr(auto_batch, "free_memory", lambda device: None)
    with pytest.raises(ConfigError, match="does not tell how much memory is free; type a number"):
        opened()


def test_without_a_meter_the_estimate_decides(opened, monkeypatch):
    monkeypatch.setattr(auto_batch, "meter_of", lambda device: None)
    monkeypatch.setattr(auto_batch, "training_bytes", lambda network, imgsz, images, **_: images * IMAGE)
    monkeypatch.setattr(auto_batch, "free_memory", lambda device: int(10 * IMAGE / 0.6))
    assert opened().config.batch == 8


def test_nothing_is_tried_that_may_not_fit_as_the_system_would_end_the_process(opened, meter, free, monkeypatch):
    monkeypatch.setattr(auto_batch, "training_bytes", lambda network, imgsz, images, **_: FIXED + images * IMAGE)
    free(3)
    assert opened().config.batch == 2
    assert meter.tried == []
    free(4)
    assert opened().config.batch == 4
    assert meter.tried == list(MEASURED)


def test_what_runs_out_of_memory_when_tried_does_not_fit(opened, meter, free, monkeypatch):
    free(64)
    monkeypatch.setattr(meter, "peak", lambda run: NEVER_FITS)
    with pytest.raises(ConfigError, match="batch = auto: a single image takes about"):
        opened()


def test_the_cache_takes_its_part_of_the_memory(opened, meter, free):
    free(8)
    assert opened().config.batch == 8
    assert opened(cache="ram").config.batch == 4  # the 20 images of 64 × 64 take what was left
    assert opened(cache="disk").config.batch == 8


def test_measuring_leaves_network_and_random_numbers_as_they_were(opened, meter, free):
    free(16)
    meter.runs = True
    torch.manual_seed(7)
    measured, drawn = opened(), torch.rand(3)
    torch.manual_seed(7)
    plain = opened(batch=8)
    torch.testing.assert_close(torch.rand(3), drawn, rtol=0, atol=0)
    for name, tensor in plain.network.state_dict().items():
        assert torch.equal(measured.network.state_dict()[name], tensor), name
    assert not any(parameter.grad is not None for parameter in measured.network.parameters())


@pytest.mark.parametrize("optimizer", ["SGD", "AdamW", "Muon"])
def test_the_trial_applies_updates_with_the_runs_own_optimizer(opened, meter, free, optimizer, monkeypatch):
    free(16)
    meter.runs = True
    made, updates = [], []
    plain, window = auto_batch.build_optimizer, auto_batch.GradientWindow

    class Watched(window):
        def step(self):
            report = super().step()
            updates.append((report.applied, report.num_images))
            return report

    def build(network, choice, **keys):
        made.append(choice.name)
        return plain(network, choice, **keys)

    monkeypatch.setattr(auto_batch, "build_optimizer", build)
    monkeypatch.setattr(auto_batch, "GradientWindow", Watched)
    opened(optimizer=optimizer)
    assert made == [optimizer] * 2
    assert updates == [(True, 2), (True, 4), (True, 2), (True, 6)]


@pytest.mark.parametrize(
    ("keys", "most"),
    [
        ({"mosaic": 0.0}, 9),
        ({}, 9 + 5 + 4 + 1),
        ({"mosaic": 0.0, "mixup": 0.1}, 9 + 5),
        ({"mosaic": 0.0, "copy_paste": 0.1}, 9 + 5),
        ({"mosaic9": 0.5}, 19 + 19 + 9),  # nine of four images
    ],
)
def test_the_worst_sample_joins_the_richest_images(keys, most):
    train = [SimpleNamespace(classes=np.zeros(count, np.int64)) for count in (4, 1, 9, 5)]
    assert most_labels(train, load_config("train", python=keys)) == most


def test_the_plan_says_what_was_found(opened, meter, free, capsys):
    free(8)
    document = plan_document(opened())
    assert document["batch"] == 8
    assert document["batch_auto"]["needed"] == FIXED + 8 * IMAGE + 16 * 3 * 64**2
    assert plan_document(opened(batch=8))["batch_auto"] is None


def test_the_command_says_what_was_found(opened, meter, free, small_network, data, capsys):
    free(8)
    words = [f"model={small_network}", f"data={data}", "imgsz=64", "epochs=2", "nbs=16", "batch=auto"]
    assert main(["plan", *words]) == 0
    assert "batch 8 (auto: 0.5 of 0.8 GB) × accumulate 2 = 16 images per update" in capsys.readouterr().out


@pytest.mark.parametrize("mode", ["val", "predict", "compare"])
def test_it_is_for_training_alone(mode):
    with pytest.raises(ConfigError, match=f"batch = auto: is measured for training, not for {mode}; type a number"):
        load_config(mode, python={"batch": "auto"})


@pytest.mark.slow
def test_a_run_keeps_what_was_measured_when_it_goes_on(run_training, meter, free):
    free(2, window=4 * 3 * 64**2)
    result = run_training(batch="auto", nbs=4, epochs=1)
    args = (result.save_dir / "args.yaml").read_text(encoding="utf-8")
    assert yaml.safe_load(args)["batch"] == 2
    assert "batch: 2  # decided" in args
    assert load_checkpoint(result.last)["args"]["values"]["batch"] == 2
    assert json.loads((result.save_dir / "plan.json").read_text())["batch"] == 2
    assert "batch 2 (auto: " in (result.save_dir / "train.log").read_text(encoding="utf-8")
    meter.tried.clear()
    free(400)
    for typed in ({}, {"batch": "auto"}):
        epochs = 3 if typed else 2
        python = {"resume": str(result.save_dir), "epochs": epochs, "quiet": True, **typed}
        train_run(load_config("train", python=python))
    assert meter.tried == []
    assert load_checkpoint(result.last)["args"]["values"]["batch"] == 2


@pytest.mark.slow
@pytest.mark.skipif(meter_of(torch.device("cpu")) is None, reason="this system does not tell a process's memory")
def test_the_systems_own_meter_finds_what_an_image_takes(opened, monkeypatch):
    asked = []
    plain = auto_batch.straight_line

    def note(few, more, *, least_slope):
        asked.append((few, more, least_slope))
        return plain(few, more, least_slope=least_slope)

    monkeypatch.setattr(auto_batch, "straight_line", note)
    opened(model="det-n", imgsz=320, amp=False)
    ((few, more, least_slope),) = asked
    per_image = (more[1] - few[1]) / (more[0] - few[0])
    estimated = least_slope / auto_batch.LEAST_OF_ESTIMATE
    assert per_image == pytest.approx(estimated, rel=0.3)  # found from what a forward pass keeps


def test_an_image_takes_no_less_than_a_forward_pass_keeps_of_it(opened, meter, free, monkeypatch):
    monkeypatch.setattr(auto_batch, "training_bytes", lambda network, imgsz, images, **_: FIXED + images * IMAGE)
    monkeypatch.setattr(meter, "peak", lambda run: FIXED)  # steps of few images whose optimizer takes the most
    free(8)
    assert opened(amp=False).config.batch == 8
