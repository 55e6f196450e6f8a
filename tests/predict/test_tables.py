import importlib.util

import pytest

from visiontrain.errors import ConfigError
from visiontrain.predict.tables import as_csv, as_data_frame

COLUMNS = ("name", "x1")
ROWS = [{"name": 'a, "b" ü', "x1": 1.5, "box": {}}, {"name": "c", "x1": 2.0, "box": {}}]


def test_rows_become_lines_under_a_header_and_other_keys_are_left_out():
    assert as_csv(ROWS, COLUMNS) == 'name,x1\n"a, ""b"" ü",1.5\nc,2.0\n'
    assert as_csv([], COLUMNS) == "name,x1\n"


def test_a_data_frame_holds_the_same_and_its_columns_without_rows_too():
    pytest.importorskip("pandas", reason="pandas is not installed")
    frame = as_data_frame(ROWS, COLUMNS)
    assert frame.to_dict("list") == {"name": ['a, "b" ü', "c"], "x1": [1.5, 2.0]}
    assert list(as_data_frame([], COLUMNS).columns) == list(COLUMNS)


def test_without_pandas_the_message_tells_how_to_get_it(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="to_df: needs pandas, which is not installed; pip install pandas, or use"):
        as_data_frame(ROWS, COLUMNS)
