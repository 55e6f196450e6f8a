"""Whole runs: what they leave behind, that they repeat, and that they go on."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
import sys

import pytest
import torch
import yaml

from visiontrain.config.load import load_config
from visiontrain.engine.checkpoint import load_checkpoint, save_checkpoint
from visiontrain.errors import CheckpointError, ConfigError, DataError
from visiontrain.plan import plan_run
from visiontrain.run.train import train_run
from visiontrain.run.val import val_run

HEADER = (
    "epoch,time,updates,images,train/box_loss,train/cls_loss,train/dfl_loss,metrics/precision(B),metrics/recall(B),"
    "metrics/mAP50(B),metrics/mAP50-95(B),val/box_loss,val/cls_loss,val/dfl_loss,lr/weight,lr/norm,lr/bias,"
    "t_data,t_step,t_val"
)


def rows_of(folder):
    with (folder / "results.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def assert_equal_weights(first, second, key):
    a, b = load_checkpoint(first)[key], load_checkpoint(second)[key]
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


@pytest.mark.offline
def test_a_run_leaves_what_the_readme_says(run_training):
    result = run_training(plots=True)
    folder = result.save_dir
    assert (folder / "results.csv").read_text(encoding="utf-8").splitlines()[0] == HEADER
    for name in ("args.yaml", "plan.json", "results.json", "train.log", "results.png"):
        assert (folder / name).stat().st_size > 0, name
    for pattern in ("train_batch*.jpg", "val_batch*_pred.jpg", "val_batch*_labels.jpg"):
        assert list(folder.glob(pattern)), pattern
    assert result.best.is_file()
    assert result.last.is_file()
    assert set(result.metrics) == {name for name in HEADER.split(",") if name.startswith("metrics/")}


@pytest.mark.slow
def test_the_log_shows_exactly_the_plan(run_training):
    result = run_training(epochs=3, warmup_epochs=1.0, tail="flush")
    plan = plan_run(num_images=8, batch=2, nbs=4, epochs=3, warmup_epochs=1.0)
    rows = rows_of(result.save_dir)
    assert [int(row["updates"]) for row in rows] == list(plan.first_window[1:])
    assert [int(row["images"]) for row in rows] == [8, 16, 24]
    written = json.loads((result.save_dir / "plan.json").read_text(encoding="utf-8"))
    sizes = [
        tuple(span["images"]) for span in written["windows"] for _ in range(span["first_epoch"], span["last_epoch"] + 1)
    ]
    assert sizes == list(plan.window_sizes)
    assert written["updates"] == plan.num_updates == result.updates
    assert float(rows[-1]["lr/weight"]) == pytest.approx(written["lr"][-1]["lr"])


@pytest.mark.slow
def test_the_log_counts_the_boxes_that_augmentation_lost(run_training):
    log = (run_training(close_mosaic=0).save_dir / "train.log").read_text(encoding="utf-8")
    counted = (
        r"boxes lost to augmentation in epoch (\d): (\d+) outside, \d+ too small, \d+ too little left, \d+ too long"
    )
    lines = re.findall(counted, log)
    assert [epoch for epoch, _ in lines] == ["1", "2"]
    assert all(int(outside) > 0 for _, outside in lines)  # mosaics of four are cut


@pytest.mark.slow
def test_the_log_names_the_windows_that_were_trained_on(run_training):
    result = run_training(epochs=3, warmup_epochs=1.0)
    plan = plan_run(num_images=8, batch=2, nbs=4, epochs=3, warmup_epochs=1.0)
    lines = (result.save_dir / "train.log").read_text(encoding="utf-8").splitlines()
    trained = [line.partition(": ")[2] for line in lines if line.lstrip().startswith("windows of epoch")]
    written = []
    for text in trained:
        counted = [part.split(" × ") if " × " in part else ("1", part) for part in text.split(", ")]
        written.append(tuple(int(size) for count, size in counted for _ in range(int(count))))
    assert written == list(plan.window_sizes)


@pytest.mark.slow
def test_windows_that_cross_epochs_leave_a_row_for_every_epoch(run_training):
    result = run_training(epochs=5, nbs=12, tail="carry", warmup_epochs=0)
    rows = rows_of(result.save_dir)
    assert [int(row["epoch"]) for row in rows] == [1, 2, 3, 4, 5]
    assert [int(row["images"]) for row in rows] == [8, 16, 24, 32, 40]
    # Images 8 to 11 of the run close epoch 1 and open epoch 2: one window of 12 ends behind both of their borders.
    assert [int(row["updates"]) for row in rows] == [1, 2, 2, 3, 4]


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bits_and_another_one_others(run_training, tmp_path):
    first = run_training(save_dir=str(tmp_path / "a"))
    data = yaml.safe_load((first.save_dir / "args.yaml").read_text(encoding="utf-8"))["data"]
    second = run_training(save_dir=str(tmp_path / "b"), data=data)
    other = run_training(save_dir=str(tmp_path / "c"), data=data, seed=1)
    for key in ("model", "ema"):
        assert_equal_weights(first.last, second.last, key)
    with pytest.raises(AssertionError):
        assert_equal_weights(first.last, other.last, "model")


@pytest.mark.parametrize("settings", [{"mosaic": 0.5, "lr0": 0.002}, {"momentum": 0.5}])
@pytest.mark.slow
def test_the_written_settings_repeat_the_run(run_training, tmp_path, settings):
    first = run_training(save_dir=str(tmp_path / "a"), **settings)
    keys = [f"cfg={first.save_dir / 'args.yaml'}", f"save_dir={tmp_path / 'b'}"]
    second = train_run(load_config("train", command_line=keys))
    assert_equal_weights(first.last, second.last, "model")


@pytest.mark.slow
def test_a_run_that_goes_on_ends_with_the_same_bits(run_training, tmp_path):
    whole = run_training(epochs=4, save_period=1)
    straight = tmp_path / "straight.pt"
    shutil.copy(whole.last, straight)
    rows = rows_of(whole.save_dir)

    resumed = train_run(load_config("train", python={"resume": str(whole.save_dir / "weights" / "epoch2.pt")}))

    assert resumed.save_dir == whole.save_dir
    for key in ("model", "ema"):
        assert_equal_weights(straight, resumed.last, key)
    timing = {"time", "t_data", "t_step", "t_val"}
    again = rows_of(resumed.save_dir)
    assert [{k: v for k, v in row.items() if k not in timing} for row in again] == [
        {k: v for k, v in row.items() if k not in timing} for row in rows
    ]


def test_the_last_checkpoint_is_written_after_the_best(run_training, monkeypatch):
    """So that a run that is killed between the two goes on from the epoch before, and finds its best again."""
    written = []
    monkeypatch.setattr(
        "visiontrain.run.saving.save_checkpoint",
        lambda path, values, **keys: (written.append(path.name), save_checkpoint(path, values, **keys)),
    )
    run_training(epochs=1, save_period=1)
    assert written == ["best.pt", "epoch1.pt", "last.pt"]


@pytest.mark.slow
def test_a_run_that_was_killed_before_its_results_were_written_writes_them(run_training):
    result = run_training()
    (result.save_dir / "results.json").unlink()
    again = train_run(load_config("train", python={"resume": str(result.save_dir)}))
    assert dict(again.metrics) == pytest.approx(dict(result.metrics))
    assert (result.save_dir / "results.json").is_file()


@pytest.mark.slow
def test_a_checkpoint_outside_a_run_folder_cannot_be_resumed(run_training, tmp_path):
    result = run_training()
    shutil.copy(result.last, tmp_path / "last.pt")
    with pytest.raises(ConfigError, match="does not lie in the weights folder of a run"):
        train_run(load_config("train", python={"resume": str(tmp_path / "last.pt")}))
    assert not (tmp_path / "args.yaml").exists()


@pytest.mark.slow
def test_a_run_goes_on_from_another_folder(run_training, tmp_path, monkeypatch, tiny_yolo):
    data = tiny_yolo(8)
    monkeypatch.chdir(data.parent)
    result = run_training(data="data.yaml")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    longer = train_run(load_config("train", python={"resume": str(result.save_dir), "epochs": 3}))
    assert [int(row["epoch"]) for row in rows_of(longer.save_dir)] == [1, 2, 3]


def test_a_run_with_too_many_unreadable_images_stops_and_names_them(run_training, tiny_yolo, capsys):
    data = tiny_yolo(8)
    broken = data.parent / "images" / "train" / "003.png"
    pixels = bytearray(broken.read_bytes())
    pixels[len(pixels) // 2] ^= 0xFF  # the file is whole, the picture is not
    broken.write_bytes(pixels)
    with pytest.raises(DataError, match="1 of 8 training images cannot be read, more than 1%"):
        run_training(data=str(data), plots=False)
    assert "003.png: cannot be read" in capsys.readouterr().out


def test_images_that_are_cut_short_stop_a_run_before_it_begins(run_training, tiny_yolo, tmp_path):
    data = tiny_yolo(8)
    broken = data.parent / "images" / "train" / "003.png"
    broken.write_bytes(broken.read_bytes()[:200])
    with pytest.raises(DataError, match=r"1 of 8 training images cannot be read, more than 1%; mend .*003\.png"):
        run_training(data=str(data), plots=False)
    assert not (tmp_path / "run").exists()


def test_a_single_value_for_batch_norm_is_refused(run_training, tmp_path):
    with pytest.raises(ConfigError, match="leaves BatchNorm one value a channel; double imgsz"):
        run_training(batch=1, imgsz=32)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_finished_run_goes_on_only_with_more_epochs(run_training):
    result = run_training()
    with pytest.raises(ConfigError, match="finished its 2 epochs; type a larger epochs="):
        train_run(load_config("train", python={"resume": str(result.save_dir)}))
    longer = train_run(load_config("train", python={"resume": str(result.save_dir), "epochs": 3}))
    assert [int(row["epoch"]) for row in rows_of(longer.save_dir)] == [1, 2, 3]


@pytest.mark.slow
def test_what_would_change_the_run_is_refused_when_it_goes_on(run_training):
    result = run_training()
    with pytest.raises(ConfigError) as caught:
        train_run(load_config("train", python={"resume": str(result.last), "nbs": 8, "lr0": 0.1, "epochs": 9}))
    assert [fault.split(" ")[0] for fault in caught.value.faults] == ["nbs", "lr0"]


def test_val_finds_the_numbers_of_the_best_epoch(run_training, tmp_path):
    result = run_training(epochs=3)
    best = load_checkpoint(result.best)["metrics"]
    found = val_run(
        load_config(
            "val", python={"model": str(result.best), "plots": False, "quiet": True, "save_dir": str(tmp_path / "v")}
        )
    )
    assert set(found.metrics) < set(best)
    for name, value in found.metrics.items():
        assert value == pytest.approx(best[name], abs=1e-6), name


@pytest.mark.slow
def test_without_validation_the_last_weights_are_the_best(run_training):
    result = run_training(val=False)
    assert result.metrics == {}
    assert_equal_weights(result.best, result.last, "model")


@pytest.mark.slow
def test_validation_keeps_to_its_interval_and_the_last_epoch(run_training):
    rows = rows_of(run_training(epochs=5, val_interval=2).save_dir)
    assert [bool(row["metrics/mAP50(B)"]) for row in rows] == [False, True, False, True, True]


@pytest.mark.parametrize(
    ("settings", "error", "text"),
    [
        (
            {"imgsz": 100},
            ConfigError,
            "imgsz = 100 is not a multiple of the network's largest stride, 32; use 96 or 128",
        ),
        ({"model": "det-q"}, ConfigError, "is neither a detector's name nor a YAML file"),
        ({"model": "weights.pt"}, CheckpointError, "weights.pt: cannot be read"),
        ({"data": "nowhere/data.yaml"}, DataError, "nowhere"),
        ({"resume": "nowhere"}, ConfigError, "does not exist; name a run folder"),
        ({"device": "7"}, ConfigError, "device = '7'"),
    ],
)
def test_wrong_input_is_refused_before_anything_is_made(run_training, tmp_path, settings, error, text):
    if "resume" in settings:
        with pytest.raises(error, match=text):
            train_run(load_config("train", python=settings))
    else:
        with pytest.raises(error, match=text):
            run_training(**settings)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 4])
def test_neither_workers_nor_batch_change_updates_or_rates(run_training, tmp_path, batch):
    """BatchNorm depends on the micro-batch, so the weights may differ; how often and how fast they move must not."""
    first = run_training(save_dir=str(tmp_path / "a"), batch=2, workers=0, warmup_epochs=0)
    data = load_checkpoint(first.last)["args"]["values"]["data"]
    second = run_training(save_dir=str(tmp_path / "b"), batch=batch, workers=2, data=data, warmup_epochs=0)
    for a, b in zip(rows_of(first.save_dir), rows_of(second.save_dir), strict=True):
        for name in ("epoch", "updates", "images", "lr/weight", "lr/bias"):
            assert a[name] == b[name], name


@pytest.mark.slow
def test_workers_do_not_change_a_bit(run_training, tmp_path):
    first = run_training(save_dir=str(tmp_path / "a"), workers=0)
    data = load_checkpoint(first.last)["args"]["values"]["data"]
    second = run_training(save_dir=str(tmp_path / "b"), workers=2, data=data)
    assert_equal_weights(first.last, second.last, "model")


@pytest.mark.slow
def test_the_best_checkpoint_is_not_one_to_go_on_from(run_training):
    result = run_training()
    with pytest.raises(ConfigError, match=r"holds the best epoch, not the latest; name the run's folder"):
        train_run(load_config("train", python={"resume": str(result.best)}))


@pytest.mark.slow
def test_a_run_that_diverges_says_so(run_training, capsys):
    run_training(optimizer="SGD", lr0=100.0, clip=0.0, warmup_epochs=0, epochs=3)
    printed = capsys.readouterr().out
    assert "not finite: the run has diverged; lower lr0" in printed or "the loss is not finite" in printed


@pytest.mark.slow
def test_a_script_without_a_guard_is_told_what_it_lacks(tmp_path, tiny_yolo, small_network):
    script = tmp_path / "script.py"
    keys = {"data": str(tiny_yolo(4)), "imgsz": 64, "epochs": 1, "batch": 2, "nbs": 4, "workers": 1, "plots": False}
    script.write_text(
        f"from visiontrain import Model\nModel({str(small_network)!r}).train(**{keys!r})\n", encoding="utf-8"
    )
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "put the call below `if __name__ ==" in done.stderr
    assert [folder.name for folder in (tmp_path / "runs" / "detect").iterdir()] == ["train"]
