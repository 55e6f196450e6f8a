"""One image whose loss is not finite costs its window, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from visiontrain.engine.checkpoint import load_checkpoint
from visiontrain.engine.transaction import Transaction
from visiontrain.engine.window import WindowReport
from visiontrain.losses.detection import DetectionCriterion

POISONED = "117.png"
SETTINGS = {"imgsz": 32, "epochs": 1, "batch": 4, "nbs": 8, "warmup_epochs": 0, "workers": 0, "val": False}


@pytest.mark.slow
def test_one_poisoned_image_of_200_is_named_and_weights_are_those_without_its_window(
    run_training, tiny_yolo, monkeypatch, tmp_path
):
    data = str(tiny_yolo(200, size=32, splits=("train",)))
    plain, run, left_out = DetectionCriterion.__call__, Transaction.run, []

    def poisoned(criterion, outputs, batch):
        loss = plain(criterion, outputs, batch)
        is_hit = any(path.endswith(POISONED) for path in batch.paths)
        return replace(loss, total=loss.total * float("nan")) if is_hit else loss

    def observed(transaction, window, step):
        report = run(transaction, window, step)
        if not report.applied:
            left_out.append(window.planned.index)
        return report

    with monkeypatch.context() as patch:
        patch.setattr(DetectionCriterion, "__call__", poisoned)
        patch.setattr(Transaction, "run", observed)
        hit = run_training(data=data, save_dir=str(tmp_path / "hit"), **SETTINGS)
    (index,) = left_out
    told = [line for line in (hit.save_dir / "train.log").read_text().splitlines() if "was left out" in line]
    assert len(told) == 1
    blamed = told[0].partition("by itself it is ")[2].partition("; its images")[0]
    assert blamed.endswith(f"{POISONED} (the loss is not finite)")
    assert blamed.count(".png") == 1

    def without_the_window(transaction, window, step):
        if window.planned.index != index:
            return run(transaction, window, step)
        nothing = torch.zeros(())
        return WindowReport(False, 0, {}, nothing.double(), nothing, reason="it is left out on purpose")

    with monkeypatch.context() as patch:
        patch.setattr(Transaction, "run", without_the_window)
        wanted = run_training(data=data, save_dir=str(tmp_path / "wanted"), **SETTINGS)
    assert hit.updates == wanted.updates == 24
    one, other = load_checkpoint(hit.last), load_checkpoint(wanted.last)
    for kind in ("model", "ema"):
        assert all(torch.equal(tensor, other[kind][name]) for name, tensor in one[kind].items())
