"""The harness of the fault injection: how much is injected, runs to be hit, and what of a run must come out the same.

`make test-slow` injects a small dose, `make test-slow FULL=1` (VISIONTRAIN_FULL=1) the full one.
"""

from __future__ import annotations

import csv
import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest


def dose(small: int, *, full: int) -> int:
    """How many faults are injected."""
    return full if os.environ.get("VISIONTRAIN_FULL", "") not in ("", "0") else small


@pytest.fixture(name="dose", scope="session")
def dose_fixture() -> Callable[..., int]:
    """The function `dose`."""
    return dose


@dataclass(frozen=True)
class Outcome:
    """What of a run must not depend on what was done to it."""

    weights: str
    """SHA-256 of the live weights."""
    ema: str
    results: str
    """SHA-256 of results.csv without the columns that hold seconds."""


def outcome_of(folder: Path) -> Outcome:
    """Read a finished run."""
    from visiontrain.engine.checkpoint import load_checkpoint

    checkpoint = load_checkpoint(folder / "weights" / "last.pt")
    with (folder / "results.csv").open(encoding="utf-8", newline="") as file:
        rows = [
            [(name, cell) for name, cell in row.items() if name != "time" and not name.startswith("t_")]
            for row in csv.DictReader(file)
        ]
    results = hashlib.sha256(repr(rows).encode()).hexdigest()
    return Outcome(digest_of(checkpoint["model"]), digest_of(checkpoint["ema"] or {}), results)


def digest_of(tensors: Mapping[str, object]) -> str:
    """SHA-256 of names and bytes, sorted by name."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\0".encode())  # type: ignore[attr-defined]
        digest.update(tensor.contiguous().numpy().tobytes())  # type: ignore[attr-defined]
    return digest.hexdigest()


@pytest.fixture(name="outcome_of", scope="session")
def outcome_of_fixture() -> Callable[[Path], Outcome]:
    """The function `outcome_of`."""
    return outcome_of


@dataclass(frozen=True)
class Ended:
    """A program that has ended."""

    code: int
    """Of its exit; negative: the signal that ended it."""
    out: str
    err: str


@pytest.fixture
def program(tmp_path, repository) -> Callable[..., Ended]:
    """A function that runs a Python program in a process of its own, from an empty folder, on one thread.

    The program and the processes that it started are gone when it returns.
    """
    (tmp_path / "cwd").mkdir(exist_ok=True)

    def run(
        *words: object,
        timeout: float = 300,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> Ended:
        paths = [(environment or {}).get("PYTHONPATH", ""), str(repository), os.environ.get("PYTHONPATH", "")]
        process = subprocess.Popen(
            [sys.executable, *map(str, words)],
            cwd=cwd or tmp_path / "cwd",
            env={
                **os.environ,
                "OMP_NUM_THREADS": "1",
                **(environment or {}),
                "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            _end_group(process)
            out, err = process.communicate()
            pytest.fail(f"{' '.join(map(str, words))} hangs\n{out[-2000:]}\n{err[-2000:]}")
        _end_group(process)
        return Ended(process.returncode, out, err)

    return run


def _end_group(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture(scope="session")
def files_below() -> Callable[[Path], set[str]]:
    """A function that gives the relative paths of everything in a folder."""

    def below(folder: Path) -> set[str]:
        return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}

    return below


@pytest.fixture
def emptied() -> Callable[[Path], None]:
    """A function that removes what is in a folder."""

    def empty(folder: Path) -> None:
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()

    return empty
