from __future__ import annotations

import os
from pathlib import Path

import pytest
from PIL import Image

from benchmarks.growth import draw, make_data_set, memory_of_session
from visiontrain.data.formats import read_data_set


def test_the_data_set_has_the_images_asked_for_with_their_boxes(tmp_path):
    records = read_data_set(make_data_set(tmp_path / "data", 3)).splits["train"]
    assert [len(record.classes) for record in records] == [2, 2, 2]


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="only Linux tells what processes share")
def test_the_memory_of_a_session_is_that_of_its_processes():
    assert memory_of_session(os.getsid(0)) > 1
    assert memory_of_session(2**30) == 0


def test_the_curves_are_drawn_side_by_side(tmp_path):
    curve = {1: 1.0, 2: 2.1, 4: 3.9}
    names = ("epoch_seconds_by_images", "window_ms_by_micro_batches", "memory_mb_by_workers")
    draw(dict.fromkeys(names, curve), tmp_path / "growth.png")
    with Image.open(tmp_path / "growth.png") as picture:
        assert picture.size == (1200, 320)
