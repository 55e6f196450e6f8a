"""Data formats: one file each, and a line in `FORMATS`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from visiontrain.data.formats.coco import CocoReader
from visiontrain.data.formats.files import folder_listing
from visiontrain.data.formats.voc import VocReader
from visiontrain.data.formats.yolo import YoloReader
from visiontrain.data.images import MAX_PIXELS
from visiontrain.errors import ConfigError, DataError
from visiontrain.protocols import Reader
from visiontrain.sample import DataSet

FORMATS: Mapping[str, Reader] = {
    "yolo": YoloReader(),
    "coco": CocoReader(),
    "voc": VocReader(),
}
AUTO = "auto"
"""Stands for whichever format recognizes the data set."""


def read_data_set(
    source: Path | str,
    *,
    splits: Sequence[str] = ("train", "val", "test"),
    data_format: str = AUTO,
    max_pixels: int = MAX_PIXELS,
    is_lenient: bool = False,
) -> DataSet:
    """Read a data set of any known format.

    Args:
        source: The file or folder that describes it.
        splits: Which splits to read, of those that exist.
        data_format: A name of `FORMATS`, or `auto`, which recognizes the format from what is there.
        max_pixels: Larger images are left out.
        is_lenient: Whether what makes the data unfit for training is told in `DataSet.faults` instead of raised, as
            far as there is anything to read.

    Raises:
        ConfigError: If `data_format` is unknown.
        DataError: If `source` is missing, of no known format or faulty; all faults at once.
    """
    path = Path(source).expanduser()
    if data_format not in (AUTO, *FORMATS):
        raise ConfigError(f"data_format = {data_format!r} is unknown; choose one of {', '.join((AUTO, *FORMATS))}")
    if not path.exists():
        raise DataError(f"data = {str(source)!r}: no such file or folder; {folder_listing(path.absolute().parent)}")
    data = _reader_of(path, data_format).read(path, splits, max_pixels=max_pixels)
    if data.faults and not is_lenient:
        raise DataError(data.faults)
    return data


def _reader_of(path: Path, data_format: str) -> Reader:
    """The reader that was asked for, or the first that recognizes what is there."""
    if data_format != AUTO:
        return FORMATS[data_format]
    for reader in FORMATS.values():
        if reader.recognizes(path):
            return reader
    raise DataError(
        f"data = {str(path)!r}: not a data set of a known format; give a data.yaml (YOLO), a JSON file (COCO), or a "
        f"folder that holds a data.yaml, COCO JSON files or XML files (Pascal VOC); {_what_is_there(path)}"
    )


def _what_is_there(path: Path) -> str:
    return folder_listing(path) if path.is_dir() else f"{path.name} is none of these"
