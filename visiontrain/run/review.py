"""What the end of `train` and of `val` keeps of its scores: `review.json`, and the pictures that are drawn of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from visiontrain.config.schema import Config
from visiontrain.protocols import Task
from visiontrain.report.gallery import MOST_SHOTS
from visiontrain.report.plots import plot_review
from visiontrain.report.review import read_review
from visiontrain.report.worst import draw_worst
from visiontrain.run.env import environment
from visiontrain.run.files import argument_of, as_plain, write_json
from visiontrain.run.run_folder import read_shot
from visiontrain.sample import Records

REVIEW = "review.json"


def review_of(
    task: Task, metrics: Mapping[str, Any], records: Records, config: Config, *, split: str
) -> dict[str, Any]:
    """The document: the scores in detail, and what they were made with.

    Args:
        task: Whose metrics they are.
        metrics: By the task's own evaluator.
        records: The split.
        config: The settings.
        split: Its name.
    """
    document: dict[str, Any] = as_plain(
        {
            "task": task.name,
            "split": split,
            **task.review(metrics, records, MOST_SHOTS),
            "settings": [[key, argument_of(key, value), config.origin(key)] for key, value in config.values().items()],
            "environment": environment(),
        }
    )
    return document


def write_review(document: Mapping[str, Any], folder: Path, *, plots: bool) -> None:
    """Write `review.json` and, with `plots`, the curves, the confusion matrix and `val_worst.jpg`."""
    write_json(folder / REVIEW, document, indent=None)
    if plots:
        review, _ = read_review(document)
        assert review is not None
        plot_review(review, folder)
        draw_worst(review, read_shot, folder / "val_worst.jpg")
