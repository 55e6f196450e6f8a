from __future__ import annotations

from types import SimpleNamespace

from visiontrain.data.transforms.settings import faults_of_values


def test_each_wrong_value_is_a_fault():
    settings = SimpleNamespace(imgsz=0, flip=1.5, blur=float("nan"), turn=-1.0, shift=2.0, fine=0.5)
    faults = faults_of_values(settings, probabilities=("flip", "blur", "fine"), ranges=("turn", "shift"))
    assert [fault.split(" ")[0] for fault in faults] == ["imgsz", "flip", "blur", "turn"]
