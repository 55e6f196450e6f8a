"""Draw what the labels of a split look like: how many of each class, where their boxes lie and how large they are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from visiontrain.report.canvas import COLORS, new_figure, save_figure, shown_names, style_axes
from visiontrain.sample import Records

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BINS = 50
_ROW_INCHES = 0.17
_LEAST_INCHES, _MOST_INCHES = 4.0, 30.0


def plot_labels(records: Records, names: Sequence[str], path: Path) -> None:
    """Labels of each class; for boxes also where their centers lie and how wide and high they are.

    Args:
        records: A split.
        names: Class names.
        path: A PNG, written over if it exists.
    """
    boxes = records.boxes
    height = min(max(_LEAST_INCHES, len(names) * _ROW_INCHES + 1.2), _MOST_INCHES)
    if not len(boxes):
        figure = new_figure(7, height)
        _draw_counts(figure.subplots(), records.classes, names)
    elif height > 2 * _LEAST_INCHES:  # many classes: the squares stand above each other
        figure = new_figure(11, height)
        left, right = figure.subfigures(1, 2, width_ratios=(6.5, 4.5), squeeze=False)[0]
        _draw_counts(left.subplots(), records.classes, names)
        rows = max(2, round(height / 4.5))
        squares = right.subplots(rows, 1)
        _draw_boxes(squares[:2], boxes)
        for axes in squares[2:]:
            axes.set_axis_off()
    else:
        figure = new_figure(15, max(height, 4.6))
        counts, *squares = figure.subplots(1, 3, width_ratios=(6, 4.5, 4.5))
        _draw_counts(counts, records.classes, names)
        _draw_boxes(squares, boxes)
    save_figure(figure, path)


def _draw_counts(axes: Axes, classes: NDArray[np.int64], names: Sequence[str]) -> None:
    counts = np.bincount(classes, minlength=len(names))
    places = np.arange(len(names))
    bars = axes.barh(places, counts, color=COLORS[0])
    if len(names) * _ROW_INCHES <= _MOST_INCHES:  # of more the places are numbered
        axes.bar_label(bars, [f"{count:,}" for count in counts], fontsize=8, padding=3)
        axes.set_yticks(places, shown_names(names))
    axes.set_ylim(len(names) - 0.4, -0.6)  # the first class on top
    axes.margins(x=0.12)
    style_axes(axes, f"{counts.sum():,} labels", "labels", "")


def _draw_boxes(axes: Sequence[Axes], boxes: NDArray[np.floating]) -> None:
    sizes = boxes[:, 2:] - boxes[:, :2]
    centers = (boxes[:, :2] + boxes[:, 2:]) / 2
    _draw_density(axes[0], centers)
    axes[0].invert_yaxis()  # as in the image: y grows downwards
    style_axes(axes[0], "centers of boxes", "x, part of the image's width", "y, part of the image's height")
    _draw_density(axes[1], sizes)
    style_axes(axes[1], "sizes of boxes", "width, part of the image's", "height, part of the image's")


def _draw_density(axes: Axes, points: NDArray[np.floating]) -> None:
    axes.hist2d(points[:, 0], points[:, 1], bins=_BINS, range=((0, 1), (0, 1)), cmap="Blues", cmin=1)
    axes.set_aspect("equal")
