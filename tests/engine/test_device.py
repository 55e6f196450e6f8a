"""Which device, how many threads and workers."""

import os

import pytest
import torch

from visiontrain.engine import device
from visiontrain.engine.device import MAX_AUTO_WORKERS, available_cores, choose_device, free_memory
from visiontrain.engine.distributed import Place
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


@pytest.mark.parametrize(
    ("name", "place", "expected"),
    [
        ("0,1", Place(0, 2, 0, 2), "cuda:0"),
        ("0,1", Place(1, 2, 1, 2), "cuda:1"),
        ("3,1", Place(0, 2, 0, 2), "cuda:3"),
        ("0,1", Place(3, 5, 0, 2), "cuda:0"),  # the first of the second machine, behind three of the first
        ("auto", Place(3, 4, 1, 2), "cuda:1"),
        ("cuda", Place(1, 2, 1, 2), "cuda:1"),
        ("cpu", Place(1, 2, 1, 2), "cpu"),
        ("2", Place(1, 2, 0, 1), "cuda:2"),  # one process on each machine
    ],
)
def test_each_process_of_a_machine_has_a_device_of_its_own(machine, name, place, expected):
    machine(gpus=4)
    assert choose_device(name, workers=0, place=place).device == torch.device(expected)


def test_without_gpus_processes_share_the_processor(machine):
    machine()
    assert choose_device("auto", workers=0, place=Place(1, 2, 1, 2)).device == torch.device("cpu")


@pytest.mark.parametrize(
    ("name", "gpus", "place", "message"),
    [
        (
            "0,1",
            4,
            Place(0, 1, 0, 1),
            r"device = '0,1': names 2 devices for 1 process\(es\) of this machine; name as many",
        ),
        ("0,1,2", 4, Place(0, 2, 0, 2), r"device = '0,1,2': names 3 devices for 2 process\(es\)"),
        ("1", 4, Place(0, 2, 0, 2), "device = '1': is one device for 2 processes; name one for each, as in device=0,1"),
        ("cuda", 0, Place(0, 2, 0, 2), "device = 'cuda': is one device for 2 processes"),
        ("mps", 0, Place(0, 2, 0, 2), "device = 'mps': is one device for 2 processes"),
        ("auto", 1, Place(1, 2, 1, 2), r"device = 'cuda:1': this torch sees 1 CUDA device\(s\)"),
        ("0,5", 2, Place(1, 2, 1, 2), r"device = '5': this torch sees 2 CUDA device\(s\)"),
    ],
)
def test_devices_that_do_not_go_with_the_processes_are_refused(machine, name, gpus, place, message):
    machine(gpus=gpus)
    with pytest.raises(ConfigError, match=message):
        choose_device(name, workers=0, place=place)


@pytest.mark.parametrize(("cores", "locals_", "each"), [(8, 2, 4), (7, 2, 3), (2, 4, 1), (8, 1, 8)])
def test_processes_of_a_machine_share_its_cores(machine, cores, locals_, each):
    machine(gpus=4, cores=cores)
    place = Place(0, 8, 0, locals_)
    assert choose_device("cpu", workers=None, place=place).threads == each
    assert choose_device("auto", workers=None, place=place).workers == max(1, each - 1)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system does not tell a process its cores")
def test_cores_are_those_of_the_process_and_not_of_the_machine(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3, 5})
    assert available_cores() == 3


@pytest.mark.parametrize(
    ("limit", "cores"), [("200000 100000", 2), ("150000 100000", 1), ("50000 100000", 1), ("900000 100000", 4)]
)
@pytest.mark.parametrize("version", [1, 2])
def test_a_container_s_share_of_the_processor_counts_in_whole_cores(system, monkeypatch, version, limit, cores):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    quota, period = limit.split()
    if version == 2:
        system(proc__self__cgroup="0::/box\n", cgroup__box__cpu_DOT_max=f"{limit}\n")
    else:
        files = {"cgroup__cpu__cpu_DOT_cfs_quota_us": quota, "cgroup__cpu__cpu_DOT_cfs_period_us": period}
        system(proc__self__cgroup="3:cpu,cpuacct:/box\n", **files)
    assert available_cores() == cores


@pytest.mark.parametrize(
    "files",
    [
        {"proc__self__cgroup": "0::/box\n", "cgroup__box__cpu_DOT_max": "max 100000\n"},
        {
            "proc__self__cgroup": "3:cpu:/\n",
            "cgroup__cpu__cpu_DOT_cfs_quota_us": "-1",
            "cgroup__cpu__cpu_DOT_cfs_period_us": "100000",
        },
        {"proc__self__cgroup": "0::/box\n"},
        {},
    ],
)
def test_without_a_limit_all_cores_of_the_process_count(system, monkeypatch, files):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    system(**files)
    assert available_cores() == 4


@pytest.fixture
def system(monkeypatch, tmp_path):
    """A function that lays out files as Linux shows them: the first folder of a path is `proc` or `cgroup`."""

    def lay(**files):
        monkeypatch.setattr(device, "PROC", tmp_path / "proc")
        monkeypatch.setattr(device, "CONTROL_GROUPS", tmp_path / "cgroup")
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/").replace("_DOT_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    return lay


MEMINFO = "MemTotal:       16000 kB\nMemFree:         2000 kB\nMemAvailable:    8000 kB\n"
CPU = torch.device("cpu")


def files_of(version, folder, *, limit, usage, idle):
    """What a control group of either version shows."""
    if version == 2:
        named = {"memory.max": limit, "memory.current": usage, "memory.stat": f"anon 5\ninactive_file {idle}\n"}
    else:
        stat = f"inactive_file 1\ntotal_inactive_file {idle}\n"
        named = {"memory.limit_in_bytes": limit, "memory.usage_in_bytes": usage, "memory.stat": stat}
    root = "cgroup" if version == 2 else "cgroup__memory"
    return {f"{root}__{folder}{name}".replace(".", "_DOT_"): f"{text}\n" for name, text in named.items()}


def test_free_memory_is_what_linux_says_is_available(system):
    system(proc__meminfo=MEMINFO)
    assert free_memory(CPU) == 8000 * 1024


@pytest.mark.parametrize(("version", "line"), [(2, "0::/box/job\n"), (1, "4:cpu,memory:/box/job\n3:cpuset:/box/job\n")])
@pytest.mark.parametrize(
    ("limit", "free"),
    [(5_000_000, 3_500_000), (1_000_000, 0), (10**12, 8000 * 1024), ("max", 8000 * 1024)],
)
def test_a_limit_on_the_control_group_counts_where_it_leaves_less(system, version, line, limit, free):
    system(
        proc__meminfo=MEMINFO,
        proc__self__cgroup=line,
        **files_of(version, "box__job__", limit=limit, usage=2_000_000, idle=500_000),
    )
    assert free_memory(CPU) == free


@pytest.mark.parametrize("folder", ["box__", ""])
def test_the_limit_of_a_group_above_counts_too(system, folder):
    files = files_of(2, folder, limit=3_000_000, usage=1_000_000, idle=0)
    system(proc__meminfo=MEMINFO, proc__self__cgroup="0::/box/job\n", **files)
    assert free_memory(CPU) == 2_000_000


def test_elsewhere_half_of_the_physical_memory_is_counted_as_free(system, monkeypatch):
    system()
    monkeypatch.setattr(os, "sysconf_names", {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": 2}, raising=False)
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 1000}.__getitem__, raising=False)
    assert free_memory(CPU) == 4096 * 500


def test_free_memory_is_unknown_where_the_system_does_not_tell(system, monkeypatch):
    system()
    monkeypatch.delattr(os, "sysconf_names", raising=False)
    assert free_memory(CPU) is None


def test_free_memory_of_a_gpu_holds_what_torch_keeps_for_itself(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (700, 1000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 200)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 150)
    assert free_memory(torch.device("cuda", 0)) == 750
