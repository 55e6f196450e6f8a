"""Memory that runs out at random micro-batches changes nothing but the cut of the windows."""

from __future__ import annotations

import csv
import random
from collections import Counter

import pytest
import torch

from visiontrain.engine.checkpoint import load_checkpoint
from visiontrain.engine.window import GradientWindow
from visiontrain.losses.detection import DetectionCriterion
from visiontrain.models.network import Network
from visiontrain.run.record import Recorder

SETTINGS = {
    "epochs": 2,
    "batch": 8,
    "nbs": 8,
    "warmup_epochs": 0,
    "norm": "group",
    "amp": False,
    "workers": 0,
    "val": False,
    "optimizer": "SGD",  # the others divide by the gradient's size, and so make rounding of small ones large
}
ERRORS = (
    torch.OutOfMemoryError("out of memory"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory: you tried"),
    RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
)


class Observed:
    """Notes the images of every applied window, and lets memory run out where it is told to."""

    def __init__(self, monkeypatch, rng=None, num_faults=0):
        self._rng, self._faults_left = rng, num_faults
        self.windows: list[Counter[int]] = []
        self.num_injected = 0
        self._calls_left = rng.randint(1, 6) if rng else 0
        self._open: Counter[int] = Counter()
        self._wrap(monkeypatch, Network, "forward", self._forward)
        self._wrap(monkeypatch, DetectionCriterion, "__call__", self._loss)
        self._wrap(monkeypatch, GradientWindow, "add", self._add)
        self._wrap(monkeypatch, GradientWindow, "open", self._opened)
        self._wrap(monkeypatch, Recorder, "window", self._applied)

    def _wrap(self, monkeypatch, owner, name, observe):
        plain = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda part, *given, **keys: observe(plain, part, *given, **keys))

    def _fail_at_times(self, num_images):
        if num_images < 2 or not self._faults_left:  # a single image that does not fit is the end
            return
        self._calls_left -= 1
        if not self._calls_left:
            self._calls_left = self._rng.randint(1, 6)
            self._faults_left -= 1
            self.num_injected += 1
            raise self._rng.choice(ERRORS)

    def _forward(self, plain, network, images):
        outputs = plain(network, images)
        self._fail_at_times(len(images) if network.training else 0)
        return outputs

    def _loss(self, plain, criterion, outputs, batch):
        self._images = len(batch)
        self._open.update(batch.indices)
        self._fail_at_times(len(batch))
        return plain(criterion, outputs, batch)

    def _add(self, plain, gradients, losses, **keys):
        plain(gradients, losses, **keys)
        self._fail_at_times(self._images)  # as if the end of the backward pass did not fit: gradients are there

    def _opened(self, plain, gradients, num_images=None):
        self._open = Counter()
        plain(gradients, num_images)

    def _applied(self, plain, recorder, window, report, *rest):
        assert report.applied
        assert report.num_images == window.planned.size
        self.windows.append(self._open)
        plain(recorder, window, report, *rest)


def rates_and_updates(folder):
    with (folder / "results.csv").open(newline="") as file:
        return [(row["epoch"], row["updates"], row["images"], row["lr/weight"]) for row in csv.DictReader(file)]


@pytest.mark.slow
def test_memory_that_runs_out_at_random_leaves_updates_rates_images_and_weights_as_they_were(
    run_training, tiny_yolo, dose, tmp_path, monkeypatch
):
    data = str(tiny_yolo(16, splits=("train",), box_counts=(0, 1, 3)))
    with monkeypatch.context() as patch:
        calm = Observed(patch)
        whole = run_training(data=data, save_dir=str(tmp_path / "calm"), **SETTINGS)
    wanted = load_checkpoint(whole.last)
    assert len(calm.windows) == 4
    assert all(sum(images.values()) == 8 for images in calm.windows)
    rng = random.Random(0)
    for number in range(dose(3, full=20)):
        with monkeypatch.context() as patch:
            hit = Observed(patch, rng, num_faults=3)
            result = run_training(data=data, save_dir=str(tmp_path / f"hit{number}"), **SETTINGS)
        assert hit.num_injected
        assert rates_and_updates(result.save_dir) == rates_and_updates(whole.save_dir)
        assert hit.windows == calm.windows
        stored = load_checkpoint(result.last)
        assert stored["args"]["values"]["nbs"] == 8
        for name, tensor in wanted["model"].items():
            torch.testing.assert_close(stored["model"][name], tensor, rtol=0, atol=1e-5)
