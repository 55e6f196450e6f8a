"""A terminal gets a live line; a pipe gets plain lines; both and the log file say the same."""

import io
import re
import subprocess
import sys

import pytest

from visiontrain.loggers.console import ConsoleLogger
from visiontrain.loggers.file import FileLogger
from visiontrain.loggers.lines import format_duration, short_name

START = {
    "lines": ["batch 8 × accumulate 8 = 64 images per update"],
    "epochs": 10,
    "images_per_epoch": 128,
    "loss_columns": ("box_loss", "cls_loss"),
    "metric_columns": ("metrics/precision(B)", "metrics/mAP50-95(B)"),
}
END = {"lines": ["results in runs/detect/train"], "table": "class  images\nall        12"}
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f]")


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def epoch_row(epoch, **extra):
    values = {"epoch": epoch, "time": 9.0 * epoch, "updates": 2 * epoch, "train/box_loss": 1.25, "train/cls_loss": 0.5}
    return values | {"t_data": 1.0, "t_step": 7.0, "t_val": 1.0} | extra


def window(epoch, done):
    losses = {"box_loss": 1.5, "cls_loss": 0.25}
    return {"epoch": epoch, "epochs": 10, "images_done": done, "num_images": 128, "update": 3, "losses": losses} | {
        "lr": 0.01
    }


def run(logger, clock=None):
    logger.log("start", START)
    for epoch in (1, 2):
        for done in (64, 128):
            if clock:
                clock.now += 4
            logger.log("window", window(epoch, done))
        metrics = {"metrics/precision(B)": 0.75, "metrics/mAP50-95(B)": float("nan")} if epoch == 2 else {}
        logger.log("epoch", epoch_row(epoch, **metrics))
    logger.log("end", END)
    logger.close()


def test_a_pipe_gets_one_plain_line_an_epoch_and_the_table():
    stream = io.StringIO()
    run(ConsoleLogger(stream=stream))
    text = stream.getvalue()
    assert not CONTROL.search(text)
    assert text.splitlines() == [
        "batch 8 × accumulate 8 = 64 images per update",
        "epoch  updates    box    cls      P  mAP50-95  img/s     time",
        " 1/10        2  1.250  0.500      -         -     16       9s",
        " 2/10        4  1.250  0.500  0.750         -     16       9s",
        "",
        "class  images",
        "all        12",
        "",
        "results in runs/detect/train",
    ]


def test_the_log_file_holds_what_the_pipe_gets(tmp_path):
    stream = io.StringIO()
    run(ConsoleLogger(stream=stream))
    run(FileLogger(tmp_path / "train.log"))
    assert (tmp_path / "train.log").read_text(encoding="utf-8") == stream.getvalue()


def test_the_log_file_of_a_resumed_run_is_appended_to(tmp_path):
    for _ in range(2):
        run(FileLogger(tmp_path / "train.log"))
    assert (tmp_path / "train.log").read_text(encoding="utf-8").count("results in") == 2


def test_a_terminal_sees_progress_losses_speed_and_time_left(monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    stream, clock = Terminal(), Clock()
    run(ConsoleLogger(stream=stream, clock=clock), clock)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
    assert "epoch 1/10" in text
    assert "128/128 update 3 box 1.500  cls 0.250 16 img/s left 0s, run 1:12" in text  # 9 epochs of 8 s
    assert "64/128 update 3 box 1.500  cls 0.250 16 img/s left 4s, run" in text
    assert " 2/10        4  1.250" in text


def test_a_narrow_terminal_gets_whole_words(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    stream, clock = Terminal(), Clock()
    run(ConsoleLogger(stream=stream, clock=clock), clock)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
    assert "epoch 2/10 64/128 box 1.500  cls 0.250 left 4s, run" in text
    assert "…" not in text


def test_the_cursor_comes_back_however_the_run_ends():
    stream = Terminal()
    logger = ConsoleLogger(stream=stream)
    logger.log("start", START)
    logger.log("window", window(1, 64))
    logger.close()
    logger.close()
    assert stream.getvalue().rfind("\x1b[?25h") > stream.getvalue().rfind("\x1b[?25l")


def test_a_run_resumed_in_mid_epoch_does_not_count_the_images_before(monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    stream, clock = Terminal(), Clock()
    logger = ConsoleLogger(stream=stream, clock=clock)
    logger.log("start", START)
    logger.log("window", window(5, 96))
    clock.now += 2
    logger.log("window", window(5, 112))
    logger.close()
    assert "8 img/s" in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())


def test_a_warning_is_printed_above_the_progress_line_which_comes_back(monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    stream, clock = Terminal(), Clock()
    logger = ConsoleLogger(stream=stream, clock=clock)
    logger.log("start", START)
    logger.log("window", window(1, 32))
    logger.log("warning", {"text": "window 3 was left out"})
    clock.now += 2
    logger.log("window", window(1, 64))
    logger.close()
    before, after = stream.getvalue().split("warning: window 3 was left out\n")
    assert "32/128" in before
    assert "64/128" in after
    assert "16 img/s" in after  # the epoch's clock ran on


def test_a_warning_is_in_the_log_file(tmp_path):
    FileLogger(tmp_path / "train.log").log("warning", {"text": "größer"})
    assert (tmp_path / "train.log").read_text(encoding="utf-8") == "warning: größer\n"


def test_quiet_prints_warnings_and_results_alone():
    stream = Terminal()
    logger = ConsoleLogger(quiet=True, stream=stream)
    logger.log("start", {"lines": ["a banner"], "epochs": 1})
    logger.log("window", {})
    logger.log("epoch", {"epoch": 1})
    logger.log("warning", {"text": "look"})
    logger.log("end", {"lines": ["done"], "table": "a table"})
    assert stream.getvalue().split() == ["warning:", "look", "a", "table", "done"]


def test_a_stream_that_lacks_a_sign_gets_a_question_mark():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    run(ConsoleLogger(stream=stream))
    assert stream.buffer.getvalue().startswith(b"batch 8 ? accumulate 8")


def test_rich_is_not_imported_without_a_terminal():
    code = (
        "import io, sys; from visiontrain.loggers.console import ConsoleLogger;"
        "ConsoleLogger(stream=io.StringIO()); assert 'rich' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("seconds", "text"), [(-1, "0s"), (0.4, "0s"), (59.4, "59s"), (59.6, "1:00"), (187, "3:07"), (3723, "1:02:03")]
)
def test_durations_read_as_clocks(seconds, text):
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("column", "name"),
    [("train/box_loss", "box"), ("train/loss", "loss"), ("metrics/recall(B)", "R"), ("metrics/accuracy_top1", "top1")],
)
def test_columns_have_short_names(column, name):
    assert short_name(column) == name
