"""A run that ended anywhere goes on to the same bits, from the last checkpoint that is whole."""

from __future__ import annotations

import csv
import errno
import json
import os
import shutil
import signal

import pytest
import torch

from visiontrain.config.load import load_config
from visiontrain.engine.checkpoint import SaveError, load_checkpoint, save_checkpoint
from visiontrain.errors import CheckpointError, ConfigError, Stopped
from visiontrain.run import saving as saving_module
from visiontrain.run import train as train_module
from visiontrain.run.plan import plan
from visiontrain.run.record import Recorder
from visiontrain.run.score import Scorer
from visiontrain.run.train import train_run
from visiontrain.run.val import val_run

EPOCHS, WINDOWS = 3, 6  # of 8 images in windows of 4


@pytest.fixture
def train(run_training, tmp_path, tiny_yolo):
    """A function that trains in the folder of a name, always on the same eight images."""
    data = str(tiny_yolo(8))

    def run(name, **settings):
        keys = {"data": data, "epochs": EPOCHS, "warmup_epochs": 0, "save_dir": str(tmp_path / name), "workers": 0}
        return run_training(**{**keys, **settings})

    return run


def go_on(folder, **typed):
    return train_run(load_config("train", python={"resume": str(folder), **typed}))


def fingerprint(folder):
    """Everything of a run that must not depend on where it was cut: weights, averages, rows without times."""
    checkpoint = load_checkpoint(folder / "weights" / "last.pt")
    with (folder / "results.csv").open(newline="") as file:
        rows = [
            {k: v for k, v in row.items() if k != "time" and not k.startswith("t_")} for row in csv.DictReader(file)
        ]
    tensors = {f"{kind}.{name}": tensor for kind in ("model", "ema") for name, tensor in checkpoint[kind].items()}
    for name, state in checkpoint["optimizer"].items():
        tensors |= {f"{name}.{key}": value for key, value in state.items() if isinstance(value, torch.Tensor)}
    return rows, tensors


def assert_same_run(folder, other):
    (rows, tensors), (other_rows, other_tensors) = fingerprint(folder), fingerprint(other)
    assert rows == other_rows
    assert tensors.keys() == other_tensors.keys()
    for name, tensor in tensors.items():
        assert torch.equal(tensor, other_tensors[name]), name


def after_window(monkeypatch, index, act):
    """Call `act` once window `index` (from 0) has been trained on."""
    tell = Recorder.window

    def window(self, loaded, *rest):
        tell(self, loaded, *rest)
        if loaded.planned.index == index:
            act()

    monkeypatch.setattr(Recorder, "window", window)


@pytest.mark.parametrize("index", range(WINDOWS - 1))
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.slow
def test_a_signal_in_any_window_ends_the_run_behind_it_and_it_goes_on_to_the_same_bits(
    train, monkeypatch, tmp_path, index, signum
):
    if signum == signal.SIGINT and index:
        pytest.skip("both signals take the same way")
    whole = train("whole")
    with monkeypatch.context() as patch:
        after_window(patch, index, lambda: os.kill(os.getpid(), signum))
        with pytest.raises(Stopped) as caught:
            train("cut")
    assert caught.value.signum == signum
    stored = load_checkpoint(tmp_path / "cut" / "weights" / "last.pt")
    assert stored["plan"]["window"] == index + 1
    go_on(tmp_path / "cut")
    assert_same_run(tmp_path / "cut", whole.save_dir)


@pytest.mark.slow
def test_the_plan_of_a_run_that_goes_on_is_what_it_would_be_trained_by(train, monkeypatch, tmp_path, capsys):
    """In mid-epoch another batch is planned, or refused, as `train` does, and the run is left alone."""
    with monkeypatch.context() as patch:
        after_window(patch, 0, lambda: os.kill(os.getpid(), signal.SIGTERM))
        with pytest.raises(Stopped):
            train("cut", batch=2, nbs=4)
    folder = tmp_path / "cut"
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    plan(load_config("plan", python={"resume": str(folder), "batch": 4}))
    told = capsys.readouterr().out
    assert "batch: 2 → 4" in told
    assert f"goes on at image 4 of {8 * EPOCHS}, in epoch 1" in told
    plan(load_config("plan", python={"resume": str(folder), "batch": 4, "json": True}))
    document = json.loads(capsys.readouterr().out)
    with pytest.raises(ConfigError, match="no window of the new plan begins at image 4"):
        plan(load_config("plan", python={"resume": str(folder), "batch": 3}))
    with pytest.raises(ConfigError, match="imgsz = 96: the run to go on has 64, which cannot change"):
        plan(load_config("plan", python={"resume": str(folder), "imgsz": 96}))
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    go_on(folder, batch=4)
    trained = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    assert document["windows"] == trained["windows"]
    assert document["batch"] == trained["batch"] == 4


@pytest.mark.slow
def test_in_place_of_a_best_that_is_gone_the_last_weights_are_scored_and_that_is_said(train, monkeypatch, tmp_path):
    finish = train_module._finish

    def after_a_loss(session, folder, parts, recorder, state):
        recorder.checkpoints.best.unlink()
        return finish(session, folder, parts, recorder, state)

    monkeypatch.setattr(train_module, "_finish", after_a_loss)
    result = train("lost")
    assert not result.best.exists()
    assert "best.pt: is gone or could not be written; the last weights" in (tmp_path / "lost/train.log").read_text()
    keys = {"model": str(result.last), "plots": False, "save_dir": str(tmp_path / "scored")}
    assert dict(val_run(load_config("val", python=keys)).metrics) == pytest.approx(dict(result.metrics), abs=1e-9)


def test_a_second_signal_ends_at_once(train, monkeypatch):
    def twice():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    after_window(monkeypatch, 0, twice)
    with pytest.raises(Stopped):
        train("cut")
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("epoch", [2, EPOCHS])
@pytest.mark.slow
def test_validation_is_broken_off_by_a_signal_and_made_up_for(train, monkeypatch, tmp_path, epoch):
    whole = train("whole")
    score, calls = Scorer.score, []

    def interrupted(self, network, interrupt=None):
        calls.append(None)
        if len(calls) == epoch:
            os.kill(os.getpid(), signal.SIGTERM)
        return score(self, network, interrupt)

    with monkeypatch.context() as patch:
        patch.setattr(Scorer, "score", interrupted)
        with pytest.raises(Stopped):
            train("cut")
    assert load_checkpoint(tmp_path / "cut" / "weights" / "last.pt")["plan"]["epoch"] == epoch - 1
    go_on(tmp_path / "cut")
    assert_same_run(tmp_path / "cut", whole.save_dir)


def test_a_killed_run_goes_on_from_the_middle_of_an_epoch(train, monkeypatch, tmp_path):
    """As kill -9 leaves it: what is on disk, nothing else."""
    whole = train("whole", norm="group")
    with monkeypatch.context() as patch:
        after_window(patch, 2, lambda: shutil.copytree(tmp_path / "cut", tmp_path / "killed"))
        train("cut", norm="group", save_minutes=1e-9)
    stored = load_checkpoint(tmp_path / "killed" / "weights" / "last.pt")
    assert stored["plan"]["window"] == 2  # the copy was made before the third window was saved
    go_on(tmp_path / "killed")
    assert_same_run(tmp_path / "killed", whole.save_dir)


@pytest.mark.slow
def test_a_killed_run_goes_on_in_the_middle_of_a_window_that_two_epochs_share(train, monkeypatch, tmp_path):
    settings = {"tail": "carry", "nbs": 6, "val_interval": 2}
    whole = train("whole", **settings)
    for index in range(3):
        with monkeypatch.context() as patch:
            killed = tmp_path / f"killed{index}"
            after_window(patch, index, lambda killed=killed: shutil.copytree(tmp_path / "cut", killed))
            train("cut", exist_ok=True, save_minutes=1e-9, **settings)
        go_on(killed)
        assert_same_run(killed, whole.save_dir)


@pytest.mark.slow
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(train, tmp_path, capsys):
    whole = train("whole")
    train("cut")
    last = tmp_path / "cut" / "weights" / "last.pt"
    (tmp_path / "cut" / "results.json").unlink()
    data = bytearray(last.read_bytes())
    data[len(data) // 2] ^= 1
    last.write_bytes(data)
    capsys.readouterr()
    go_on(tmp_path / "cut", quiet=False)
    told = capsys.readouterr().out
    assert "last.pt: is damaged (its digest does not fit)" in told
    assert "going on from" in told
    assert_same_run(tmp_path / "cut", whole.save_dir)
    assert (last.parent / "damaged.pt").read_bytes() == data
    last.unlink()
    (tmp_path / "cut" / "results.json").unlink()
    go_on(tmp_path / "cut")
    assert_same_run(tmp_path / "cut", whole.save_dir)


def test_where_both_checkpoints_are_damaged_both_are_told(train, tmp_path):
    train("cut")
    for name in ("last.pt", "previous.pt"):
        (tmp_path / "cut" / "weights" / name).write_bytes(b"PK\x03\x04")
    with pytest.raises(CheckpointError) as caught:
        go_on(tmp_path / "cut")
    assert len(caught.value.faults) == 2


@pytest.mark.slow
def test_weights_that_are_not_finite_are_refused(train, tmp_path):
    result = train("run")
    values = load_checkpoint(result.best)
    next(iter(values["ema"].values())).fill_(float("nan"))
    save_checkpoint(result.best, {key: value for key, value in values.items() if key != "format"})
    with pytest.raises(CheckpointError, match=r"best\.pt: ema '.*' holds numbers that are not finite"):
        load_checkpoint(result.best)


@pytest.mark.slow
def test_a_run_that_had_saved_nothing_starts_over_in_its_folder(train, tmp_path, capsys):
    whole = train("whole")
    train("cut")
    shutil.rmtree(tmp_path / "cut" / "weights")
    go_on(tmp_path / "cut", quiet=False)
    assert "the run had not saved anything yet, so it starts over there" in capsys.readouterr().out
    assert_same_run(tmp_path / "cut", whole.save_dir)


def test_a_folder_without_a_run_cannot_be_resumed(tmp_path):
    with pytest.raises(ConfigError, match=r"holds neither weights.last\.pt nor args\.yaml, so no run was begun there"):
        go_on(tmp_path)


def failing(times, save):
    """As if the disk were full for the first so many checkpoints."""
    calls = []

    def save_or_fail(path, values, **keys):
        calls.append(path.name)
        if len(calls) <= times:
            raise SaveError(f"{path}: cannot be written ({os.strerror(errno.ENOSPC)}); it takes 1.0 MB")
        save(path, values, **keys)

    return save_or_fail


@pytest.mark.slow
def test_a_full_disk_is_told_and_training_goes_on(train, monkeypatch, tmp_path, capsys):
    whole = train("whole")
    monkeypatch.setattr(saving_module, "save_checkpoint", failing(3, save_checkpoint))
    train("full")
    assert "last.pt: cannot be written (No space left on device); it takes 1.0 MB; training goes on" in (
        capsys.readouterr().out
    )
    assert_same_run(tmp_path / "full", whole.save_dir)


@pytest.mark.slow
def test_a_run_that_could_never_be_saved_says_so_at_its_end(train, monkeypatch):
    monkeypatch.setattr(saving_module, "save_checkpoint", failing(99, save_checkpoint))
    with pytest.raises(CheckpointError, match=r"last\.pt: the run has ended and could not be saved; make room"):
        train("full")


@pytest.mark.slow
def test_a_folder_that_is_deleted_in_mid_run_does_not_end_it(train, monkeypatch, tmp_path, capsys):
    whole = train("whole")
    after_window(monkeypatch, 2, lambda: shutil.rmtree(tmp_path / "gone"))
    train("gone")
    assert "training goes on without it" in capsys.readouterr().out
    one, other = (
        load_checkpoint(folder / "weights" / "last.pt")["model"] for folder in (tmp_path / "gone", whole.save_dir)
    )
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.slow
def test_changed_labels_are_told_when_a_run_goes_on(train, tmp_path, capsys):
    train("cut")
    label = next((tmp_path / "data" / "labels" / "train").glob("*.txt"), None) or next(
        tmp_path.rglob("labels/train/*.txt")
    )
    label.write_text("0 .5 .5 .25 .25\n")
    go_on(tmp_path / "cut", epochs=EPOCHS + 1, quiet=False)
    assert "data: labels, sizes or file names have changed" in capsys.readouterr().out
