"""Which device, how many threads and workers."""

import os

import pytest
import torch

from visiontrain.engine import device
from visiontrain.engine.device import MAX_AUTO_WORKERS, available_cores, choose_device
from visiontrain.errors import ConfigError


@pytest.fixture
def machine(monkeypatch):
    def has(*, gpus=0, metal=False, cores=4):
        monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: metal)
        monkeypatch.setattr(device, "available_cores", lambda: cores)

    return has


@pytest.mark.parametrize(
    ("name", "have", "expected"),
    [
        ("auto", {}, "cpu"),
        ("auto", {"gpus": 2}, "cuda:0"),
        ("auto", {"metal": True}, "mps"),
        ("auto", {"gpus": 1, "metal": True}, "cuda:0"),
        ("cpu", {"gpus": 2}, "cpu"),
        ("mps", {"metal": True}, "mps"),
        ("cuda", {"gpus": 2}, "cuda:0"),
        ("1", {"gpus": 2}, "cuda:1"),
        ("cuda:1", {"gpus": 2}, "cuda:1"),
    ],
)
def test_a_name_means_a_device(machine, name, have, expected):
    machine(**have)
    assert choose_device(name, workers=0).device == torch.device(expected)


@pytest.mark.parametrize(
    ("name", "have", "message"),
    [
        ("0", {}, "device = '0': this torch sees no CUDA device; use device=cpu or leave it out"),
        ("cuda", {}, "device = 'cuda': this torch sees no CUDA device"),
        ("cuda:2", {"gpus": 2}, r"device = 'cuda:2': this torch sees 2 CUDA device\(s\)"),
        ("mps", {"gpus": 2}, "device = 'mps': this machine has no Metal device"),
    ],
)
def test_a_device_that_is_not_there_is_refused_with_what_there_is(machine, name, have, message):
    machine(**have)
    with pytest.raises(ConfigError, match=message):
        choose_device(name, workers=0)


@pytest.mark.parametrize(
    ("name", "cores", "workers"), [("cpu", 8, 0), ("cuda", 1, 1), ("cuda", 6, 5), ("cuda", 64, MAX_AUTO_WORKERS)]
)
def test_auto_workers_take_no_core_from_a_processor_that_trains(machine, name, cores, workers):
    machine(gpus=1, cores=cores)
    assert choose_device(name, workers=None).workers == workers


def test_compute_threads_do_not_depend_on_workers(machine):
    machine(cores=6)
    setups = [choose_device("cpu", workers=workers) for workers in (None, 0, 3)]
    assert [setup.threads for setup in setups] == [6, 6, 6]
    assert [setup.workers for setup in setups] == [0, 0, 3]


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system does not tell a process its cores")
def test_cores_are_those_of_the_process_and_not_of_the_machine(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3, 5})
    assert available_cores() == 3
