"""Runs of several processes."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

TORCHRUN = ("-m", "torch.distributed.run", "--standalone")


@pytest.fixture
def torchrun(program):
    """A function that runs a program in several processes; `program` is what stands behind torchrun's own words."""

    def run(*words, processes=2, restarts=0, **keys):
        counts = (f"--nproc-per-node={processes}", f"--max-restarts={restarts}")
        return program(*TORCHRUN, *counts, *words, **keys)

    return run


@pytest.fixture
def words(tiny_yolo, small_network):
    """A function that gives the words of a small training, whose weights rounding does not carry far."""
    data = tiny_yolo(21, splits=("train", "val"), box_counts=(0, 1, 3, 7))

    def typed(folder: Path, **settings) -> list[str]:
        keys = {
            "data": data,
            "model": small_network,
            "imgsz": 64,
            "batch": 8,
            "nbs": 16,
            "epochs": 2,
            "warmup_epochs": 0,
            "workers": 0,
            "device": "cpu",
            "optimizer": "SGD",
            "lr0": 1e-3,
            "norm": "group",
            "amp": False,
            "plots": False,
            "save_minutes": 1e-9,
            "save_dir": folder,
        }
        return ["train", *(f"{key}={value}" for key, value in {**keys, **settings}.items())]

    return typed


@pytest.fixture(scope="session")
def rows_of():
    """A function that reads results.csv, without the columns that hold seconds."""

    def rows(folder: Path) -> list[dict[str, float]]:
        with (folder / "results.csv").open(encoding="utf-8", newline="") as file:
            return [
                {
                    name: float(cell)
                    for name, cell in row.items()
                    if name != "time" and not name.startswith("t_") and cell
                }
                for row in csv.DictReader(file)
            ]

    return rows
