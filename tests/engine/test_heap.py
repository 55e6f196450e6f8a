import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from visiontrain.engine.heap import LEAST_MICRO_BATCHES, giving_back, heap_trimmer
from visiontrain.engine.memory import meter_of
from visiontrain.plan import plan_run


def epochs_given_back_before(num_images, epochs=6, batch=2, nbs=4):
    """The epochs whose first window came after freed memory was given back."""
    plan = plan_run(num_images=num_images, batch=batch, nbs=nbs, epochs=epochs, warmup_epochs=0)
    windows = [SimpleNamespace(planned=planned) for planned in plan.all_windows()]
    times, passed = [], []
    for window in giving_back(windows, lambda: times.append(len(passed))):
        passed.append(window)
    assert passed == windows
    return [passed[place].planned.epoch for place in times], times, passed


def test_memory_is_given_back_between_epochs_only():
    epochs, times, windows = epochs_given_back_before(3 * LEAST_MICRO_BATCHES)
    assert epochs == [1, 2, 3, 4, 5]
    assert all(windows[place - 1].planned.epoch == windows[place].planned.epoch - 1 for place in times)


def test_short_epochs_are_added_up():
    epochs, _, _ = epochs_given_back_before(LEAST_MICRO_BATCHES)  # half as many micro-batches
    assert epochs == [2, 4]


@pytest.mark.skipif(meter_of(torch.device("cpu")) is None, reason="this system does not tell a process's memory")
def test_what_was_freed_between_things_that_stay_is_given_back():
    kept = [torch.ones(25_000) for _ in range(1000)][::10]  # of 100 MB, in pieces that come from the heap
    trim = heap_trimmer()
    before = resident_mb()
    trim()
    assert before - resident_mb() > 50
    assert sum(tensor.sum().item() for tensor in kept) == 100 * 25_000


def resident_mb():
    import resource  # Unix has it

    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * resource.getpagesize() / 2**20


def test_where_the_library_cannot_nothing_happens(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert heap_trimmer()() is None
