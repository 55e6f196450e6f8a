"""Whole runs that differ in nothing but how their windows are cut and loaded end with the same weights.

In single precision it is rounding that is compared, and two things could make it grow until it says nothing. At the
customary rates training itself is unstable (30 updates multiply a difference by thousands, in double precision too),
hence rates of a tenth. And assignment is a choice: which ten anchor points fit a box best may hang on the last bit;
here no box holds ten, so there is nothing to choose. In double precision the customary rates are judged as well.
"""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from torch import Tensor

from visiontrain.engine.checkpoint import load_checkpoint
from visiontrain.engine.schedule import Rates
from visiontrain.run.parts import build_parts
from visiontrain.run.record import Recorder

pytestmark = pytest.mark.slow

WEIGHTS, CHANGE, LOSSES = 1e-5, 1e-3, 1e-5
"""The most that weights, their change since the start, and logged losses may differ, relative."""
DOUBLE_PRECISION = 1e-8

SIZE = 32
SETTINGS = {
    "imgsz": SIZE,
    "scale": 0.0,  # boxes keep their size, less than two of the finest strides
    "nbs": 16,
    "norm": "group",  # knows nothing of micro-batches
    "amp": False,
    "warmup_epochs": 0,
    "val": False,
}


@dataclass
class Run:
    """What a run left behind."""

    folder: Path
    start: dict[str, Tensor] = field(default_factory=dict)
    images: list[list[str]] = field(default_factory=list)
    """Of each window, in order."""
    rates: list[Rates] = field(default_factory=list)

    def weights(self, key: str) -> dict[str, Tensor]:
        return load_checkpoint(self.folder / "weights" / "last.pt")[key]

    def columns(self, *prefixes: str) -> list[dict[str, float]]:
        with (self.folder / "results.csv").open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        return [{name: float(row[name]) for name in row if name.startswith(prefixes)} for row in rows]

    def windows(self) -> list[str]:
        """The windows of each epoch, as train.log has them."""
        lines = (self.folder / "train.log").read_text(encoding="utf-8").splitlines()
        return [line.strip() for line in lines if line.lstrip().startswith("windows of epoch")]

    def planned_images(self) -> list[list[int]]:
        plan = json.loads((self.folder / "plan.json").read_text(encoding="utf-8"))
        return [span["images"] for span in plan["windows"]]


@pytest.fixture
def train(run_training, tiny_yolo, tmp_path, monkeypatch):
    """A function that trains on small images with differing numbers of boxes, and notes what each window held."""

    def run(name: str, *, num_images: int = 16, dtype: torch.dtype = torch.float32, **settings) -> Run:
        data = tmp_path / "tiny" / "data.yaml"
        if not data.is_file():
            tiny_yolo(num_images, size=SIZE, box_counts=(1, 0, 3, 2, 0, 4, 1, 1))
        done = Run(tmp_path / name)
        tell_window = Recorder.window

        def note_start(session, **keys):
            parts = build_parts(session, **keys)
            parts.network.to(dtype)
            parts.average.model.to(dtype)
            done.start = {name: tensor.clone() for name, tensor in parts.network.state_dict().items()}
            return parts

        def note_window(recorder, window, *arguments):
            done.images.append([path for batch in window for path in batch.paths])
            done.rates += [value for value in arguments if isinstance(value, Rates)]
            return tell_window(recorder, window, *arguments)

        with monkeypatch.context() as patch:
            patch.setattr("visiontrain.run.train.build_parts", note_start)
            patch.setattr(Recorder, "window", note_window)
            run_training(**{**SETTINGS, "data": str(data), "save_dir": str(done.folder), **settings})
        return done

    return run


def flat(tensors: dict[str, Tensor]) -> Tensor:
    return torch.cat([tensor.flatten().double() for tensor in tensors.values() if tensor.is_floating_point()])


def differences(run: Run, reference: Run, key: str) -> tuple[float, float]:
    """Of the final weights, and of their change since the start; relative."""
    assert all(torch.equal(tensor, reference.start[name]) for name, tensor in run.start.items())
    weights, wanted, start = flat(run.weights(key)), flat(reference.weights(key)), flat(reference.start)
    apart = (weights - wanted).norm()
    return (apart / wanted.norm()).item(), (apart / (wanted - start).norm()).item()


def assert_same_windows(run: Run, reference: Run, updates: int) -> None:
    assert len(reference.images) == len(reference.rates) == updates
    assert run.images == reference.images
    assert run.rates == reference.rates
    assert run.windows() == reference.windows()
    assert run.planned_images() == reference.planned_images()
    exact = ("epoch", "updates", "images", "lr/")
    assert run.columns(*exact) == reference.columns(*exact)


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on a single core torch advises against workers
@pytest.mark.parametrize(
    ("settings", "workers"),
    [
        ({"model": "det-n", "optimizer": "SGD", "lr0": 1e-3}, 2),
        ({"optimizer": "AdamW", "lr0": 1e-3}, 0),
        ({"optimizer": "Muon", "lr0": 2e-3}, 0),
    ],
    ids=lambda value: " ".join(map(str, value.values())) if isinstance(value, dict) else f"{value} workers",
)
def test_neither_micro_batches_nor_workers_change_what_is_learned(train, settings, workers):
    whole = train("whole", batch=16, workers=0, epochs=30, **settings)
    cut = train("cut", batch=2, workers=workers, epochs=30, **settings)

    assert_same_windows(cut, whole, updates=30)
    for key in ("model", "ema"):
        weights, change = differences(cut, whole, key)
        assert weights <= WEIGHTS, key
        assert change <= CHANGE, key
    for row, wanted in zip(cut.columns("train/"), whole.columns("train/"), strict=True):
        assert row == pytest.approx(wanted, rel=LOSSES)


@pytest.mark.parametrize("optimizer", ["SGD", "auto"])
def test_in_double_precision_the_customary_rates_show_no_difference_either(train, optimizer):
    settings = {"epochs": 15, "optimizer": optimizer, "workers": 0, "dtype": torch.float64}
    whole, cut = train("whole", batch=16, **settings), train("cut", batch=2, **settings)
    _, change = differences(cut, whole, "model")
    assert change <= DOUBLE_PRECISION


@pytest.mark.parametrize("tail", ["flush", "spread", "carry"])
def test_what_becomes_of_the_tail_does_not_depend_on_micro_batches(train, tail):
    settings = {"num_images": 26, "epochs": 4, "tail": tail, "optimizer": "SGD", "lr0": 1e-3, "workers": 0}
    whole, cut = train("whole", batch=16, **settings), train("cut", batch=2, **settings)
    assert_same_windows(cut, whole, updates={"flush": 8, "spread": 8, "carry": 7}[tail])
    _, change = differences(cut, whole, "model")
    assert change <= CHANGE
