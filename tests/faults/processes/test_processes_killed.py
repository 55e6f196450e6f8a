"""A group of which processes are killed at any moment starts again by itself and ends in the same bits."""

from __future__ import annotations

import random
from itertools import cycle
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

STRUCK = Path(__file__).with_name("struck.py")
STAGES = {"forward": (12, 0.05), "save": (6, 0.03), "validation": (2, 0.3), "start": (1, 6.0), "end": (1, 0.5)}
"""How often each is entered at most, and the seconds behind that in which the kill may fall."""


def test_a_group_ends_as_if_none_of_it_had_been_killed(torchrun, words, outcome_of, dose, tmp_path):
    keys = {"norm": "batch", "epochs": 2, "batch": 4, "workers": 1}
    whole = torchrun("-m", "visiontrain", *words(tmp_path / "whole", **keys))
    assert whole.code == 0, whole.err
    wanted = outcome_of(tmp_path / "whole")
    rng, stages = random.Random(0), cycle(STAGES)
    for number in range(dose(2, full=10)):
        folder, stage = tmp_path / f"killed{number}", next(stages)
        most, seconds = STAGES[stage]
        blow = f"kill:{stage}:{rng.randint(1, most)}:{rng.uniform(0, seconds):.3f}"
        process = rng.randrange(2) if stage in ("forward", "validation", "start") else 0  # the one that writes
        ended = torchrun(STRUCK, process, blow, *words(folder, **keys), restarts=3)
        assert ended.code == 0, (blow, ended.err)
        assert outcome_of(folder) == wanted, blow
        assert (folder / "results.json").is_file()
