"""Curves are drawn of whatever rows a run has."""

import math
import subprocess
import sys

import cv2
import numpy as np
import pytest

from visiontrain.errors import DataError
from visiontrain.report.curves import IMAGES_PER_UPDATE, plot_results, read_columns

DETECTION = (
    "epoch,time,updates,images,train/box_loss,train/cls_loss,train/dfl_loss,metrics/precision(B),metrics/recall(B),"
    "metrics/mAP50(B),metrics/mAP50-95(B),val/box_loss,val/cls_loss,val/dfl_loss,lr/weight,lr/norm,lr/bias,"
    "t_data,t_step,t_val"
)
CLASSIFICATION = (
    "epoch,time,updates,images,train/loss,metrics/accuracy_top1,metrics/accuracy_top5,val/loss,"
    "lr/weight,lr/norm,lr/bias,t_data,t_step,t_val"
)


def write_csv(path, header, rows):
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n", encoding="utf-8")


@pytest.mark.parametrize(("header", "num_epochs"), [(DETECTION, 1), (DETECTION, 60), (CLASSIFICATION, 3)])
def test_curves_of_one_epoch_and_of_many_are_drawn(tmp_path, header, num_epochs):
    width = header.count(",")
    source, target = tmp_path / "results.csv", tmp_path / "Ergebnisse ü.png"
    write_csv(source, header, [(epoch, *[0.1 * epoch] * width) for epoch in range(1, num_epochs + 1)])
    plot_results(source, target)
    picture = cv2.imdecode(np.frombuffer(target.read_bytes(), np.uint8), cv2.IMREAD_COLOR)
    assert min(picture.shape[:2]) >= 600
    assert (picture != 255).any()


def test_empty_cells_and_nan_are_left_out(tmp_path):
    source, target = tmp_path / "results.csv", tmp_path / "results.png"
    width = DETECTION.count(",")
    write_csv(source, DETECTION, [(1, *[""] * width), (2, *["nan"] * width), (3, *[""] * 3, *["0.5"] * (width - 3))])
    plot_results(source, target)
    assert target.stat().st_size > 0


@pytest.mark.parametrize("text", ["", DETECTION + "\n", "a,b\n1,2\n"])
def test_a_file_without_an_epoch_is_refused(tmp_path, text):
    source = tmp_path / "results.csv"
    source.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=r"results\.csv: no row with an epoch"):
        plot_results(source, tmp_path / "results.png")


@pytest.mark.parametrize(("row", "says"), [("1,x", "something else than numbers"), (",2", "without its epoch")])
def test_a_damaged_row_is_refused(tmp_path, row, says):
    source = tmp_path / "results.csv"
    source.write_text(f"epoch,train/loss\n1,1\n{row}\n", encoding="utf-8")
    with pytest.raises(DataError, match=rf"results\.csv: .*{says}"):
        read_columns(source)


def test_images_per_update_are_those_of_each_epoch_alone(tmp_path):
    source = tmp_path / "results.csv"
    source.write_text("epoch,updates,images\n1,4,20\n2,6,40\n3,6,60\n", encoding="utf-8")
    assert read_columns(source)[IMAGES_PER_UPDATE] == [5, 10, pytest.approx(math.nan, nan_ok=True)]


def test_matplotlib_is_imported_only_when_drawing_and_pyplot_never(tmp_path):
    source = tmp_path / "results.csv"
    write_csv(source, CLASSIFICATION, [(1, *[0.5] * CLASSIFICATION.count(","))])
    code = (
        "import sys; from pathlib import Path; from visiontrain.report.curves import plot_results;"
        "assert 'matplotlib' not in sys.modules;"
        f"plot_results(Path({str(source)!r}), Path({str(tmp_path / 'a.png')!r}));"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
