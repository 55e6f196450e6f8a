"""TensorBoard's own reader finds every column by epoch and every update once, whatever happened in between."""

import math

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2

from visiontrain.loggers.tensorboard import EVENT_FILES, TensorBoardLogger

SETTINGS = {"batch": 8, "lr0": 0.01, "val": True, "classes": [1, 2], "data": None}


def row(epoch, **extra):
    return {"epoch": epoch, "updates": 2 * epoch, "train/box_loss": 1 / epoch, "metrics/mAP50(B)": None, **extra}


def updates(*numbers):
    return {"rows": [{"update": number, "box_loss": 0.5 * number, "lr": 0.01} for number in numbers]}


def write(folder, epochs, **place):
    logger = TensorBoardLogger(folder, settings=SETTINGS, **place)
    for epoch in epochs:
        logger.log("updates", updates(2 * epoch - 1, 2 * epoch))
        logger.log("epoch", row(epoch))
    logger.close()
    return logger


def read(folder):
    events = EventAccumulator(str(folder))
    events.Reload()
    return {tag: [(one.step, one.value) for one in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_columns_stand_at_their_epoch_and_updates_at_their_number(tmp_path):
    write(tmp_path, [1, 2])
    scalars = read(tmp_path)
    assert scalars["train/box_loss"] == [(1, 1.0), (2, 0.5)]
    assert scalars["updates"] == [(1, 2.0), (2, 4.0)]
    assert scalars["update/box_loss"] == [(1, 0.5), (2, 1.0), (3, 1.5), (4, 2.0)]
    assert [step for step, _ in scalars["update/lr"]] == [1, 2, 3, 4]
    assert "metrics/mAP50(B)" not in scalars  # nothing was validated
    assert "epoch" not in scalars


def test_an_event_can_be_read_when_log_returns(tmp_path):
    logger = TensorBoardLogger(tmp_path, settings={})
    logger.log("epoch", row(1))
    assert read(tmp_path)["train/box_loss"] == [(1, 1.0)]


@pytest.mark.parametrize("kept", range(4))
def test_a_run_that_goes_on_has_neither_gap_nor_duplicate(tmp_path, kept):
    write(tmp_path, [1, 2, 3])
    write(tmp_path, range(kept + 1, 5), epoch=kept, update=2 * kept)
    scalars = read(tmp_path)
    assert [step for step, _ in scalars["train/box_loss"]] == [1, 2, 3, 4]
    assert [step for step, _ in scalars["update/lr"]] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert len(list(tmp_path.glob(EVENT_FILES))) == 1


def test_updates_of_an_epoch_under_way_are_kept_up_to_the_checkpoint(tmp_path):
    write(tmp_path, [1]).log("updates", updates(3, 4, 5))
    write(tmp_path, [], epoch=1, update=4)
    assert [step for step, _ in read(tmp_path)["update/lr"]] == [1, 2, 3, 4]


def test_a_new_run_in_an_old_folder_starts_empty(tmp_path):
    write(tmp_path, [1, 2])
    write(tmp_path, [])
    assert read(tmp_path) == {}


def test_an_event_that_was_cut_off_by_a_crash_is_dropped(tmp_path):
    write(tmp_path, [1, 2])
    (path,) = tmp_path.glob(EVENT_FILES)
    path.write_bytes(path.read_bytes()[:-5])
    write(tmp_path, [2, 3], epoch=1, update=2)
    assert [step for step, _ in read(tmp_path)["updates"]] == [1, 2, 3]


def test_two_files_of_a_run_that_was_killed_while_it_resumed_count_once(tmp_path):
    write(tmp_path, [1, 2])
    (path,) = tmp_path.glob(EVENT_FILES)
    path.with_name("events.out.tfevents.0000000001.visiontrain").write_bytes(path.read_bytes())
    write(tmp_path, [3], epoch=2, update=4)
    assert [step for step, _ in read(tmp_path)["updates"]] == [1, 2, 3]


def test_what_a_full_disk_has_cut_off_hides_nothing_that_follows(tmp_path):
    logger = write(tmp_path, [1])
    (path,) = tmp_path.glob(EVENT_FILES)
    with path.open("ab") as file:
        file.write(b"half a record")
    logger.log("epoch", row(2))
    assert [step for step, _ in read(tmp_path)["updates"]] == [1, 2]


def test_a_folder_that_is_gone_is_an_error_where_it_happens(tmp_path):
    (tmp_path / "run").mkdir()
    logger = TensorBoardLogger(tmp_path / "run", settings={})
    for path in (tmp_path / "run").iterdir():
        path.unlink()
    with pytest.raises(FileNotFoundError):
        logger.log("epoch", row(1))


def test_settings_stand_beside_the_score_of_the_best_weights(tmp_path):
    logger = write(tmp_path, [1, 2])
    logger.log("end", {"lines": [], "metrics": {"metrics/mAP50(B)": 0.25, "metrics/recall(B)": math.nan}})
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert [(one.step, one.value) for one in events.Scalars("best/mAP50(B)")] == [(2, 0.25)]
    assert "best/recall(B)" not in events.Tags()["scalars"]
    content = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    shown = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info.hparams
    assert shown["batch"].number_value == 8
    assert shown["lr0"].number_value == 0.01
    assert {key: shown[key].string_value for key in ("val", "classes", "data")} == {
        "val": "True",
        "classes": "[1, 2]",
        "data": "None",
    }
    content = events.SummaryMetadata("_hparams_/experiment").plugin_data.content
    experiment = plugin_data_pb2.HParamsPluginData.FromString(content).experiment
    assert [info.name.tag for info in experiment.metric_infos] == ["best/mAP50(B)"]


def test_a_run_that_is_extended_has_one_score_of_its_best_weights(tmp_path):
    write(tmp_path, [1, 2]).log("end", {"metrics": {"metrics/mAP50(B)": 0.25}})
    write(tmp_path, [3], epoch=2, update=4).log("end", {"metrics": {"metrics/mAP50(B)": 0.5}})
    assert [value for _, value in read(tmp_path)["best/mAP50(B)"]] == [0.5]
