"""Data formats: one file each, and a line in `FORMATS`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from visiontrain.data.formats.files import folder_listing
from visiontrain.data.formats.yolo import YoloReader
from visiontrain.errors import ConfigError, DataError
from visiontrain.protocols import Reader
from visiontrain.sample import DataSet

FORMATS: Mapping[str, Reader] = {
    "yolo": YoloReader(),
}


def read_data_set(
    source: Path | str,
    *,
    splits: Sequence[str] = ("train", "val", "test"),
    data_format: str | None = None,
) -> DataSet:
    """Read a data set of any known format.

    Args:
        source: The file or folder that describes it.
        splits: Which splits to read, of those that exist.
        data_format: A name of `FORMATS`; None recognizes the format.

    Raises:
        ConfigError: If `data_format` is unknown.
        DataError: If `source` is missing, of no known format or faulty; all faults at once.
    """
    path = Path(source).expanduser()
    if data_format is not None and data_format not in FORMATS:
        raise ConfigError(f"data_format = {data_format!r} is unknown; choose one of {', '.join(FORMATS)}")
    if not path.exists():
        raise DataError(f"data = {str(source)!r}: no such file or folder; {folder_listing(path.absolute().parent)}")
    if data_format is not None:
        return FORMATS[data_format].read(path, splits)
    for reader in FORMATS.values():
        if reader.recognizes(path):
            return reader.read(path, splits)
    raise DataError(
        f"data = {str(source)!r}: not a data set of a known format ({', '.join(FORMATS)}); "
        "give a data.yaml or a folder that holds one"
    )
