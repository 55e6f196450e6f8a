from __future__ import annotations

import pytest

from visiontrain.data.check.rows import box_of_row


@pytest.mark.parametrize(
    ("row", "box"),
    [
        ("0 0.5 0.5 0.2 0.4", (0.4, 0.3, 0.6, 0.7)),
        ("0 1.02 0.5 0.1 0.1 0.9", (0.97, 0.45, 1.07, 0.55)),
        ("0 0.1 0.2 0.5 0.2 0.5 0.6", (0.1, 0.2, 0.5, 0.6)),
        ("0" + " 0.1 0.2 0.5 0.6" * 2000, (0.1, 0.2, 0.5, 0.6)),
        ("0 a b c d", None),
        ("0 0.5 0.5", None),
        ("0 nan 0.5 0.1 0.1", None),
        ("", None),
    ],
)
def test_a_row_means_its_box_unclipped(tmp_path, row, box):
    (tmp_path / "1.txt").write_text(f"first\n{row}\n", encoding="utf-8")
    assert box_of_row(str(tmp_path / "1.txt"), 2) == (None if box is None else pytest.approx(box))


@pytest.mark.parametrize(("name", "line"), [("1.txt", None), ("1.txt", 9), ("gone.txt", 1), ("1.xml", 1)])
def test_where_there_is_no_row_there_is_no_box(tmp_path, name, line):
    (tmp_path / "1.txt").write_text("0 .5 .5 .1 .1\n", encoding="utf-8")
    assert box_of_row(str(tmp_path / name), line) is None
