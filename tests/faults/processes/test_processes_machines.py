"""Two machines train together: here network namespaces with a cable between them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
import torch

from visiontrain.engine.checkpoint import load_checkpoint

pytestmark = pytest.mark.slow

MACHINES = {"vtfirst": "10.77.0.1", "vtsecond": "10.77.0.2"}
PORT = 29400


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=True).stdout


@pytest.fixture
def machines():
    """Names and addresses of two machines that see each other and nothing else."""
    if not shutil.which("ip") or os.geteuid() != 0:
        pytest.skip("making network namespaces takes ip and its rights")
    try:
        for name in MACHINES:
            ip("netns", "add", name)
        first, second = (f"{name}0" for name in MACHINES)
        ip("link", "add", first, "type", "veth", "peer", "name", second)
        for name, address in MACHINES.items():
            ip("link", "set", f"{name}0", "netns", name)
            ip("-n", name, "addr", "add", f"{address}/24", "dev", f"{name}0")
            for device in ("lo", f"{name}0"):
                ip("-n", name, "link", "set", device, "up")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"network namespaces cannot be made here: {error.stderr}")
    else:
        yield MACHINES
    finally:
        for name in MACHINES:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def test_two_machines_make_the_updates_of_one(machines, program, words, repository, tmp_path):
    alone = program("-m", "visiontrain", *words(tmp_path / "alone"))
    assert alone.code == 0, alone.err
    running = []
    for number, (name, address) in enumerate(machines.items()):
        torchrun = (
            *(sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d"),
            *(f"--rdzv-endpoint={machines['vtfirst']}:{PORT}", f"--rdzv-conf=is_host={1 - number}", "--rdzv-id=test"),
            *(f"--local-addr={address}", "-m", "visiontrain", *words(tmp_path / "run")),
        )
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": f"{name}0"}
        paths = os.pathsep.join(filter(None, (str(repository), os.environ.get("PYTHONPATH"))))
        running.append(
            subprocess.Popen(
                ["ip", "netns", "exec", name, *torchrun],
                env={**environment, "PYTHONPATH": paths},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    said = [process.communicate(timeout=180)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0], said
    assert "2 processes on cpu" in said[0]
    assert "visiontrain" not in said[1]
    mine, others = (load_checkpoint(tmp_path / name / "weights" / "last.pt") for name in ("run", "alone"))
    for name, tensor in others["model"].items():
        torch.testing.assert_close(mine["model"][name], tensor, rtol=0, atol=1e-5)
