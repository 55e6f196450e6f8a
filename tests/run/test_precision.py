"""Half precision in whole runs, and the noise scale."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from visiontrain.config.load import load_config
from visiontrain.engine.checkpoint import load_checkpoint
from visiontrain.errors import ConfigError
from visiontrain.losses.detection import DetectionCriterion
from visiontrain.run.train import train_run
from visiontrain.run.val import val_run


def results_of(folder):
    return json.loads((folder / "results.json").read_text(encoding="utf-8"))


@pytest.fixture
def overflowing(monkeypatch):
    """A loss that half precision does not hold; returns the dtypes that it was given."""
    seen, plain = [], DetectionCriterion.__call__

    def criterion(self, outputs, batch):
        seen.append(outputs.class_logits.dtype)
        is_half = outputs.class_logits.dtype != torch.float32
        loss = plain(self, outputs, batch)
        return replace(loss, total=loss.total * float("inf")) if is_half else loss

    monkeypatch.setattr(DetectionCriterion, "__call__", criterion)
    return seen


@pytest.mark.parametrize("amp", ["bf16", "fp16"])
@pytest.mark.slow
def test_fp32_takes_over_for_the_run_its_validation_its_later_epochs_and_its_weights(
    run_training, overflowing, tmp_path, amp
):
    result = run_training(amp=amp)
    log = (result.save_dir / "train.log").read_text(encoding="utf-8")
    assert log.count("fp32 takes over") == 1
    assert f"window 1: the loss is not finite in {amp}" in log
    assert results_of(result.save_dir)["skipped_windows"] == 0
    assert load_checkpoint(result.best)["fp32_took_over"] is True
    first = overflowing.count(torch.float32)
    assert overflowing[-first:] == [torch.float32] * first

    overflowing.clear()
    val_run(load_config("val", python={"model": str(result.best), "save_dir": str(tmp_path / "val")}))
    train_run(load_config("train", python={"resume": str(result.save_dir), "epochs": 3}))
    assert set(overflowing) == {torch.float32}
    assert (result.save_dir / "train.log").read_text(encoding="utf-8").count("fp32 takes over") == 1


@pytest.mark.slow
def test_a_scale_that_is_too_high_is_told_once_and_accuses_no_image(run_training, monkeypatch):
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**100)
    monkeypatch.setattr(torch.amp, "GradScaler", lambda *_: scaler)
    result = run_training(amp="fp16", epochs=3)
    log = (result.save_dir / "train.log").read_text(encoding="utf-8")
    results = results_of(result.save_dir)
    assert results["calibration_windows"] >= 4
    assert results["skipped_windows"] == 0
    assert log.count("no image is at fault") == 1
    assert ".png" not in log


@pytest.mark.slow
def test_images_of_a_window_that_is_not_finite_are_named(run_training, monkeypatch):
    plain = DetectionCriterion.__call__

    def criterion(self, outputs, batch):
        loss = plain(self, outputs, batch)
        is_bad = any(path.endswith("003.png") and "train" in path for path in batch.paths)
        return replace(loss, total=loss.total * float("nan")) if is_bad else loss

    monkeypatch.setattr(DetectionCriterion, "__call__", criterion)
    result = run_training()
    assert results_of(result.save_dir)["skipped_windows"] == 2  # one in each epoch
    lines = [
        line for line in (result.save_dir / "train.log").read_text(encoding="utf-8").splitlines() if ".png" in line
    ]
    assert len(lines) == 2
    assert all("003.png" in line and "the loss is not finite" in line for line in lines)


class TestNoiseScale:
    @pytest.mark.slow
    def test_it_is_told_once_an_epoch_and_at_the_end(self, run_training):
        result = run_training(noise_scale=True, epochs=3)
        log = (result.save_dir / "train.log").read_text(encoding="utf-8")
        assert [f"epoch {epoch}: gradient noise scale" in log for epoch in (1, 2, 3)] == [True] * 3
        assert log.count("gradient noise scale") == 4
        results = results_of(result.save_dir)
        assert results["noise_scale"] is None or results["noise_scale"] > 0
        assert [note.startswith("gradient noise scale") for note in results["notes"]] == [True]

    @pytest.mark.slow
    def test_measuring_changes_no_bit(self, run_training, tmp_path):
        plain = load_checkpoint(run_training(save_dir=str(tmp_path / "plain")).last)["model"]
        measured = load_checkpoint(run_training(noise_scale=True, save_dir=str(tmp_path / "measured")).last)["model"]
        torch.testing.assert_close(measured, plain, rtol=0, atol=0)

    def test_where_every_window_is_one_micro_batch_it_is_refused(self, run_training):
        with pytest.raises(ConfigError, match=r"noise_scale = True: .* lower batch \(now 8\) below nbs = 8"):
            run_training(noise_scale=True, batch=8, nbs=8)
