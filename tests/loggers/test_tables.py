"""The table of metrics shows all classes first, and a dash where nothing could be measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from visiontrain.loggers.tables import align, metrics_table
from visiontrain.metrics.coco import CocoScores, CocoSummary
from visiontrain.metrics.curves import Hits
from visiontrain.metrics.detection import BoxMetrics, ClassMetrics, DetectionMetrics, Scored

NAN = float("nan")


@pytest.fixture
def metrics() -> DetectionMetrics:
    """Of a class that was found well and one without ground truth."""
    no_scores = CocoScores(np.zeros((10, 101, 0, 4)), np.zeros((10, 0, 4, 3)))
    nothing = Scored((), {}, no_scores, Hits((), (), np.zeros(0, int)))
    return DetectionMetrics(
        box=BoxMetrics(map=0.5, map50=0.8, map75=0.4, maps=(0.5, NAN), mp=0.9, mr=0.75, mf1=0.81818),
        coco=CocoSummary(0.5, 0.8, 0.4, NAN, 0.25, 0.6, 0.1, 0.45, 0.55, NAN, 0.3, 0.7),
        names=("cell", "x" * 40),
        per_class=(
            ClassMetrics("cell", 87, 967, 0.9, 0.75, 0.81818, 0.8, 0.5, 0.4, NAN, 0.25, 0.6, 0.55, 0.25),
            ClassMetrics("x" * 40, 0, 0, *[NAN] * 11),
        ),
        best_threshold=0.25,
        images=90,
        instances=967,
        num_ignored=0,
        num_capped=0,
        scored=nothing,
    )


def test_the_table_has_a_line_for_all_and_one_for_each_class(metrics):
    assert metrics_table(metrics).splitlines() == [
        "class                    images  instances      P      R     F1  mAP50  mAP50-95",
        "all                          90        967  0.900  0.750  0.818  0.800     0.500",
        "cell                         87        967  0.900  0.750  0.818  0.800     0.500",
        "xxxxxxxxxxxxxxxxxxxx...       0          0      -      -      -      -         -",
        "P, R and F1 at score 0.250, which maximizes the mean F1 (IoU 0.5)",
        "mAP50-95 of small, medium and large objects: -, 0.250, 0.600",
        "AR of the best 1, 10 and 100 detections: 0.100, 0.450, 0.550",
    ]


def test_the_table_fits_a_terminal_of_80_columns(metrics):
    crowded = replace(metrics, num_ignored=12_345, num_capped=12_345, images=123_456, instances=12_345_678)
    assert max(map(len, metrics_table(crowded).splitlines())) <= 80


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"best_threshold": 0.0}, "P, R and F1 are 0: no detection hits a box (IoU 0.5)"),
        ({"best_threshold": 0.0, "instances": 0}, "there are no boxes to be found, so nothing can be measured"),
    ],
)
def test_where_there_is_no_threshold_it_says_why(metrics, changes, line):
    lines = metrics_table(replace(metrics, **changes)).splitlines()
    assert line in lines
    assert not any("at score" in text for text in lines)
    assert any("large objects" in text for text in lines) == ("instances" not in changes)


def test_what_is_passed_over_and_what_suppression_did_not_look_at_is_said_below(metrics):
    lines = metrics_table(replace(metrics, num_ignored=7, num_capped=3)).splitlines()
    assert lines[-3:] == [
        "7 crowd regions and difficult objects are passed over, with what hits them",
        "warning: 3 of 90 images had more candidates than suppression looks at;",
        "  only the best were kept (a larger conf leaves fewer)",
    ]


def test_columns_are_as_wide_as_their_widest_cell():
    assert align([("a", "bb"), ("ccc", "d")]) == "a    bb\nccc   d"
