"""Draw what a review tells: precision over recall, F1 over the score, and what was taken for what."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from visiontrain.report.canvas import COLORS, FAINT, STYLES, new_figure, save_figure, shown_names, style_axes
from visiontrain.report.review import Confusion, Curves, Numbers, Review

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_NAMED_CURVES = 10
"""Classes up to which each curve has a color and a name; of more, only the best and the worst have."""
NUM_EXTREMES = 3
_MOST_COUNTED = 25  # classes up to which cells hold their number
_MOST_NAMED_ROWS = 200  # classes up to which a confusion names them; of more the places are numbered
_LARGE_CELL, _SMALL_CELL, _MOST_INCHES = 0.5, 0.165, 33.0
_ALL = "all classes"


def plot_review(review: Review, folder: Path) -> None:
    """`PR_curve.png`, `F1_curve.png` and `confusion_matrix.png`, as far as the review has what they show."""
    if review.curves is not None and any(review.curves.precision):
        plot_precision_recall(review.curves, review.names, folder / "PR_curve.png")
        plot_f1(review.curves, review.names, folder / "F1_curve.png", threshold=review.threshold)
    if review.confusion is not None:
        plot_confusion(review.confusion, folder / "confusion_matrix.png")


def plot_precision_recall(curves: Curves, names: Sequence[str], path: Path) -> None:
    """Precision over recall at IoU 0.5, of each class that has ground truth and their mean.

    Args:
        curves: Of at least one class.
        names: Class names.
        path: A PNG, written over if it exists.
    """
    figure = new_figure(9, 6)
    axes = figure.subplots()
    scores = [mean_of(line) for line in curves.precision]
    _draw_lines(axes, curves.recall, curves.precision, names, scores)
    known = [line for line in curves.precision if line is not None]
    mean = np.mean(known, axis=0)
    axes.plot(curves.recall, mean, color="black", linewidth=3, label=f"{_ALL}  {mean.mean():.3f}")
    style_axes(axes, "precision over recall (IoU 0.5); AP50 behind each name", "recall", "precision")
    _finish(axes)
    save_figure(figure, path)


def plot_f1(curves: Curves, names: Sequence[str], path: Path, *, threshold: float) -> None:
    """F1 over the score from which detections count, of each class that has ground truth and their mean.

    Args:
        curves: Of at least one class.
        names: Class names.
        path: A PNG, written over if it exists.
        threshold: The score at which the mean is best; marked.
    """
    figure = new_figure(9, 6)
    axes = figure.subplots()
    best = [math.nan if line is None else max(line) for line in curves.f1]
    _draw_lines(axes, curves.thresholds, curves.f1, names, best)
    mean = np.mean([line for line in curves.f1 if line is not None], axis=0)
    axes.plot(curves.thresholds, mean, color="black", linewidth=3, label=f"{_ALL}  {mean.max():.3f}")
    if math.isfinite(threshold):
        axes.axvline(threshold, color="black", linestyle=":", linewidth=1.5, label=f"best score  {threshold:.3f}")
    style_axes(axes, "F1 over the least score (IoU 0.5); the best F1 behind each name", "least score", "F1")
    _finish(axes)
    save_figure(figure, path)


def plot_confusion(confusion: Confusion, path: Path) -> None:
    """Each cell's part of its row: of what is in the images, how much was taken for what.

    Args:
        confusion: Of at least one class.
        path: A PNG, written over if it exists.
    """
    counts = np.array(confusion.counts, np.float64)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    down, across = counts.shape
    rows, columns = shown_names(confusion.row_names), shown_names(confusion.column_names)
    is_named = across <= _MOST_NAMED_ROWS
    cell = _LARGE_CELL if across <= _MOST_COUNTED else _SMALL_CELL if is_named else _MOST_INCHES / across
    margin = 1.2 + 0.085 * max(map(len, (*rows, *columns)))
    figure = new_figure(max(6.0, across * cell + margin + 1), max(5.0, down * cell + margin))
    axes = figure.subplots()
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    size = 7.5 if across > _MOST_COUNTED else 9
    if is_named:
        axes.set_xticks(range(across), columns, rotation=90, fontsize=size)
        axes.set_yticks(range(down), rows, fontsize=size)
        axes.set_xticks(np.arange(across - 1) + 0.5, minor=True)
        axes.set_yticks(np.arange(down - 1) + 0.5, minor=True)
        axes.grid(which="minor", color="#e3e5e8", linewidth=0.5)
        axes.tick_params(which="minor", length=0)
    if across <= _MOST_COUNTED:
        for (row, column), count in np.ndenumerate(counts):
            if count:
                color = "white" if shares[row, column] > 0.55 else "black"
                axes.text(column, row, f"{count:.0f}", ha="center", va="center", fontsize=8, color=color)
    at = f" at score {confusion.threshold:.3f}" if math.isfinite(confusion.threshold) else ""
    axes.set_title(f"what was taken for what{at}: part of each row", fontsize=11)
    axes.set_xlabel("taken for", fontsize=10)
    axes.set_ylabel("truth", fontsize=10)
    figure.colorbar(image, ax=axes, fraction=0.03, pad=0.02).ax.tick_params(labelsize=8)
    save_figure(figure, path)


def mean_of(line: Numbers | None) -> float:
    """The mean of a curve; nan where there is none."""
    return math.nan if not line else sum(line) / len(line)


def named_places(scores: Sequence[float]) -> list[int]:
    """Which curves are named: all of few, else those of the best and the worst scores, best first; nan never."""
    order = sorted((i for i, score in enumerate(scores) if not math.isnan(score)), key=lambda i: -scores[i])
    if len(order) <= MOST_NAMED_CURVES:
        return sorted(order)
    return [*order[:NUM_EXTREMES], *order[-NUM_EXTREMES:]]


def _draw_lines(
    axes: Axes, x: Numbers, lines: Sequence[Numbers | None], names: Sequence[str], scores: Sequence[float]
) -> None:
    """Each with its score behind its name."""
    named, shown = named_places(scores), shown_names(names)
    for line in (line for place, line in enumerate(lines) if place not in named and line is not None):
        axes.plot(x, line, color=FAINT, linewidth=0.8)
    for count, place in enumerate(named):
        axes.plot(
            x,
            lines[place] or (),
            color=COLORS[count % (len(COLORS) - 1)],  # black is that of the mean
            linestyle=STYLES[count // (len(COLORS) - 1) % len(STYLES)],
            linewidth=1.8,
            label=f"{shown[place]}  {scores[place]:.3f}",
        )


def _finish(axes: Axes) -> None:
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1.02)
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize=9, loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0, frameon=False)
