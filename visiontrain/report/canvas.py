"""Figures of matplotlib without its global state, and how all of them look. Imported only when something is drawn."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Source: Okabe & Ito 2008, "Color Universal Design"; line styles differ too, for prints without color.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLES = ("-", "--", "-.", ":")
FAINT = "#b8bcc2"
_DOTS_PER_INCH = 100
_MOST_LETTERS = 28


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of so many inches, 100 pixels each."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # The object interface: no global figure, no choice of a backend for the program that runs us.
    figure = Figure(figsize=(width, height), dpi=_DOTS_PER_INCH, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: Figure, path: Path) -> None:
    """Write a PNG over whatever is at `path`."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    path.write_bytes(buffer.getvalue())


def style_axes(axes: Axes, title: str, x_label: str, y_label: str) -> None:
    axes.set_title(title, fontsize=11)
    axes.set_xlabel(x_label, fontsize=9)
    axes.set_ylabel(y_label, fontsize=9)
    axes.tick_params(labelsize=9)


def shown_names(names: Sequence[str]) -> list[str]:
    """Names as they are written into a picture: not too long, and never read as a formula.

    One with letters that matplotlib's own font lacks is written as its place, `class 3`.
    """
    letters = _letters()
    return [
        _shortened(name).replace("$", r"\$") if letters.issuperset(map(ord, name)) else f"class {place}"
        for place, name in enumerate(names)
    ]


def _shortened(name: str) -> str:
    half = _MOST_LETTERS // 2  # names that differ tend to differ at their ends
    return name if len(name) <= _MOST_LETTERS else name[: half - 1] + "…" + name[-half:]


def _letters() -> set[int]:
    """What the font of all figures can write."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    return set(get_font(findfont(FontProperties())).get_charmap())
