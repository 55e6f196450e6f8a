"""`results.csv`: one row an epoch, on disk when the epoch ends."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from visiontrain.errors import DataError

EPOCH = "epoch"


class CsvLogger:
    """Appends a row to a CSV file for each `epoch` event. The header is fixed, and no epoch has two rows.

    A file that exists is continued; `truncate_after` drops the rows of epochs that are about to be repeated. A last
    row that was cut off by a crash is dropped.
    """

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        """
        Args:
            path: The file; written at once if it does not exist.
            columns: The header, `epoch` among it.

        Raises:
            DataError: If the file exists and is no table, or has another header.
        """
        assert EPOCH in columns
        self._path = path
        self._columns = tuple(columns)
        rows = _read_rows(path)
        if rows and tuple(rows[0]) != self._columns:
            raise DataError(
                f"{path}: its columns are {','.join(rows[0])}; this run writes {','.join(self._columns)}: "
                "move the file away or give another folder (save_dir, name)"
            )
        kept = [row for row in rows[1:] if len(row) == len(self._columns)]
        self._last_epoch = max((self._epoch_of(row) for row in kept), default=0)
        if not rows or len(kept) < len(rows) - 1 or not path.read_bytes().endswith(b"\n"):
            self._write(kept)

    def truncate_after(self, epoch: int) -> None:
        """Drop the rows of epochs after `epoch` (counted from 1; 0 drops all): a resumed run writes them again."""
        rows = [row for row in _read_rows(self._path)[1:] if self._epoch_of(row) <= epoch]
        self._write(rows)
        self._last_epoch = max((self._epoch_of(row) for row in rows), default=0)

    def log(self, event: str, values: Mapping[str, Any]) -> None:
        """Append a row where `event` is `epoch`. A missing value or None makes an empty cell.

        Raises:
            ValueError: If `values` has a name that is no column, or its epoch is in the file already.
        """
        if event != "epoch":
            return
        unknown = sorted(set(values) - set(self._columns))
        if unknown:
            raise ValueError(f"{self._path}: {', '.join(unknown)} is no column of {','.join(self._columns)}")
        epoch = int(values[EPOCH])
        if epoch <= self._last_epoch:
            raise ValueError(f"{self._path}: epoch {epoch} comes after epoch {self._last_epoch}; truncate_after first")
        line = _to_text([[_to_cell(values.get(column)) for column in self._columns]])
        with self._path.open("a", encoding="utf-8", newline="") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self._last_epoch = epoch

    def close(self) -> None:
        """Nothing is left open between rows."""

    def _epoch_of(self, row: Sequence[str]) -> int:
        text = row[self._columns.index(EPOCH)]
        try:
            return int(float(text))
        except ValueError:
            raise DataError(
                f"{self._path}: epoch {text!r} is not a number; mend the row or move the file away"
            ) from None

    def _write(self, rows: Sequence[Sequence[str]]) -> None:
        """Replace the whole file; a crash leaves the old one or the new one."""
        temporary = self._path.with_name(self._path.name + ".tmp")
        with temporary.open("w", encoding="utf-8", newline="") as file:
            file.write(_to_text([self._columns, *rows]))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._path)


def _read_rows(path: Path) -> list[list[str]]:
    """All complete rows, the header first; empty where there is no file. What follows the last end of line is torn.

    Raises:
        DataError: If the file is no table.
    """
    if not path.exists():
        return []
    try:
        text = path.read_text(encoding="utf-8")
        return [row for row in csv.reader(io.StringIO(text[: text.rfind("\n") + 1])) if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(
            f"{path}: is not a table of this program ({error}); move the file away or give another folder"
        ) from error


def _to_text(rows: Sequence[Sequence[str]]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    return buffer.getvalue()


def _to_cell(value: Any) -> str:
    """Ten significant digits: more than any metric is reproducible to, and short enough to be read."""
    if value is None:
        return ""
    return format(value, ".10g") if isinstance(value, float) else str(value)
