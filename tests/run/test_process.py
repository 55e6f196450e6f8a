"""What a run sets for the whole process."""

import torch

from visiontrain.engine import heap
from visiontrain.engine.device import DeviceSetup
from visiontrain.run.process import process_settings


def test_a_run_keeps_freed_memory_and_leaves_the_librarys_own_ways_behind(monkeypatch):
    for name in heap.USERS_OWN:
        monkeypatch.delenv(name, raising=False)
    options = {}
    monkeypatch.setattr(heap, "_from_gnu", lambda name: options.__setitem__ if name == "mallopt" else None)
    with process_settings(DeviceSetup(torch.device("cpu"), threads=1, workers=0), is_deterministic=False):
        assert options == heap.KEPT_INSIDE
    assert options == heap.KEPT_AFTERWARDS
