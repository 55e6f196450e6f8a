"""A run that is killed at any moment goes on to the same bits."""

from __future__ import annotations

import random
from itertools import cycle
from pathlib import Path

import pytest

KILLED = Path(__file__).with_name("killed.py")
ORPHANED = Path(__file__).with_name("orphaned.py")
MOST_KILLS = 3
"""Of one run; the last attempt is left alone."""
EPOCHS, WINDOWS_PER_EPOCH = 2, 3
STAGES = {
    "forward": (EPOCHS * WINDOWS_PER_EPOCH * 2, 0.3),
    "save": (EPOCHS * WINDOWS_PER_EPOCH, 0.06),
    "validation": (EPOCHS, 0.8),
    "start": (1, 8.0),
    "results": (EPOCHS, 0.02),
    "end": (1, 1.0),
}
"""How often each is entered in the whole run at most, and the seconds behind that in which the kill may fall."""


@pytest.fixture
def words(tiny_yolo, small_network):
    """A small run with workers that is saved after every window."""
    settings = {"imgsz": 64, "epochs": EPOCHS, "batch": 2, "nbs": 4, "workers": 2, "warmup_epochs": 0}
    typed = [f"{key}={value}" for key, value in settings.items()]
    return ["train", f"data={tiny_yolo(12)}", f"model={small_network}", "save_minutes=1e-9", "plots=False", *typed]


@pytest.mark.slow
def test_a_run_killed_at_random_moments_ends_as_if_it_had_not_been(words, program, outcome_of, dose, tmp_path):
    whole = program("-m", "visiontrain", *words, f"save_dir={tmp_path / 'whole'}")
    assert whole.code == 0, whole.err
    wanted = outcome_of(tmp_path / "whole")
    rng, num_kills, number = random.Random(0), 0, 0
    stages = cycle(STAGES)
    while num_kills < dose(5, full=50):
        folder = tmp_path / f"killed{number}"
        number += 1
        history = []
        for attempt in range(MOST_KILLS + 1):
            resumes = (folder / "args.yaml").exists()
            command = ["train", f"resume={folder}"] if resumes else [*words, f"save_dir={folder}", "exist_ok=True"]
            if attempt and (attempt == MOST_KILLS or rng.random() < 0.6):
                ended = program("-m", "visiontrain", *command)
            else:
                stage = next(stages)
                most, seconds = STAGES[stage]
                occurrence = rng.randint(1, max(1, most // (attempt + 1)))
                ended = program(KILLED, stage, occurrence, rng.uniform(0, seconds), *command)
                history.append(f"{stage} {occurrence}")
            if ended.code == -9:
                num_kills += 1
                continue
            is_told_finished = resumes and ended.code == 2 and "the run has finished" in ended.err
            assert ended.code == 0 or is_told_finished, (history, ended.out, ended.err)
            break
        assert outcome_of(folder) == wanted, history
        assert (folder / "results.json").is_file()


@pytest.mark.parametrize("workers", ["loader", "check"])
def test_workers_of_a_killed_process_end_with_it(workers, program):
    ended = program(ORPHANED, workers, timeout=60)  # it ends when the last process does that could still write
    assert ended.code == -9, ended.err
