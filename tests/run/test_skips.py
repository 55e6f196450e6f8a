"""Windows that cannot be applied are left out, their culprit named; too many of them send the run back."""

from __future__ import annotations

import csv
import re
from dataclasses import replace

import pytest
import torch

from visiontrain.engine.checkpoint import load_checkpoint
from visiontrain.errors import ConfigError
from visiontrain.losses.detection import DetectionCriterion
from visiontrain.sample import Batch


@pytest.fixture
def poison(monkeypatch):
    """A function after which the loss of micro-batches is not finite where a predicate of the batch holds."""
    plain = DetectionCriterion.__call__

    def start(is_poisoned):
        def call(self, outputs, batch: Batch):
            loss = plain(self, outputs, batch)
            if outputs.class_logits.requires_grad or len(batch) == 1:  # not in validation
                factor = float("nan") if is_poisoned(batch) else 1.0
                return replace(loss, total=loss.total * factor)
            return loss

        monkeypatch.setattr(DetectionCriterion, "__call__", call)

    return start


def updates_of(folder):
    with (folder / "results.csv").open(newline="") as file:
        return [int(row["updates"]) for row in csv.DictReader(file)]


@pytest.mark.slow
def test_a_poisoned_image_is_named_and_its_window_left_out(run_training, poison, capsys):
    poison(lambda batch: any(path.endswith(("3.jpg", "3.png")) for path in batch.paths))
    result = run_training(epochs=2, warmup_epochs=0, ema=False, workers=0)
    assert updates_of(result.save_dir) == [1, 2]  # of two windows an epoch one is applied
    log = (result.save_dir / "train.log").read_text()
    (line, *_) = [line for line in log.splitlines() if "was left out" in line]
    assert "the loss is not finite; by itself it is " in line
    blamed = line.split("by itself it is ")[1].split(";")[0]
    assert "3." in blamed
    assert blamed.count("the loss is not finite") == 1


@pytest.mark.slow
def test_too_many_in_a_row_send_the_run_back_twice_and_then_end_it(run_training, poison, tmp_path):
    poison(lambda batch: True)
    with pytest.raises(ConfigError, match=r"3 windows in a row were left out.*half the learning rate has not helped 2"):
        run_training(epochs=9, warmup_epochs=0, max_skips=3, workers=0)
    log = (tmp_path / "run" / "train.log").read_text()
    for part in ("1/2", "1/4"):
        assert re.search(rf"going back to image \d+ with {part} of the learning rate", log)


@pytest.mark.slow
def test_a_run_that_was_sent_back_goes_on_from_its_checkpoint_at_half_the_rate(run_training, poison, tmp_path):
    seen = []

    def is_poisoned(batch):
        seen.append(None)
        return 8 < len(seen) <= 16 and not (tmp_path / "healed").exists()

    poison(is_poisoned)
    result = run_training(epochs=4, warmup_epochs=0, max_skips=2, workers=0, val=False, lr0=0.01, optimizer="SGD")
    assert load_checkpoint(result.last)["plan"]["halvings"] == 1
    with (result.save_dir / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["epoch"]) for row in rows] == [1, 2, 3, 4]
    assert "going back to image" in (result.save_dir / "train.log").read_text()
    rates = [float(row["lr/weight"]) for row in rows]
    assert rates[-1] == pytest.approx(0.01 * 0.01 / 2)


@pytest.mark.slow
def test_zero_allows_any_number(run_training, poison):
    poison(lambda batch: True)
    result = run_training(epochs=2, warmup_epochs=0, max_skips=0, workers=0)
    assert updates_of(result.save_dir) == [0, 0]
    assert all(torch.isfinite(tensor).all() for tensor in load_checkpoint(result.last)["model"].values())
