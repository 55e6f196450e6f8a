"""What trackers make of the events of a run: names and numbers.

Rows of epochs keep their names from `results.csv`; what is told of single updates stands below `update/`, the score of
the best weights below `best/`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

EPOCH, UPDATE = "epoch", "update"
BEST = "best/"


def epoch_values(row: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of an epoch's row, without the epoch itself and what was not measured."""
    return {name: float(value) for name, value in row.items() if name != EPOCH and value is not None}


def update_values(row: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of one update, named apart from those of the epochs."""
    return {f"{UPDATE}/{name.rpartition('/')[2]}": float(value) for name, value in row.items() if name != UPDATE}


def best_values(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The score of the best weights; what has no ground truth is left out."""
    values = {BEST + name.rpartition("/")[2]: float(value) for name, value in metrics.items()}
    return {name: value for name, value in values.items() if math.isfinite(value)}
