"""Rows of what was found, as comma separated values and as a data frame."""

from __future__ import annotations

import csv
import importlib
import importlib.util
import io
from collections.abc import Mapping, Sequence
from typing import Any

from visiontrain.errors import ConfigError


def as_csv(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """A header and a line for each row; keys that are no columns are left out."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def as_data_frame(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> Any:
    """A pandas DataFrame of the rows; keys that are no columns are left out.

    Raises:
        ConfigError: If pandas is not installed.
    """
    if importlib.util.find_spec("pandas") is None:
        raise ConfigError("to_df: needs pandas, which is not installed; pip install pandas, or use to_csv or to_json")
    pandas: Any = importlib.import_module("pandas")
    return pandas.DataFrame(list(rows), columns=list(columns))
