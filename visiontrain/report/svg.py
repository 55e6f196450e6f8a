"""Charts as SVG, for pages: they follow the page's colors, light and dark, and are sharp at any size.

The style sheet gives lines of different places different colors and dashes; places count on beyond them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 340, 210
"""Units of a line chart; about pixels."""
NUM_STYLES = 7
"""Colors of lines; behind them they come again, dashed."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 42, 10, 8, 34
_MOST_MARKED = 60
"""Points up to which each is marked, and tells its value."""
_TICKS = 5
_MOST = 1e30


@dataclass(frozen=True)
class Line:
    """One curve."""

    label: str
    points: Sequence[tuple[float, float]]
    """Those that are not finite are left out."""
    is_faint: bool = False
    """Whether it stays in the background and has no entry in the legend."""
    is_mean: bool = False
    """Whether it stands for all others."""


def line_chart(
    title: str,
    lines: Sequence[Line],
    *,
    x_label: str,
    y_from: float | None = None,
    y_to: float | None = None,
    mark_x: float = math.nan,
    is_counted: bool = False,
) -> str:
    """A figure with curves and their legend.

    Args:
        title: Above it.
        lines: In the order of their styles.
        x_label: Below it.
        y_from: Where the vertical axis begins; None: at the lowest value.
        y_to: Where it ends; None: at the highest value.
        mark_x: Where a vertical line stands.
        is_counted: Whether the horizontal axis counts, so that it has whole numbers only.
    """
    points = [point for line in lines for point in line.points if _is_drawable(point)]
    caption = f"<figcaption>{escape(title)}</figcaption>"
    if not points:
        return f'<figure class="chart">{caption}<p class="none">no values</p></figure>'
    x_axis = Axis.over([x for x, _ in points], _LEFT, WIDTH - _RIGHT)
    ends = [end for end in (y_from, y_to) if end is not None]
    y_axis = Axis.over([*ends, *(y for _, y in points)], HEIGHT - _BOTTOM, _TOP)
    parts = [*_grid(x_axis, y_axis, x_label, least_step=1 if is_counted else 0)]
    if math.isfinite(mark_x):
        x = x_axis.at(mark_x)
        parts.append(f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}"/>')
    styles = _styles(lines)
    # Faint ones first, so that the others lie on them.
    for line, style in sorted(zip(lines, styles, strict=True), key=lambda pair: not pair[0].is_faint):
        parts.append(_curve(line, style, x_axis, y_axis))
    legend = "".join(
        f'<li><svg viewBox="0 0 24 8" aria-hidden="true"><path class="{style}" d="M0 4H24"/></svg>'
        f"{escape(line.label)}</li>"
        for line, style in zip(lines, styles, strict=True)
        if not line.is_faint
    )
    return (
        f'<figure class="chart">{caption}<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(title, quote=True)}">{"".join(parts)}</svg>'
        + (f'<ul class="legend">{legend}</ul>' if len(lines) > 1 else "")
        + "</figure>"
    )


@dataclass(frozen=True)
class Axis:
    """From values to places."""

    low: float
    high: float
    start: float
    end: float

    @staticmethod
    def over(values: Sequence[float], start: float, end: float) -> Axis:
        """An axis that all values have room on; one value stands in the middle."""
        low, high = min(values), max(values)
        if high - low <= 1e-12 * max(abs(low), abs(high)):
            margin = abs(low) / 2 or 0.5
            low, high = low - margin, high + margin
        return Axis(low, high, start, end)

    def at(self, value: float) -> float:
        return self.start + (self.end - self.start) * (value - self.low) / (self.high - self.low)

    def ticks(self, least_step: float = 0) -> list[float]:
        """Round values on the axis, about five, at least so far apart."""
        rough = (self.high - self.low) / _TICKS
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
        step = max(step, least_step)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [count * step for count in range(first, last + 1)]


def _is_drawable(point: tuple[float, float]) -> bool:
    """Not for nan, infinity, or what a run that diverges leaves."""
    return all(abs(value) < _MOST for value in point)


def tick_text(value: float) -> str:
    """A round value, short: 0.05, 1200, 2e-05."""
    return f"{value:.0f}" if value == round(value) and abs(value) < 1e5 else f"{value:.4g}"


def _grid(x_axis: Axis, y_axis: Axis, x_label: str, *, least_step: float) -> Iterable[str]:
    bottom, right = HEIGHT - _BOTTOM, WIDTH - _RIGHT
    for value in y_axis.ticks():
        y = y_axis.at(value)
        yield f'<line x1="{_LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="end" x="{_LEFT - 5}" y="{y + 3.5:.1f}">{tick_text(value)}</text>'
    for value in x_axis.ticks(least_step):
        yield f'<text x="{x_axis.at(value):.1f}" y="{bottom + 14}">{tick_text(value)}</text>'
    yield f'<text x="{(_LEFT + right) / 2}" y="{HEIGHT - 5}">{escape(x_label)}</text>'


def _curve(line: Line, style: str, x_axis: Axis, y_axis: Axis) -> str:
    """The line and its points. An epoch without validation does not break it."""
    known = [point for point in line.points if _is_drawable(point)]
    label = escape(line.label)
    path = "L".join(f"{x_axis.at(x):.1f} {y_axis.at(y):.1f}" for x, y in known)
    marks = [
        f'<circle class="{style}" cx="{x_axis.at(x):.1f}" cy="{y_axis.at(y):.1f}" r="2.2">'
        f"<title>{label} at {tick_text(x)}: {y:.4g}</title></circle>"
        for x, y in known
        if len(known) <= _MOST_MARKED and not line.is_faint
    ]
    return f'<path class="{style}" d="M{path}"><title>{label}</title></path>{"".join(marks)}' if known else ""


def _styles(lines: Sequence[Line]) -> list[str]:
    """The class of each line in the style sheet; only plain ones use up colors."""
    styles, count = [], 0
    for line in lines:
        is_plain = not (line.is_faint or line.is_mean)
        dashes = " dashed" if count // NUM_STYLES % 2 else ""
        styles.append(f"c{count % NUM_STYLES}{dashes}" if is_plain else "faint" if line.is_faint else "mean")
        count += is_plain
    return styles
