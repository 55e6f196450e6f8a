"""The curves of `results.csv`: what they show, for the report page too, and as one picture."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from visiontrain.errors import DataError
from visiontrain.report.canvas import COLORS, STYLES, new_figure, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Columns = Mapping[str, Sequence[float]]
"""The values of each column, nan where a cell is empty."""
IMAGES_PER_UPDATE = "images_per_update"
"""A column that is made of two others: the mean size of an epoch's windows."""

_PANEL_INCHES = (4.2, 3.2)
_ACROSS = (4, 3)  # panels side by side
_MARKED_POINTS = 30  # up to so many points are marked one by one


@dataclass(frozen=True)
class Panel:
    """Curves that share their axes."""

    title: str
    curves: Mapping[str, str]
    """Legend → column."""
    from_zero: bool = False
    """Whether the vertical axis begins at 0."""


def plot_results(csv_path: Path, png_path: Path) -> None:
    """Draw losses, metrics, learning rates, updates and times over the epochs of a run into one PNG.

    Args:
        csv_path: `results.csv` of any task; one row is enough, and cells may be empty.
        png_path: Written over if it exists.

    Raises:
        DataError: If the file has no row or no `epoch` column.
    """
    columns = read_columns(csv_path)
    panels = panels_of(columns)
    across = min(_ACROSS, key=lambda count: -len(panels) % count)  # as few empty places as possible
    down = -(-len(panels) // across)
    figure = new_figure(_PANEL_INCHES[0] * across, _PANEL_INCHES[1] * down)
    grid = figure.subplots(down, across, squeeze=False).ravel()
    for axes, panel in zip(grid, panels, strict=False):
        _draw_panel(axes, panel, columns)
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    save_figure(figure, png_path)


def read_columns(path: Path) -> Columns:
    """All columns of a `results.csv`, and the images per update of each epoch.

    Raises:
        DataError: If the file has no row or no `epoch` column, or a cell is no number.
    """
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    if not rows or "epoch" not in rows[0]:
        raise DataError(f"{path}: no row with an epoch was found; it should be the results.csv of a run")
    try:
        columns = {name: [float(row[name] or "nan") for row in rows] for name in rows[0]}
    except (ValueError, TypeError) as error:
        raise DataError(f"{path}: holds something else than numbers ({error}); mend or remove the row") from error
    if not all(map(math.isfinite, columns["epoch"])):
        raise DataError(f"{path}: has a row without its epoch; mend or remove the row")
    if {"images", "updates"} <= set(columns):
        images, updates = (_rises(columns[name]) for name in ("images", "updates"))
        columns[IMAGES_PER_UPDATE] = [x / y if y > 0 else math.nan for x, y in zip(images, updates, strict=True)]
    return columns


def _rises(totals: Sequence[float]) -> list[float]:
    return [after - before for before, after in zip([0.0, *totals], totals, strict=False)]


def panels_of(columns: Columns) -> list[Panel]:
    """One panel for each loss, with its train and val curve, and one for each group of what else is there."""
    panels = [
        Panel(
            name.replace("_", " "),
            {split: f"{split}/{name}" for split in ("train", "val") if f"{split}/{name}" in columns},
        )
        for name in (column.removeprefix("train/") for column in columns if column.startswith("train/"))
    ]
    metrics = {name.removeprefix("metrics/").removesuffix("(B)"): name for name in columns if name[:8] == "metrics/"}
    at_threshold: dict[str, str] = {name: metrics[name] for name in ("precision", "recall") if name in metrics}
    others = {name.replace("_", " "): column for name, column in metrics.items() if name not in at_threshold}
    rates = {name.removeprefix("lr/"): name for name in columns if name.startswith("lr/")}
    windows = {"images per update": IMAGES_PER_UPDATE} if IMAGES_PER_UPDATE in columns else {}
    times = {name.removeprefix("t_"): name for name in columns if name.startswith("t_")}
    groups: dict[str, dict[str, str]] = {
        "precision and recall": at_threshold,
        "mAP" if at_threshold else "accuracy": others,
        "learning rate": rates,
        "images per update (mean of the epoch)": windows,
        "seconds per epoch": times,
    }
    return panels + [Panel(title, curves, from_zero=True) for title, curves in groups.items() if curves]


def _draw_panel(axes: Axes, panel: Panel, columns: Columns) -> None:
    from matplotlib.ticker import MaxNLocator

    epochs = columns["epoch"]
    has_points = False
    for place, (label, column) in enumerate(panel.curves.items()):
        points = [(x, y) for x, y in zip(epochs, columns[column], strict=True) if math.isfinite(y)]
        if not points:
            continue
        has_points = True
        axes.plot(
            [x for x, _ in points],
            [y for _, y in points],
            label=label,
            color=COLORS[place % len(COLORS)],
            linestyle=STYLES[place % len(STYLES)],
            linewidth=1.8,
            marker="o" if len(points) <= _MARKED_POINTS else None,
            markersize=4,
        )
    axes.set_title(panel.title, fontsize=11)
    axes.set_xlabel("epoch", fontsize=9)
    axes.tick_params(labelsize=9)
    axes.grid(visible=True, alpha=0.3)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, min_n_ticks=1))
    margin = max(0.5, (epochs[-1] - epochs[0]) * 0.03)
    axes.set_xlim(epochs[0] - margin, epochs[-1] + margin)  # all panels alike, one epoch or many
    if panel.from_zero and has_points:
        axes.set_ylim(bottom=0)
    if len(panel.curves) > 1 and has_points:
        axes.legend(fontsize=9, framealpha=0.7)
    if not has_points:
        axes.text(0.5, 0.5, "no values", transform=axes.transAxes, ha="center", va="center", color="gray")
