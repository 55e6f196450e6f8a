"""results.csv has one row an epoch, whatever happens in between."""

import csv
import math

import pytest

from visiontrain.errors import DataError
from visiontrain.loggers import LOGGERS, LogTarget
from visiontrain.loggers.csv import CsvLogger
from visiontrain.loggers.packages import TRACKERS

COLUMNS = ("epoch", "time", "train/box_loss", "metrics/mAP50(B)")


def read(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def row(epoch, **extra):
    return {"epoch": epoch, "time": 1.5 * epoch, "train/box_loss": 0.1, **extra}


def write_epochs(path, epochs):
    logger = CsvLogger(path, COLUMNS)
    for epoch in epochs:
        logger.log("epoch", row(epoch))
    logger.close()


def test_the_header_is_there_before_the_first_row(tmp_path):
    CsvLogger(tmp_path / "results.csv", COLUMNS)
    assert (tmp_path / "results.csv").read_bytes() == (",".join(COLUMNS) + "\n").encode()


def test_a_row_is_on_disk_when_log_returns_and_missing_values_are_empty_cells(tmp_path):
    path = tmp_path / "results.csv"
    logger = CsvLogger(path, COLUMNS)
    logger.log("epoch", row(1, **{"metrics/mAP50(B)": None}))
    logger.log("window", {"whatever": 1})
    logger.log("epoch", row(2))
    assert path.read_text(encoding="utf-8").splitlines()[1:] == ["1,1.5,0.1,", "2,3,0.1,"]


def test_numbers_are_read_back_to_nine_digits_and_nan_is_seen(tmp_path):
    path = tmp_path / "results.csv"
    logger = CsvLogger(path, COLUMNS)
    logger.log("epoch", {"epoch": 1, "time": 1 / 3, "train/box_loss": float("nan"), "metrics/mAP50(B)": 1e-7 / 3})
    (values,) = read(path)
    assert float(values["time"]) == pytest.approx(1 / 3, rel=1e-9)
    assert float(values["metrics/mAP50(B)"]) == pytest.approx(1e-7 / 3, rel=1e-9)
    assert math.isnan(float(values["train/box_loss"]))


def test_opening_again_appends_without_a_second_header(tmp_path):
    path = tmp_path / "results.csv"
    write_epochs(path, [1, 2])
    write_epochs(path, [3])
    assert [values["epoch"] for values in read(path)] == ["1", "2", "3"]


@pytest.mark.parametrize("kept", range(4))
def test_replayed_epochs_leave_neither_gap_nor_duplicate(tmp_path, kept):
    path = tmp_path / "results.csv"
    write_epochs(path, [1, 2, 3])
    logger = CsvLogger(path, COLUMNS)
    logger.truncate_after(kept)
    for epoch in range(kept + 1, 6):
        logger.log("epoch", row(epoch))
    assert [values["epoch"] for values in read(path)] == ["1", "2", "3", "4", "5"]
    assert [file.name for file in tmp_path.iterdir()] == ["results.csv"]


@pytest.mark.parametrize("torn", ["3,4.", "3", "3,4.5,0.1,0.2", "3,4.5\n"])
def test_a_row_cut_off_by_a_crash_is_dropped(tmp_path, torn):
    path = tmp_path / "results.csv"
    write_epochs(path, [1, 2])
    with path.open("a", encoding="utf-8", newline="") as file:
        file.write(torn)
    write_epochs(path, [3])
    assert [(values["epoch"], values["time"]) for values in read(path)] == [("1", "1.5"), ("2", "3"), ("3", "4.5")]


@pytest.mark.parametrize("text", ["", "epo"])
def test_a_file_that_a_crash_left_without_a_header_begins_anew(tmp_path, text):
    path = tmp_path / "results.csv"
    path.write_text(text, encoding="utf-8")
    write_epochs(path, [1])
    assert [values["epoch"] for values in read(path)] == ["1"]


def test_another_header_is_refused_and_the_file_left_alone(tmp_path):
    path = tmp_path / "results.csv"
    write_epochs(path, [1])
    before = path.read_bytes()
    with pytest.raises(DataError, match=r"results\.csv: its columns are epoch,time,.*this run writes epoch,other"):
        CsvLogger(path, ("epoch", "other"))
    assert path.read_bytes() == before


def test_a_name_that_is_no_column_and_an_epoch_twice_are_refused(tmp_path):
    logger = CsvLogger(tmp_path / "results.csv", COLUMNS)
    with pytest.raises(ValueError, match="loss is no column"):
        logger.log("epoch", {"epoch": 1, "loss": 2.0})
    logger.log("epoch", row(1))
    with pytest.raises(ValueError, match="epoch 1 comes after epoch 1"):
        logger.log("epoch", row(1))


def test_an_epoch_that_is_no_number_is_refused(tmp_path):
    path = tmp_path / "results.csv"
    path.write_text(",".join(COLUMNS) + "\nx,1,2,3\n", encoding="utf-8")
    with pytest.raises(DataError, match="epoch 'x' is not a number"):
        CsvLogger(path, COLUMNS)


def test_every_logger_of_the_table_takes_a_whole_run(tmp_path):
    for name in LOGGERS.keys() - set(TRACKERS):  # those have tests of their own
        logger = LOGGERS[name](LogTarget(tmp_path, COLUMNS, quiet=True))
        logger.log("start", {"lines": ["banner"], "epochs": 1, "images_per_epoch": 8, "loss_columns": ("box_loss",)})
        logger.log("epoch", row(1))
        logger.log("end", {"lines": [], "table": None})
        logger.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results.csv", "train.log"]
