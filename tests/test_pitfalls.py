"""What users of trainers were hit by, put to whole runs of this one."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import pytest
import torch
from torch import nn

from visiontrain.config.load import load_config
from visiontrain.engine.checkpoint import load_checkpoint, save_checkpoint
from visiontrain.engine.window import GradientWindow
from visiontrain.losses.detection import DetectionCriterion
from visiontrain.losses.sums import LossSum
from visiontrain.plan import plan_windows
from visiontrain.run.score import Scorer
from visiontrain.run.train import train_run


def column(folder, name):
    with (folder / "results.csv").open(encoding="utf-8", newline="") as file:
        return [float(row[name]) for row in csv.DictReader(file)]


def log_of(folder):
    return (folder / "train.log").read_text(encoding="utf-8")


def results_of(folder):
    return json.loads((folder / "results.json").read_text(encoding="utf-8"))


def is_finite(weights):
    return all(tensor.isfinite().all() for tensor in weights.values())


class OneWeightAnImage(nn.Module):
    """The loss of an image is its own weight, so its gradient is 1 there and 0 elsewhere."""

    def __init__(self, num_images):
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(num_images, dtype=torch.float64))


@pytest.mark.parametrize(
    ("num_images", "batch", "nbs", "sizes"),
    [(20, 2, 8, [8, 8, 4]), (7, 1, 4, [4, 3]), (3, 1, 64, [3]), (9, 4, 4, [4, 5])],
)
def test_every_image_of_an_epoch_moves_the_weights_by_its_share_of_its_window(num_images, batch, nbs, sizes):
    network = OneWeightAnImage(num_images)
    window = GradientWindow(torch.optim.SGD(network.parameters(), lr=1.0), model=network)
    planned = list(plan_windows(num_images=num_images, batch=batch, nbs=nbs))
    for each in planned:
        for part in each.micro_batches:
            with window.micro_batch(last=part.is_last):
                window.add(LossSum(network.weights[part.start : part.start + part.size].sum(), part.size))
        window.step()
    assert [each.size for each in planned] == sizes
    assert -network.weights.detach() == pytest.approx([1 / size for size in sizes for _ in range(size)], rel=1e-15)


@pytest.mark.slow
def test_a_data_set_smaller_than_a_window_is_trained_on_and_that_is_said_once(run_training, tiny_yolo):
    result = run_training(data=str(tiny_yolo(3)), batch=1, nbs=64, warmup_epochs=0, save_period=1)
    assert column(result.save_dir, "updates") == [1, 2]
    assert column(result.save_dir, "images") == [3, 6]
    log = log_of(result.save_dir)
    assert log.count("batch 1 × accumulate 64 = 64 images per update") == 1
    assert log.count("effective batch 3 of nbs 64") == 1
    assert log.count("BatchNorm sees micro-batches of 1") == 1
    first, second = (load_checkpoint(result.save_dir / "weights" / f"epoch{epoch}.pt")["model"] for epoch in (1, 2))
    assert not any(torch.equal(first[name], second[name]) for name in first if name.endswith("conv.weight"))


@pytest.mark.parametrize(("batch", "decay"), [(6, "0.00075 (× 1.5: 6 images of nbs 4)"), (2, "0.0005")])
def test_the_weight_decay_in_use_is_said(run_training, batch, decay):
    log = log_of(run_training(batch=batch, epochs=1, val=False).save_dir)
    assert f"weight decay {decay}\n" in log


@pytest.mark.slow
def test_a_run_whose_memory_runs_out_learns_what_it_would_have_learned(run_training, tiny_yolo, tmp_path, monkeypatch):
    data = tiny_yolo(16, size=32)
    run = {"data": str(data), "imgsz": 32, "batch": 8, "nbs": 16, "epochs": 3, "val": False}
    keys = run | {"norm": "group", "amp": False, "optimizer": "SGD", "lr0": 1e-3, "warmup_epochs": 0, "scale": 0.0}
    whole = run_training(**keys, save_dir=str(tmp_path / "whole"))
    plain, calls = DetectionCriterion.__call__, []

    def loss_in_little_memory(self, outputs, batch):
        calls.append(len(batch))
        if len(calls) > 3 and len(batch) > 4:
            raise torch.OutOfMemoryError
        return plain(self, outputs, batch)

    monkeypatch.setattr(DetectionCriterion, "__call__", loss_in_little_memory)
    short = run_training(**keys, save_dir=str(tmp_path / "short"))

    assert calls == [8, 8] + [8, 8] + [4, 4, 4, 4] * 2  # the second window's second micro-batch does not fit
    assert log_of(short.save_dir).count("out of memory: window 2 is replayed with micro-batches of at most 4") == 1
    for name in ("updates", "images", "lr/weight"):
        assert column(short.save_dir, name) == column(whole.save_dir, name)
    assert column(short.save_dir, "train/box_loss") == pytest.approx(column(whole.save_dir, "train/box_loss"), rel=1e-5)
    weights, wanted = (load_checkpoint(result.last)["model"] for result in (short, whole))
    torch.testing.assert_close(weights, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_a_window_that_is_not_finite_costs_one_update_and_nothing_else(run_training, monkeypatch):
    plain, calls = DetectionCriterion.__call__, []

    def nan_once(self, outputs, batch):
        loss = plain(self, outputs, batch)
        if any("/train/" in path.replace("\\", "/") for path in batch.paths):
            calls.append(batch.paths)
            if len(calls) == 6:  # the second of two micro-batches in the first window of epoch 2
                return replace(loss, total=loss.total * float("nan"))
        return loss

    monkeypatch.setattr(DetectionCriterion, "__call__", nan_once)
    result = run_training(epochs=3, warmup_epochs=0, save_period=1)

    assert column(result.save_dir, "epoch") == [1, 2, 3]
    assert column(result.save_dir, "updates") == [2, 3, 5]
    assert results_of(result.save_dir)["skipped_windows"] == 1
    (line,) = [line for line in log_of(result.save_dir).splitlines() if "was left out" in line]
    assert "window 3 was left out: the loss is not finite" in line
    assert {path for path in calls[4] + calls[5] if path in line} == {*calls[4], *calls[5]}
    assert line.count(".png") == 4
    for epoch, updates in ((1, 2), (2, 3), (3, 5)):
        saved = load_checkpoint(result.save_dir / "weights" / f"epoch{epoch}.pt")
        assert is_finite(saved["model"])
        assert is_finite(saved["ema"])
        assert saved["ema_updates"] == updates


def test_validation_that_overflows_in_half_precision_loses_no_weights(run_training, monkeypatch):
    plain, kept = Scorer.score, []

    def score_with_a_huge_weight(self, network, *interrupt):
        with torch.no_grad():
            next(iter(network.parameters())).flatten()[0] = 1e5  # above the largest number of fp16
        before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
        scored = plain(self, network, *interrupt)
        torch.testing.assert_close(dict(network.state_dict()), before, rtol=0, atol=0, equal_nan=True)
        kept.append(before)
        return scored

    monkeypatch.setattr(Scorer, "score", score_with_a_huge_weight)
    result = run_training(amp="fp16", epochs=1)
    saved = load_checkpoint(result.last)
    torch.testing.assert_close(saved["ema"], kept[0], rtol=0, atol=0)
    assert is_finite(saved["model"])
    assert column(result.save_dir, "epoch") == [1]


@pytest.mark.slow
def test_a_run_in_half_precision_goes_on_though_its_first_windows_overflow(run_training):
    result = run_training(amp="fp16", epochs=1, warmup_epochs=0)
    values = load_checkpoint(result.last)
    updates = results_of(result.save_dir)["updates"]
    values["scaler"]["scale"] = 2.0**100
    save_checkpoint(result.last, values)

    resumed = train_run(load_config("train", python={"resume": str(result.save_dir), "epochs": 2}))

    results = results_of(resumed.save_dir)
    assert results["calibration_windows"] == 2
    assert results["skipped_windows"] == 0
    assert results["updates"] == updates
    assert load_checkpoint(resumed.last)["scaler"]["scale"] == 2.0**98
