"""Data formats: one file each, and a line in the table of its kind of task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from visiontrain.data.formats.coco import CocoReader
from visiontrain.data.formats.files import exists, folder_listing, is_unicode
from visiontrain.data.formats.image_folders import ImageFolderReader
from visiontrain.data.formats.labels_csv import LabelsCsvReader
from visiontrain.data.formats.voc import VocReader
from visiontrain.data.formats.yolo import YoloReader
from visiontrain.data.images import MAX_PIXELS
from visiontrain.errors import ConfigError, DataError
from visiontrain.folders import with_home
from visiontrain.protocols import Reader
from visiontrain.sample import DataSet

DETECT_FORMATS: Mapping[str, Reader] = {
    "yolo": YoloReader(),
    "coco": CocoReader(),
    "voc": VocReader(),
}
CLASSIFY_FORMATS: Mapping[str, Reader] = {
    "csv": LabelsCsvReader(),
    "folders": ImageFolderReader(),
}
FORMATS_OF_TASK: Mapping[str, Mapping[str, Reader]] = {"detect": DETECT_FORMATS, "classify": CLASSIFY_FORMATS}
LOOKS: Mapping[str, str] = {
    "yolo": "a data.yaml (YOLO)",
    "coco": "a JSON file or a folder of them (COCO)",
    "voc": "a folder of XML files (Pascal VOC)",
    "csv": "a CSV file with the columns path and label",
    "folders": "a folder that holds a folder of images for each class, or train and val with such folders",
}
"""What a user is to give, by format."""
AUTO = "auto"
"""Stands for whichever format recognizes the data set."""


def read_data_set(
    source: Path | str,
    *,
    splits: Sequence[str] = ("train", "val", "test"),
    data_format: str = AUTO,
    formats: Mapping[str, Reader] = DETECT_FORMATS,
    max_pixels: int = MAX_PIXELS,
    is_lenient: bool = False,
) -> DataSet:
    """Read a data set of any known format of a task.

    Args:
        source: The file or folder that describes it.
        splits: Which splits to read, of those that exist.
        data_format: A name of `formats`, or `auto`, which recognizes the format from what is there.
        formats: Those of the task: `DETECT_FORMATS` or `CLASSIFY_FORMATS`.
        max_pixels: Larger images are left out.
        is_lenient: Whether what makes the data unfit for training is told in `DataSet.faults` instead of raised, as
            far as there is anything to read.

    Raises:
        ConfigError: If `data_format` is unknown.
        DataError: If `source` is missing, of no known format or faulty; all faults at once.
    """
    path = with_home(source)
    if data_format not in (AUTO, *formats):
        raise ConfigError(f"data_format = {data_format!r} is unknown; choose one of {', '.join((AUTO, *formats))}")
    if not exists(path):
        raise DataError(f"data = {str(source)!r}: no such file or folder; {folder_listing(path.absolute().parent)}")
    data = _reader_of(path, data_format, formats).read(path, splits, max_pixels=max_pixels)
    odd = [name for name in data.names if not is_unicode(name)]
    if odd:
        raise DataError(
            f"{path}: {odd[0]!a} names a class and is no valid Unicode, so no file could hold it; rename the "
            "class, or the folder that it is named after"
        )
    if data.faults and not is_lenient:
        raise DataError(data.faults)
    return data


def _reader_of(path: Path, data_format: str, formats: Mapping[str, Reader]) -> Reader:
    """The reader that was asked for, or the first that recognizes what is there."""
    if data_format != AUTO:
        return formats[data_format]
    for reader in formats.values():
        if reader.recognizes(path):
            return reader
    wanted = ", or ".join(LOOKS[name] for name in formats)
    raise DataError(f"data = {str(path)!r}: not a data set of a known format; give {wanted}; {_what_is_there(path)}")


def recognized(path: Path, *, data_format: str = AUTO) -> tuple[str, str] | None:
    """The task and the format of what is there, or of a format that was named; None where nothing is recognized."""
    for task, formats in FORMATS_OF_TASK.items():
        for name, reader in formats.items():
            if name == data_format or (data_format == AUTO and reader.recognizes(path)):
                return task, name
    return None


def _what_is_there(path: Path) -> str:
    found = recognized(path)
    if found is not None:
        task, name = found
        return f"it looks like {name}, a format of task={task}"
    return folder_listing(path) if path.is_dir() else f"{path.name} is none of these"
