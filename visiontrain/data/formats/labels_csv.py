"""CSV files of image paths and labels.

The first line names the columns: `path` (or `image`, `filename`), `label` (or `labels`, `class`), and where one file
holds several splits `split` (`train`, `val`, `valid`, `validation` or `test`). Values are separated by commas; a value
that holds one stands in double quotes. Paths are relative to the folder of the file.

An image of several classes has them all in its label, separated by `|` or `;`; an image without a label is background.

`data=` takes a CSV file, a folder that holds `train.csv` and where there are any `val.csv` and `test.csv`, or a YAML
that names CSV files: `train: …`, `val: …`, and `names` where the order of classes matters.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from visiontrain.data.formats.class_labels import Listed, read_layout
from visiontrain.data.formats.description import (
    SPLIT_KEYS,
    entries_of,
    given_names,
    key_notes,
    load_yaml,
    refuse_image_folders,
    root_of,
    yaml_of,
)
from visiontrain.data.formats.files import SHOWN, Remarks, folder_listing, is_file, visible_files
from visiontrain.data.formats.image_folders import SPLIT_OF, by_split, is_described
from visiontrain.data.images import MAX_PIXELS
from visiontrain.errors import DataError
from visiontrain.sample import DataSet

SUFFIX = ".csv"
PATH_COLUMNS = ("path", "image", "filename")
LABEL_COLUMNS = ("label", "labels", "class")
SPLIT_COLUMN = "split"
BOX_COLUMNS = ("xmin", "x1", "bbox")
"""What tells a CSV of detection, which is no format of ours, from one of classification."""
LABEL_SEPARATORS = re.compile(r"[|;]")


class LabelsCsvReader:
    """Reads CSV files of labels. A `Reader`."""

    def recognizes(self, source: Path) -> bool:
        try:
            files = _describe(source).files
        except DataError:
            return False
        is_named = not source.is_dir() or is_described(source)  # and not guessed: this reader tells what is wrong
        return bool(files) and (is_named or all(map(_has_header, files.values())))

    def read(self, source: Path, splits: Sequence[str], *, max_pixels: int = MAX_PIXELS) -> DataSet:
        """Read those of `splits` that there are.

        Args:
            source: A CSV file, a YAML that names some, or a folder that holds one or the other.
            splits: Of `train`, `val`, `test`.
            max_pixels: A larger image is left out.

        Raises:
            DataError: If a file is wrong, or no split can be read; all faults at once.
        """
        described = _describe(source)
        if not described.files:
            raise DataError(f"{source}: holds no train{SUFFIX}; give a CSV file, or a folder that holds such files")
        layout = _read_tables(described.files)
        notes = [*described.notes, *layout.notes]
        return read_layout(source, layout, splits, given_names=described.names, notes=notes, max_pixels=max_pixels)


class _Described(NamedTuple):
    files: Mapping[str, Path]
    """Of each split; one file of all splits stands under ""."""
    names: tuple[str, ...] | None = None
    notes: Sequence[str] = ()


class _Row(NamedTuple):
    """A line of a file, as it stands there."""

    path: str
    labels: tuple[str, ...]
    split: str
    line: int


@dataclass(frozen=True)
class _Table:
    """A CSV file, all of whose rows are right."""

    file: Path
    rows: Sequence[_Row]
    has_splits: bool
    unused_columns: Sequence[str]


@dataclass(frozen=True)
class _CsvLayout:
    """A `Layout`."""

    tables: Mapping[str, _Table]
    """Of each split."""

    @property
    def splits(self) -> Sequence[str]:
        return tuple(self.tables)

    @property
    def notes(self) -> list[str]:
        unused = {table.file: table.unused_columns for table in self.tables.values() if table.unused_columns}
        return [f"{file}: columns {', '.join(columns)}: not used" for file, columns in unused.items()]

    def place_of(self, split: str) -> Path:
        return self.tables[split].file

    def classes_of(self, split: str) -> tuple[str, ...]:
        return tuple(sorted({label for row in self.tables[split].rows for label in row.labels}))

    def images_of(self, split: str, remarks: Remarks) -> list[Listed]:
        table = self.tables[split]
        folder = table.file.parent
        listed: list[Listed] = []
        missing: list[_Row] = []
        seen: set[tuple[str, tuple[str, ...]]] = set()
        for row in table.rows:
            image = Path(os.path.normpath(folder / row.path))
            if (row.path, row.labels) in seen:
                remarks.add("row-twice", table.file, row.line, row.path)
            elif not is_file(image):
                remarks.add("image-missing", table.file, row.line, repr(row.path))
                missing.append(row)
            else:
                listed.append(Listed(image, row.labels, table.file, row.line))
            seen.add((row.path, row.labels))
        if missing:
            shown = ", ".join(f"{row.path!r} (line {row.line})" for row in missing[:SHOWN])
            remarks.refuse(
                f"{table.file}: {len(missing)} of its {len(table.rows)} images do not exist: {shown}"
                f"{', …' * (len(missing) > SHOWN)}; paths are relative to {folder}: correct them, or remove the rows"
            )
        return listed


def _describe(source: Path) -> _Described:
    """Which files there are; none where `source` holds no CSV.

    Raises:
        DataError: If the YAML is wrong.
    """
    if source.suffix.lower() == SUFFIX and source.is_file():
        return _Described({"": source})
    if is_described(source):
        return _described(yaml_of(source))
    if not source.is_dir():
        return _Described({})
    return _Described(by_split(visible_files(source, SUFFIX), source))


def _described(yaml_path: Path) -> _Described:
    description = load_yaml(yaml_path)
    entries = {split: entries_of(description, split, yaml_path) for split in SPLIT_KEYS}
    paths = [path for of_split in entries.values() for _, path in of_split]
    if not any(path.suffix.lower() == SUFFIX for path in paths):
        return _Described({})
    faults = [
        f"{what}: is {'several files' if len(of_split) > 1 else 'no CSV file'}; give one CSV file for each split"
        for of_split in entries.values()
        for what, path in of_split
        if len(of_split) > 1 or path.suffix.lower() != SUFFIX
    ]
    if faults:
        raise DataError(faults)
    refuse_image_folders(description, yaml_path)
    root, names = root_of(description, yaml_path), given_names(description, yaml_path)
    files = {split: Path(os.path.normpath(root / of_split[0][1])) for split, of_split in entries.items() if of_split}
    return _Described(files, names, key_notes(description, yaml_path))


def _read_tables(files: Mapping[str, Path]) -> _CsvLayout:
    """The rows of every split.

    Raises:
        DataError: With the faults of all files.
    """
    tables: dict[str, _Table] = {}
    faults: list[str] = []
    for split, file in files.items():
        try:
            table = _read_table(file)
            if split and table.has_splits:
                raise DataError(
                    f"{file}: has a column {SPLIT_COLUMN}, but is all {split}; drop the column, or give this file alone"
                )
        except DataError as error:
            faults.extend(error.faults)
            continue
        if split:
            tables[split] = table
        else:
            tables = _cut_into_splits(table)
    if faults:
        raise DataError(faults)
    return _CsvLayout(tables)


def _cut_into_splits(table: _Table) -> dict[str, _Table]:
    """The splits of a file of several; all of it is train where it does not tell."""
    if not table.has_splits:
        return {"train": table}
    rows_of: dict[str, list[_Row]] = {split: [] for split in SPLIT_KEYS}
    for row in table.rows:
        rows_of[SPLIT_OF[row.split]].append(row)
    return {
        split: _Table(table.file, rows, table.has_splits, table.unused_columns)
        for split, rows in rows_of.items()
        if rows
    }


def _read_table(file: Path) -> _Table:
    lines = _parse(file)
    if not lines:
        raise DataError(f"{file}: is empty; its first line names the columns, such as path,label")
    header = [cell.strip().lower() for cell in lines[0][1]]
    boxes = [name for name in header if name in BOX_COLUMNS]
    if boxes:
        raise DataError(f"{file}: has a column {boxes[0]}; boxes are read from YOLO, COCO or Pascal VOC files only")
    path_at, label_at = _column(header, PATH_COLUMNS, file), _column(header, LABEL_COLUMNS, file)
    split_at = header.index(SPLIT_COLUMN) if SPLIT_COLUMN in header else None
    rows: list[_Row] = []
    faults: list[str] = []
    for line, cells in lines[1:]:
        cells = [cell.strip() for cell in cells]
        if not any(cells):
            continue
        split = cells[split_at].lower() if split_at is not None and split_at < len(cells) else ""
        if len(cells) != len(header):
            faults.append(
                f"{file}:{line}: holds {len(cells)} values for {len(header)} columns; put a value that holds a comma "
                "in double quotes"
            )
        elif not cells[path_at]:
            faults.append(f"{file}:{line}: names no image; give its path, or remove the row")
        elif split_at is not None and split not in SPLIT_OF:
            faults.append(f"{file}:{line}: {SPLIT_COLUMN} = {cells[split_at]!r}; it is one of {', '.join(SPLIT_OF)}")
        else:
            labels = [label.strip() for label in LABEL_SEPARATORS.split(cells[label_at])]
            rows.append(_Row(cells[path_at], tuple(dict.fromkeys(filter(None, labels))), split, line))
    if faults:
        more = [f"{file}: {len(faults) - SHOWN} more rows of this kind"] if len(faults) > SHOWN else []
        raise DataError(faults[:SHOWN] + more)
    used = {path_at, label_at, split_at}
    return _Table(file, rows, split_at is not None, [name for at, name in enumerate(header) if at not in used])


def _parse(file: Path) -> list[tuple[int, list[str]]]:
    """Every row with the number of its last line."""
    if not is_file(file):
        raise DataError(f"{file}: there is no such file; {folder_listing(file.parent)}")
    try:
        # Not `read_text`, which turns the line ends inside quotes into others.
        reader = csv.reader(io.StringIO(file.read_bytes().decode("utf-8-sig"), newline=""), strict=True)
        return [(reader.line_num, cells) for cells in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{file}: cannot be read as CSV ({error}); save it as UTF-8, separated by commas") from error


def _column(header: list[str], choices: tuple[str, ...], file: Path) -> int:
    """Where the one column is that goes by one of some names."""
    found = [at for at, name in enumerate(header) if name in choices]
    if len(found) == 1:
        return found[0]
    named = f"{len(found)} columns" if found else "no column"
    hint = "separate values by commas" if len(header) == 1 else "name the columns in the first line"
    raise DataError(
        f"{file}: its first line, {','.join(header)!r}, has {named} called {' or '.join(choices)}; it should have one: "
        f"{hint}"
    )


def _has_header(file: Path) -> bool:
    """Whether the first line has a column of paths, one of labels and none of boxes."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as text:
            header = {cell.strip().lower() for cell in next(csv.reader(text), [])}
    except (OSError, UnicodeDecodeError, csv.Error):
        return False
    has_labels = bool(header & set(PATH_COLUMNS)) and bool(header & set(LABEL_COLUMNS))
    return has_labels and not header & set(BOX_COLUMNS)
