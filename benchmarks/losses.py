"""What the detection loss costs beside the forward and backward passes, with many boxes."""

from __future__ import annotations

import statistics
import time
from itertools import pairwise

from benchmarks.updates import make_batch, make_network
from visiontrain.engine.heap import freed_memory_kept
from visiontrain.losses.detection import DetectionCriterion

MODEL = "det-n"
IMGSZ = 320
BATCH = 8
BOXES = 100
"""In every image."""


def losses_figures(repeats: int) -> dict[str, object]:
    """Milliseconds of the loss with its assignment, of the passes around it, and the share of the first."""
    network, criterion = make_network(MODEL), DetectionCriterion()
    batch = make_batch(BATCH, IMGSZ, boxes=BOXES)
    rows = []
    with freed_memory_kept(batch.images.device):  # as in a training run
        for _ in range(repeats + 1):
            marks = [time.perf_counter()]
            outputs = network(batch.images)
            marks.append(time.perf_counter())
            losses = criterion(outputs, batch)
            marks.append(time.perf_counter())
            losses.total.backward()
            marks.append(time.perf_counter())
            rows.append([after - before for before, after in pairwise(marks)])
    forward, loss, backward = (1e3 * statistics.median(column) for column in zip(*rows[1:], strict=True))
    return {
        "model": MODEL,
        "imgsz": IMGSZ,
        "batch": BATCH,
        "boxes": BOXES,
        "loss_ms": round(loss, 2),
        "passes_ms": round(forward + backward, 2),
        "share": round(loss / (forward + backward), 4),
    }
