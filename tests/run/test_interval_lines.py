"""A score of few images comes with what chance makes of it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from visiontrain.metrics.bootstrap import Interval
from visiontrain.run.interval_lines import interval_lines


def test_intervals_stand_in_one_line_with_the_number_of_images():
    intervals = (Interval("metrics/mAP50-95(B)", 0.5, 0.625), Interval("metrics/mAP50(B)", 0.7, 0.8))
    (line,) = interval_lines(SimpleNamespace(images=87, intervals=intervals))
    assert line == ("95 % intervals, as there are only 87 images: mAP50-95 [0.500, 0.625], mAP50 [0.700, 0.800]")


def test_without_intervals_or_metrics_there_is_no_line():
    assert interval_lines(SimpleNamespace(images=5, intervals=())) == []
    assert interval_lines({}) == []


@pytest.mark.slow
def test_training_ends_with_them(run_training, tiny_yolo):
    result = run_training(data=str(tiny_yolo(12)), epochs=1)
    log = (result.save_dir / "train.log").read_text(encoding="utf-8")
    low, high = (f"{end:.3f}" for end in (result.metrics.intervals[0].low, result.metrics.intervals[0].high))
    assert f"95 % intervals, as there are only 12 images: mAP50-95 [{low}, {high}]" in log
