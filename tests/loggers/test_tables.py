"""The table of metrics shows all classes first, and a dash where nothing could be measured."""

from visiontrain.loggers.tables import align, metrics_table
from visiontrain.metrics.detection import BoxMetrics, ClassMetrics, DetectionMetrics

NAN = float("nan")


def test_the_table_has_a_line_for_all_and_one_for_each_class():
    metrics = DetectionMetrics(
        box=BoxMetrics(map=0.5, map50=0.8, map75=0.4, maps=(0.5, NAN), mp=0.9, mr=0.75, mf1=0.81818),
        names=("cell", "x" * 40),
        per_class=(
            ClassMetrics("cell", 87, 967, 0.9, 0.75, 0.81818, 0.8, 0.5),
            ClassMetrics("x" * 40, 0, 0, NAN, NAN, NAN, NAN, NAN),
        ),
        best_threshold=0.25,
        images=90,
        instances=967,
    )
    assert metrics_table(metrics).splitlines() == [
        "class                             images  instances      P      R     F1  mAP50  mAP50-95",
        "all                                   90        967  0.900  0.750  0.818  0.800     0.500",
        "cell                                  87        967  0.900  0.750  0.818  0.800     0.500",
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxx...       0          0      -      -      -      -         -",
        "P, R and F1 at score 0.250, which maximizes the mean F1 (IoU 0.5)",
    ]


def test_columns_are_as_wide_as_their_widest_cell():
    assert align([("a", "bb"), ("ccc", "d")]) == "a    bb\nccc   d"
