"""What the window adds to an update: all of `GradientWindow` but the backward passes and the optimizer's own step."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch

from benchmarks.updates import make_batch, make_network, make_window, update
from visiontrain.engine.noise import NoiseScale
from visiontrain.engine.window import GradientWindow
from visiontrain.models.network import Network
from visiontrain.sample import Batch

MODEL = "det-n"
IMGSZ = 320
BATCH = 8
NBS = 64


class Stopwatch:
    """Adds up the seconds that some functions take."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            started = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds += time.perf_counter() - started

        return call


def window_figures(repeats: int) -> dict[str, object]:
    """What the window's own work takes, and what it takes where it measures the noise scale."""
    network = make_network(MODEL)
    plain, measuring = make_window(network), make_window(network, NoiseScale())
    batch = make_batch(BATCH, IMGSZ)
    update(network, plain, batch)  # makes the optimizer's state
    return {
        "model": MODEL,
        "imgsz": IMGSZ,
        "batch": BATCH,
        "nbs": NBS,
        "window": shares(network, plain, batch, repeats),
        "window_with_noise_scale": shares(network, measuring, batch, repeats),
    }


def shares(
    network: Network, window: GradientWindow, batch: Batch, repeats: int, *, micro_batches: int = NBS // BATCH
) -> dict[str, float]:
    """The median share of a whole update that the window's own work takes, and the seconds of both."""
    own, whole = [], []
    for _ in range(repeats):
        outer, inner = Stopwatch(), Stopwatch()
        with timing(window, outer, inner):
            started = time.perf_counter()
            update(network, window, batch, micro_batches)
            whole.append(time.perf_counter() - started)
        own.append(outer.seconds - inner.seconds)
    return {
        "update_seconds": round(statistics.median(whole), 3),
        "own_seconds": round(statistics.median(own), 4),
        "share": round(statistics.median(mine / everything for mine, everything in zip(own, whole, strict=True)), 5),
    }


@contextmanager
def timing(window: GradientWindow, outer: Stopwatch, inner: Stopwatch) -> Iterator[None]:
    """Times what is called on `window` with `outer`, and what is not the window's own in it with `inner`."""
    patches = [mock.patch.object(window, name, outer.timed(getattr(window, name))) for name in ("open", "add", "step")]
    patches.append(mock.patch.object(torch.Tensor, "backward", inner.timed(torch.Tensor.backward)))
    patches.append(mock.patch.object(window.optimizer, "step", inner.timed(window.optimizer.step)))
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in patches:
            patch.stop()
