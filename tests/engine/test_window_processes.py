"""The window over several processes: its step is that of one process, and gradients are exchanged once."""

import subprocess
import sys

import pytest
import torch

PROCESS = """
import sys
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD
from visiontrain.engine.noise import NoiseScale
from visiontrain.engine.window import GradientWindow
from visiontrain.losses.sums import LossSum

rank, world, store, out = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
torch.set_num_threads(1)
torch.manual_seed(0)
network = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)).double()
data = torch.randn(3, 12, 5, dtype=torch.float64)
data[:, :6] *= 0.01  # the first process's half has far fewer hits
exchanges = 0
model = network
if world > 1:
    torch.distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=world)
    model = DistributedDataParallel(network)

    def count(state, bucket):
        global exchanges
        exchanges += 1
        return torch.distributed.all_reduce(bucket.buffer().div_(world), async_op=True).get_future().then(
            lambda future: future.value()[0]
        )

    model.register_comm_hook(None, count)
noise = NoiseScale()
window = GradientWindow(SGD(network.parameters(), lr=0.1, momentum=0.9), model=model, clip=0.5, noise=noise)
reports = []
for index, images in enumerate(data):
    mine = images.chunk(world)[rank]
    parts = mine.split((2, 2, 2)) if world > 1 else mine.split((2, 10))
    if index == 2:  # one micro-batch in each process, in which nothing can be told from the whole
        parts = [mine]
    for number, part in enumerate(parts):
        with window.micro_batch(last=number == len(parts) - 1):
            outputs = model(part)
            hits = (outputs.detach() > 0.2).double()
            window.add(LossSum((outputs ** 2 * (1 + hits)).sum(), hits.sum(), floor=1.0), num_images=len(part))
    reports.append(window.step())
torch.save({
    "network": network.state_dict(), "exchanges": exchanges, "losses": [report.losses()["loss"] for report in reports],
    "images": [report.num_images for report in reports], "noise": noise.estimate(),
}, out)
if world > 1:
    try:
        with window.micro_batch(last=False):
            window.add(LossSum(model(data[0]).sum(), 1.0), num_images=12)
        window.step()
        raise SystemExit("a window without an exchange was applied")
    except RuntimeError as error:
        assert "use micro_batch(last=True)" in str(error), error
if world > 1:
    torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_two_processes_take_the_step_of_one_and_exchange_gradients_once_a_window(tmp_path):
    script = tmp_path / "process.py"
    script.write_text(PROCESS, encoding="utf-8")
    store = (tmp_path / "store").as_uri()
    jobs = [(0, 1, tmp_path / "alone"), (0, 2, tmp_path / "first"), (1, 2, tmp_path / "second")]
    running = [
        subprocess.Popen([sys.executable, str(script), str(rank), str(world), store, str(out)])
        for rank, world, out in jobs
    ]
    assert [process.wait(timeout=120) for process in running] == [0, 0, 0]
    alone, first, second = (torch.load(out) for _, _, out in jobs)
    for name, tensor in alone["network"].items():
        torch.testing.assert_close(first["network"][name], tensor, rtol=1e-12, atol=1e-15)
        assert torch.equal(first["network"][name], second["network"][name])
    assert first["losses"] == second["losses"] == pytest.approx(alone["losses"], rel=1e-12)
    assert first["images"] == second["images"] == alone["images"] == [12, 12, 12]
    assert first["noise"] == pytest.approx(alone["noise"], rel=1e-9)  # both look at the first process's first images
    assert first["exchanges"] == 3  # one bucket, three windows
