"""What a run says, as lines of text: shared by the console and `train.log`.

Epochs make a table: its header is printed once, its columns keep their width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from visiontrain.loggers.tables import NOT_AVAILABLE, fixed, metrics_table

_SHORT = {"precision": "P", "recall": "R", "accuracy_top1": "top1", "accuracy_top5": "top5"}
_TRAINING_TIMES = ("t_data", "t_step")
_LEAST_WIDTH = 5  # of a number such as 0.123


def short_name(column: str) -> str:
    """The heading of a CSV column: `train/box_loss` is `box`, `metrics/mAP50(B)` is `mAP50`."""
    name = column.rpartition("/")[2].removesuffix("(B)").removeprefix("accuracy_")
    return _SHORT.get(name, name.removesuffix("_loss"))


def format_duration(seconds: float) -> str:
    """`42s`, `3:07`, `1:02:03`."""
    whole = max(0, round(seconds))
    hours, minutes = divmod(whole // 60, 60)
    if hours:
        return f"{hours}:{minutes:02}:{whole % 60:02}"
    return f"{minutes}:{whole % 60:02}" if minutes else f"{whole}s"


class RunLines:
    """Turns the events of a run into lines. Holds what `start` said, which is where the columns come from."""

    def __init__(self) -> None:
        self._epochs = 0
        self._images_per_epoch = 0
        self._losses: tuple[str, ...] = ()
        self._metrics: tuple[str, ...] = ()
        self._needs_header = True

    def of(self, event: str, values: Mapping[str, Any]) -> list[str]:
        """The lines of an event; none for one that is not told in lines."""
        tell = {
            "start": self.start,
            "epoch": self.epoch,
            "windows": self.windows,
            "note": self.note,
            "warning": self.warning,
            "end": self.end,
        }
        return tell[event](values) if event in tell else []

    def start(self, values: Mapping[str, Any]) -> list[str]:
        """The banner."""
        self._epochs = int(values.get("epochs", 0))
        self._images_per_epoch = int(values.get("images_per_epoch", 0))
        self._losses = tuple(f"train/{column.rpartition('/')[2]}" for column in values.get("loss_columns", ()))
        self._metrics = tuple(values.get("metric_columns", ()))
        self._needs_header = True
        return list(values.get("lines", ()))

    def windows(self, values: Mapping[str, Any]) -> list[str]:
        """The images of each window that an epoch closed, as they were trained on: `24, 3 × 32, 40`."""
        counted = [(size, len(list(members))) for size, members in groupby(values["images"])]
        sizes = ", ".join(f"{count} × {size}" if count > 1 else str(size) for size, count in counted)
        return [f"  windows of epoch {values['epoch']}: {sizes or 'none'}"]

    def epoch(self, row: Mapping[str, Any]) -> list[str]:
        """One line for an epoch, by its CSV names; the header before the first."""
        training, whole = _epoch_seconds(row, _TRAINING_TIMES), _epoch_seconds(row, (*_TRAINING_TIMES, "t_val"))
        columns = [
            (f"{'epoch':>{2 * len(str(self._epochs)) + 1}}", f"{row.get('epoch', '')}/{self._epochs}"),
            ("updates", _number(row.get("updates"), digits=0)),
            *((short_name(column), _number(row.get(column))) for column in (*self._losses, *self._metrics)),
            ("img/s", _number(self._images_per_epoch / training if training else None, digits=0)),
            (f"{'time':>7}", NOT_AVAILABLE if whole is None else format_duration(whole)),
        ]
        widths = [max(len(heading), _LEAST_WIDTH) for heading, _ in columns]
        lines = [_join([heading for heading, _ in columns], widths)] if self._needs_header else []
        self._needs_header = False
        return [*lines, _join([cell for _, cell in columns], widths)]

    def note(self, values: Mapping[str, Any]) -> list[str]:
        """What was measured beside the table of epochs; for `train.log` alone."""
        return [f"  {values['text']}"]

    def warning(self, values: Mapping[str, Any]) -> list[str]:
        """What the user should know before the run goes on."""
        return [f"warning: {values['text']}"]

    def end(self, values: Mapping[str, Any]) -> list[str]:
        """The table of metrics and the closing lines."""
        table = values.get("table")
        text = "" if table is None else table if isinstance(table, str) else metrics_table(table)
        return [*(("", *text.splitlines(), "") if text else ()), *values.get("lines", ())]


def _epoch_seconds(row: Mapping[str, Any], parts: Sequence[str]) -> float | None:
    """The time of an epoch's `parts`; None where the row has none of them."""
    known = [float(row[part]) for part in parts if row.get(part) is not None]
    return sum(known) if known else None


def _number(value: Any, digits: int = 3) -> str:
    return NOT_AVAILABLE if value is None else fixed(float(value), digits)


def _join(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
