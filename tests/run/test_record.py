"""Trackers log what results.csv holds and go on where the run does; what fails in them is told and not more."""

from __future__ import annotations

import csv

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from visiontrain.config.load import load_config
from visiontrain.loggers import LOGGERS
from visiontrain.run import record
from visiontrain.run.record import trackers_of
from visiontrain.run.train import train_run

pytestmark = pytest.mark.slow


def scalars_of(folder):
    events = EventAccumulator(str(folder))
    events.Reload()
    return {tag: [(one.step, one.value) for one in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def table_of(folder):
    with (folder / "results.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    ("typed", "names"),
    [
        (None, ()),
        ("tensorboard", ("tensorboard",)),
        ("MLflow, tensorboard ,mlflow", ("mlflow", "tensorboard")),
    ],
)
def test_trackers_are_named_once_whatever_their_case(typed, names):
    assert trackers_of(load_config("train", python={"logger": typed})) == names


def test_tensorboard_holds_every_cell_of_the_table_and_every_update(run_training):
    result = run_training(logger="tensorboard", epochs=3, val_interval=2)
    scalars, rows = scalars_of(result.save_dir), table_of(result.save_dir)
    for column in rows[0].keys() - {"epoch"}:
        cells = {int(row["epoch"]): float(row[column]) for row in rows if row[column]}
        assert dict(scalars[column]) == pytest.approx(cells, rel=1e-6), column
        assert len(scalars[column]) == len(cells)
    assert [step for step, _ in scalars["update/lr"]] == list(range(1, result.updates + 1))
    assert scalars["best/mAP50(B)"][0][1] == pytest.approx(result.metrics["metrics/mAP50(B)"])


def test_nothing_of_it_is_there_unless_asked_for(run_training):
    assert not list(run_training(epochs=1).save_dir.glob("events*"))


def test_a_resumed_run_goes_on_in_its_log(run_training):
    result = run_training(logger="tensorboard", epochs=2)
    train_run(load_config("train", python={"resume": str(result.save_dir), "epochs": 4, "quiet": True}))
    scalars, rows = scalars_of(result.save_dir), table_of(result.save_dir)
    assert [step for step, _ in scalars["train/box_loss"]] == [1, 2, 3, 4]
    assert [step for step, _ in scalars["update/lr"]] == list(range(1, int(rows[-1]["updates"]) + 1))


def test_a_log_may_begin_when_a_run_goes_on(run_training):
    result = run_training(epochs=2)
    python = {"resume": str(result.save_dir), "epochs": 3, "quiet": True, "logger": "tensorboard"}
    train_run(load_config("train", python=python))
    assert [step for step, _ in scalars_of(result.save_dir)["train/box_loss"]] == [3]


class Broken:
    """A logger that cannot write, and cannot be closed."""

    def __init__(self, target):
        pass

    def log(self, event, values):
        raise OSError("the disk is full")

    def close(self):
        raise OSError("still full")


def test_a_tracker_that_cannot_write_is_told_once_and_training_goes_on(run_training, monkeypatch, capsys):
    monkeypatch.setattr(record, "LOGGERS", {**LOGGERS, "tensorboard": Broken})
    result = run_training(logger="tensorboard", epochs=2)
    assert len(table_of(result.save_dir)) == 2
    assert (result.save_dir / "train.log").read_text().count("the disk is full; training goes on without it") == 1
    assert "the log of tensorboard could not be closed: still full" in capsys.readouterr().err


def test_the_log_of_an_older_run_in_the_folder_is_not_continued(run_training):
    run_training(logger="tensorboard", epochs=2)
    result = run_training(logger="tensorboard", epochs=1, exist_ok=True)
    assert [step for step, _ in scalars_of(result.save_dir)["train/box_loss"]] == [1]


def test_waiting_for_data_is_told_at_an_epochs_end_and_at_the_runs(run_training, monkeypatch):
    monkeypatch.setattr("visiontrain.run.waiting.LEAST_SECONDS", 0.0)
    monkeypatch.setattr("visiontrain.run.waiting.WORTH_SAYING", 0.0)
    log = (run_training(epochs=3).save_dir / "train.log").read_text()
    assert log.count("warning: data took ") == 1
    assert log.count("data took ") == 2
    assert log.index("warning: data took ") < log.index("  2/3  ")
    assert log.rstrip().splitlines()[-1].startswith("data took ")
