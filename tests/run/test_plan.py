"""What `visiontrain plan` says."""

from __future__ import annotations

import dataclasses
import json

import pytest

from visiontrain.config.load import load_config
from visiontrain.errors import ConfigError
from visiontrain.plan import plan_run
from visiontrain.run.plan import plan
from visiontrain.run.planning import batch_line, plan_warnings
from visiontrain.run.session import open_session


@pytest.fixture
def planned(tiny_yolo, capsys):
    data = tiny_yolo(20, splits=("train",))

    def run(**keys):
        plan(load_config("plan", python={"data": str(data), "json": True, "imgsz": 64, **keys}))
        return json.loads(capsys.readouterr().out)

    return run


@pytest.mark.parametrize(
    ("batch", "nbs", "accumulate", "factor"),
    [(24, 64, 3, 72 / 64), (48, 64, 1, 0.75), (128, 64, 1, 2.0), (8, 64, 8, 1.0)],
)
def test_accumulate_and_the_decay_follow_the_rule(planned, batch, nbs, accumulate, factor):
    document = planned(batch=batch, nbs=nbs, weight_decay=0.001)
    assert document["accumulate"] == accumulate
    assert document["weight_decay_factor"] == pytest.approx(factor)
    assert document["weight_decay"] == pytest.approx(0.001 * factor)


def test_windows_hold_every_image_and_are_cut_as_trained(planned):
    document = planned(batch=2, nbs=8, epochs=4, warmup_epochs=1)
    for span in document["windows"]:
        assert sum(span["images"]) == 20
        assert [sum(cuts) for cuts in span["micro_batches"]] == span["images"]
    assert document["windows"][-1]["images"] == [8, 8, 4]
    assert document["windows"][-1]["last_epoch"] == 4


def test_five_points_of_the_schedule_end_at_the_last_rate(planned):
    points = planned(batch=2, nbs=8, epochs=4, lr0=0.01, lrf=0.1, optimizer="SGD")["lr"]
    assert len(points) == 5
    assert points[0]["lr"] > 0
    assert points[-1]["lr"] == pytest.approx(0.001)


def test_without_warmup_there_are_five_points_too(planned):
    assert len(planned(batch=2, nbs=8, epochs=4, warmup_epochs=0)["lr"]) == 5


def test_memory_grows_with_the_batch(planned):
    assert 0 < planned(batch=2)["memory_mb"] < planned(batch=4)["memory_mb"]


def test_memory_of_huge_images_is_told_without_taking_it(planned):
    assert planned(imgsz=32_768, batch=1)["memory_mb"] > 100_000


def test_what_training_would_refuse_is_refused(tiny_yolo):
    with pytest.raises(ConfigError, match="imgsz = 321 is not a multiple"):
        plan(load_config("plan", python={"data": str(tiny_yolo(2)), "imgsz": 321}))
    with pytest.raises(ConfigError, match="is neither a network's name nor a YAML file"):
        plan(load_config("plan", python={"data": str(tiny_yolo(2)), "model": "foo"}))


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"epochs": 2}, "only"),
        ({"nbs": 64}, "effective batch 20 of nbs 64"),
        ({"batch": 1}, "BatchNorm sees micro-batches of 1"),
        ({"batch": 128}, "batch 128 is larger than nbs 64"),
        ({"batch": 24}, "weight decay is multiplied by 1.125"),
        ({"batch": 128, "lr_scaling": "sqrt"}, "weight decay is multiplied by 1.41421"),
        ({"batch": 128, "lr_scaling": "linear"}, "which is already multiplied by the 128 images of a window"),
        ({"batch": 6, "nbs": 6, "warmup_epochs": 0}, "micro-batches of 2: its statistics will be rough; choose"),
    ],
)
@pytest.mark.slow
def test_what_a_user_should_know_is_said(planned, keys, text):
    assert any(text in warning for warning in planned(**keys)["warnings"])


@pytest.mark.parametrize(
    ("batch", "processes", "text"),
    [
        (8, 1, "batch 8 × accumulate 2 = 16 images"),
        (8, 2, "batch 8 (2 processes × 4) × accumulate 2 = 16 images"),
        (8, 3, "batch 8 (3 processes × 2 to 3) × accumulate 2 = 16 images"),
    ],
)
def test_the_batch_is_told_as_what_each_process_has_of_it(batch, processes, text):
    run = plan_run(num_images=20, batch=batch, nbs=16)
    assert batch_line(run, None, processes).startswith(text)


def test_the_plan_of_several_processes_differs_in_nothing_but_what_each_holds(planned, small_network):
    keys = {"model": str(small_network), "nbs": 16, "epochs": 40, "device": "cpu"}
    one, two = (planned(batch=8, processes=processes, **keys) for processes in (1, 2))
    assert {key for key in one if one[key] != two[key]} == {"processes", "memory_mb", "warnings"}
    assert (one["processes"], two["processes"]) == (1, 2)
    assert two["memory_mb"] < one["memory_mb"]
    assert two["memory_mb"] == planned(batch=4, **keys)["memory_mb"]


def test_memory_is_told_of_each_process(tiny_yolo, small_network, capsys):
    keys = {"data": str(tiny_yolo(20)), "model": str(small_network), "imgsz": 64, "batch": 8, "device": "cpu"}
    plan(load_config("plan", python={**keys, "processes": 2}))
    assert "MB for tensors at batch 8, imgsz 64, in each process\n" in capsys.readouterr().out
    plan(load_config("plan", python=keys))
    assert "MB for tensors at batch 8, imgsz 64\n" in capsys.readouterr().out


def test_processes_of_torchrun_that_have_no_image_are_warned_of(tiny_yolo, small_network):
    keys = {"data": str(tiny_yolo(20, splits=("train",))), "imgsz": 64, "batch": 2, "device": "cpu"}
    session = open_session(load_config("plan", python={**keys, "model": str(small_network)}))

    def warnings(processes):
        started = dataclasses.replace(session, config=session.config.decide(processes=processes))
        return [text for text in plan_warnings(started) if "smaller" in text]

    (warning,) = warnings(5)
    assert warning == "batch 2 is smaller than processes = 5: 3 of them have no image; raise batch, or start fewer"
    assert not warnings(2)


def test_a_typed_learning_rate_stays_with_the_automatic_optimizer(planned):
    document = planned(batch=2, nbs=8, epochs=4, lr0=0.0001, lrf=1.0)
    assert document["lr"][-1]["lr"] == pytest.approx(0.0001)


def test_lr_scaling_moves_rate_and_decay_against_each_other(planned):
    plain = planned(batch=24, nbs=64, lr0=0.01, lrf=1.0)
    scaled = planned(batch=24, nbs=64, lr0=0.01, lrf=1.0, lr_scaling="linear")
    assert scaled["lr"][-1]["lr"] == pytest.approx(plain["lr"][-1]["lr"] * 72 / 64)
    assert scaled["weight_decay"] == pytest.approx(plain["weight_decay"] / (72 / 64))
    assert not any("weight decay" in warning for warning in scaled["warnings"])
    assert (plain["lr_factor"], plain["weight_decay_factor"]) == (1.0, pytest.approx(1.125))
    assert (scaled["lr_factor"], scaled["weight_decay_factor"]) == (pytest.approx(1.125), 1.0)


def test_the_table_names_what_lr_scaling_did(tiny_yolo, capsys):
    keys = {"data": str(tiny_yolo(20)), "batch": 48, "lr0": 0.02, "optimizer": "SGD", "lr_scaling": "linear"}
    plan(load_config("plan", python={**keys, "imgsz": 64}))
    assert "lr0 0.015 (× 0.75 by lr_scaling: 48 images of nbs 64)" in capsys.readouterr().out


def test_what_an_update_sees_and_what_the_average_holds_are_numbers_too(planned):
    document = planned(batch=2, nbs=8, epochs=4, warmup_epochs=0)
    assert document["images_per_update"] == {"min": 4, "mean": pytest.approx(20 / 3), "max": 8}
    assert document["ema"]["updates"] == pytest.approx((10 + 12) / 9)
    assert document["ema"]["images"] == pytest.approx((10 + 12) / 9 * 20 / 3)
    assert planned(batch=2, nbs=8, ema=False)["ema"] is None


def test_the_table_names_the_batch(tiny_yolo, capsys):
    keys = {"data": str(tiny_yolo(20)), "batch": 2, "nbs": 8, "epochs": 10, "imgsz": 64}
    plan(load_config("plan", python=keys))
    assert capsys.readouterr().out.startswith("batch 2 × accumulate 4 = 8 images per update, 3 updates per epoch, ")
