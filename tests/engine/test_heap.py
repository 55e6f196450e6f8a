import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from visiontrain.engine import heap
from visiontrain.engine.heap import LEAST_MICRO_BATCHES, USERS_OWN, freed_memory_kept, giving_back, heap_trimmer
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


MADE_AND_FREED = """
import resource, torch
from visiontrain.engine.heap import freed_memory_kept

def pages(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def resident(): return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() / 2**20

torch.ones(1 << 20).sum()
before = resident()
with freed_memory_kept(torch.device("cpu")):
    torch.ones(100 << 18)  # 100 MiB; larger than anything that the library would keep by itself
    first, kept = pages(), resident()
    for _ in range(10):
        torch.ones(100 << 18)
    last = pages()
print(last - first, kept - before, resident() - before)
"""


@pytest.mark.skipif(meter_of(torch.device("cpu")) is None, reason="this system does not tell a process's memory")
def test_freed_memory_serves_again_in_training_and_goes_back_after_it():
    own = {name: value for name, value in os.environ.items() if name not in USERS_OWN}
    told = subprocess.run([sys.executable, "-c", MADE_AND_FREED], env=own, check=True, capture_output=True, text=True)
    pages, kept, left = map(float, told.stdout.split())  # in a process of its own, whose heap has no holes yet
    assert pages < 0.5 * 10 * 100 * 256  # not all of it every time
    assert kept > 90
    assert left < 20


@pytest.mark.parametrize("name", USERS_OWN)
def test_who_has_decided_about_freed_memory_himself_keeps_it_so(name, monkeypatch):
    monkeypatch.setenv(name, "")
    monkeypatch.setattr(heap, "_from_gnu", lambda name: pytest.fail(f"{name} is called"))
    with freed_memory_kept(torch.device("cpu")):
        pass


def test_a_gpu_has_a_memory_of_its_own(monkeypatch):
    monkeypatch.setattr(heap, "_from_gnu", lambda name: pytest.fail(f"{name} is called"))
    with freed_memory_kept(torch.device("cuda")):
        pass


def test_where_the_library_cannot_nothing_happens(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert heap_trimmer()() is None
    with freed_memory_kept(torch.device("cpu")):
        pass
