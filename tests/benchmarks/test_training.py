from __future__ import annotations

import pytest

from benchmarks.losses import losses_figures
from benchmarks.scoring import scoring_figures
from benchmarks.training import PHASES, measure_raw, measure_training


@pytest.mark.slow
def test_the_parts_of_training_are_all_of_it(tiny_yolo, small_network):
    keys = [f"data={tiny_yolo(4)}", f"model={small_network}", "imgsz=64", "batch=2", "nbs=4", "amp=False"]
    figures = measure_training(keys, repeats=1)
    assert sum(figures["shares"].values()) == pytest.approx(1, abs=0.01)
    assert set(figures["shares"]) == set(PHASES)
    assert figures["images_per_second"] > 0
    assert figures["val_images_per_second"] > 0
    assert measure_raw(keys, repeats=1)["images_per_second"] > 0


def test_metrics_are_timed_beside_the_library_alone():
    figures = scoring_figures(1, images=3)
    assert figures["ratio"] > 0


@pytest.mark.slow
def test_the_loss_is_a_share_of_the_passes():
    assert losses_figures(1)["share"] > 0
