from __future__ import annotations

import pytest

from benchmarks.predicting import PARTS, SIZES, predicting_figures


@pytest.mark.slow
def test_an_image_takes_no_less_than_its_parts_and_nothing_else_is_printed(tiny_yolo, capsys):
    figures = predicting_figures(1, data=tiny_yolo(2))
    assert set(figures) == {"model", *map(str, SIZES)}
    for size in map(str, SIZES):
        row = figures[size]
        assert 0 < row["inference_ms"] < row["p50_ms"] <= row["p95_ms"]
        assert set(row) == {"p50_ms", "p95_ms", *(f"{part}_ms" for part in PARTS)}
    assert capsys.readouterr().out == ""
