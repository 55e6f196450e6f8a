"""Where the time of training goes: images, forward pass, loss, backward pass, the window's close, the average.

Each way runs in a fresh process, since a process's peak memory never falls:

    python -m benchmarks.training train data=my.yaml imgsz=320 batch=8
    python -m benchmarks.training raw data=my.yaml imgsz=320 batch=8

`train` is training with whatever keys `visiontrain train` takes, walked by hand so that every part can be timed; `raw`
is what torch alone needs for the forward and backward passes of the same network: float32, one thread, no loss. Their
ratio says how much of the machine training uses, whatever the machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from unittest import mock

import torch

from benchmarks.checkpointing import peak_bytes
from benchmarks.timing import median_seconds
from benchmarks.window import Stopwatch
from visiontrain.config.load import load_config
from visiontrain.data.loader import LoadedWindow
from visiontrain.run.parts import Parts, build_parts
from visiontrain.run.process import own_random_state, process_settings
from visiontrain.run.session import Session, open_session

WAYS = ("train", "raw")
KEYS = {"imgsz": "320", "batch": "8", "nbs": "64"}
"""Of the customary comparison, where no others are given."""
WARM_EPOCHS = 1
"""Not measured: libraries load, and the optimizer's state is made."""
PHASES = ("data", "forward", "loss", "backward", "close", "optimizer", "average")


def training_figures(repeats: int, *, data: Path | None = None) -> dict[str, object]:
    """Medians over `repeats` epochs, and the ratio to what torch alone does."""
    words = [] if data is None else [f"data={data}"]
    train, raw = (_in_fresh_process(way, repeats, words) for way in WAYS)
    return {"keys": typed(words), **train, "raw": raw, "ratio_to_raw": ratio(train, raw)}


def typed(words: Sequence[str]) -> list[str]:
    """`words` with those of `KEYS` that they leave out."""
    given = {word.partition("=")[0] for word in words}
    return [*words, *(f"{key}={value}" for key, value in KEYS.items() if key not in given)]


def ratio(train: dict[str, object], raw: dict[str, object]) -> float:
    """Images per second of training for one of the raw passes."""
    return round(float(str(train["images_per_second"])) / float(str(raw["images_per_second"])), 2)


def _in_fresh_process(way: str, repeats: int, words: Sequence[str]) -> dict[str, object]:
    command = [sys.executable, "-m", "benchmarks.training", way, *words, f"--repeats={repeats}"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def measure_training(words: Sequence[str], repeats: int) -> dict[str, object]:
    """Images per second of an epoch and of its validation, the share of every part, and peak memory."""
    config = load_config("train", command_line=[*typed(words), f"epochs={WARM_EPOCHS + repeats}", "plots=False"])
    session = open_session(config)
    settings = process_settings(session.setup, is_deterministic=session.config.deterministic)
    with settings, own_random_state(session.setup, session.config.seed):
        parts = build_parts(session, warn=lambda text: print(text, file=sys.stderr))
        try:
            by_epoch = groupby(parts.windows(0), key=lambda window: window.planned.epoch)
            rows = [_measure_epoch(session, parts, windows) for _, windows in by_epoch][WARM_EPOCHS:]
        finally:
            parts.close()
    seconds = statistics.median(sum(row[phase] for phase in PHASES) for row in rows)
    val_seconds = statistics.median(row["val"] for row in rows)
    return {
        "threads": session.setup.threads,
        "precision": session.precision.name,
        "images_per_second": round(len(session.train) / seconds, 1),
        "val_images_per_second": None if session.val is None else round(len(session.val) / val_seconds, 1),
        "shares": {phase: round(statistics.median(row[phase] for row in rows) / seconds, 4) for phase in PHASES},
        "peak_mb": round(peak_bytes() / 2**20),
    }


def _measure_epoch(session: Session, parts: Parts, windows: Iterable[LoadedWindow]) -> dict[str, float]:
    """Seconds of every part of an epoch, and of its validation."""
    laps, gradients = Laps(), parts.transaction.gradients
    criterion = session.task.criterion(parts.network, session.config)
    parts.network.train()
    optimizer_time = Stopwatch()
    timed_step = optimizer_time.timed(gradients.optimizer.step)
    with mock.patch.object(gradients.optimizer, "step", timed_step):
        for window in windows:
            session.recipe.schedule.apply(gradients.optimizer, window.planned)
            gradients.open(window.planned.size)
            for batch in window:
                laps.end("data")
                with gradients.micro_batch(last=batch.is_last):
                    with session.precision.autocast():
                        outputs = parts.network(batch.images)
                    laps.end("forward")
                    losses = criterion(outputs, batch)
                    laps.end("loss")
                    gradients.add(losses, num_images=len(batch))
                del outputs, losses  # else they are held during the next forward pass
                laps.end("backward")
            report = gradients.step()
            laps.end("close")
            if report.applied:
                parts.average.update(parts.network)
            laps.end("average")
    if parts.scorer is not None:
        parts.scorer.score(parts.average.model)
    laps.end("val")
    laps.seconds["close"] -= optimizer_time.seconds
    return {**laps.seconds, "optimizer": optimizer_time.seconds}


class Laps:
    """Adds up by name the seconds between one call and the next."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys((*PHASES, "val"), 0.0)
        self._since = time.perf_counter()

    def end(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name] += now - self._since
        self._since = now


def measure_raw(words: Sequence[str], repeats: int) -> dict[str, object]:
    """Images per second of forward and backward passes in torch's defaults: float32, memory format, no autocast."""
    session = open_session(load_config("train", command_line=[*typed(words), "plots=False"]))
    torch.set_num_threads(1)
    network, config = session.network.train(), session.config
    assert isinstance(config.batch, int)
    assert config.imgsz is not None
    images = torch.zeros(config.batch, 3, config.imgsz, config.imgsz, dtype=torch.uint8)

    def update() -> None:
        outputs = network(images)
        sum(tensor.sum() for tensor in outputs if tensor.requires_grad).backward()

    update()
    seconds = median_seconds(update, 3 * repeats)
    return {"threads": 1, "precision": "fp32", "images_per_second": round(config.batch / seconds, 1)}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training", description=__doc__.partition("\n")[0])
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("keys", nargs="*", help="key=value as for visiontrain train")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args(argv)
    measure = {"train": measure_training, "raw": measure_raw}[arguments.way]
    print(json.dumps(measure(arguments.keys, arguments.repeats)))


if __name__ == "__main__":
    main()
