"""The scores of a review as parts of a page: a table that can be sorted, curves, confusion, kinds of error."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

from visiontrain.report.plots import MOST_NAMED_CURVES, mean_of, named_places
from visiontrain.report.review import Calibration, Confusion, Curves, ErrorKind, Numbers, Review, Table
from visiontrain.report.svg import Line, line_chart

NOT_AVAILABLE = "–"
_MOST_COUNTED = 25  # rows of a confusion up to which cells hold their number
_MOST_ROWS = 150
_LARGE_CELL, _SMALL_CELL = 36, 15  # pixels
_MOST_LETTERS = 24
_MOST_CONFUSED = 10
_MOST_FAINT = 100  # lines in the background


def score_table(table: Table) -> str:
    """One row for each class; bars show what is a part of one, and headers sort."""
    heads = "".join(
        f'<th scope="col"><button type="button">{escape(name)}</button></th>' for name in ("class", *table.columns)
    )
    rows = "".join(
        f'<tr><th scope="row" data-value="{escape(name, quote=True)}">{escape(name)}</th>'
        f"{''.join(map(_cell, row, _are_parts(table)))}</tr>"
        for name, row in zip(table.names, table.rows, strict=True)
    )
    return (
        '<div class="wide" tabindex="0" role="region" aria-label="scores of each class"><table class="scores sortable">'
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def fixed(value: float) -> str:
    """A number as it is read: whole ones whole, others with three decimals; a dash for nan."""
    if math.isnan(value):
        return NOT_AVAILABLE
    return f"{value:.0f}" if value == round(value) and abs(value) > 1 else f"{value:.3f}"


def _are_parts(table: Table) -> list[bool]:
    """Of each column: whether its values are parts of one, not counts."""
    columns = zip(*table.rows, strict=True) if table.rows else [()] * len(table.columns)
    return [all(math.isnan(x) or 0 <= x <= 1 for x in column) for column in columns]


def _cell(value: float, is_part: bool) -> str:
    sorted_by = "" if math.isnan(value) else repr(value)
    if not is_part:
        return f'<td data-value="{sorted_by}">{NOT_AVAILABLE if math.isnan(value) else f"{value:.0f}"}</td>'
    width = 0 if math.isnan(value) else value
    text = NOT_AVAILABLE if math.isnan(value) else f"{value:.3f}"
    return f'<td data-value="{sorted_by}" style="background-size: {width:.1%} 100%">{text}</td>'


def score_curves(review: Review) -> str:
    """Charts of precision over recall and of F1 over the score, and of calibration, as far as there are any."""
    charts: list[str] = []
    if review.curves is not None and any(review.curves.precision):
        charts += _curve_charts(review.curves, review.names, review.threshold)
    if review.calibration is not None:
        charts.append(_calibration_chart(review.calibration))
    return f'<div class="charts">{"".join(charts)}</div>' if charts else ""


def _curve_charts(curves: Curves, names: Sequence[str], threshold: float) -> Iterable[str]:
    areas = [mean_of(line) for line in curves.precision]
    best = [math.nan if line is None else max(line) for line in curves.f1]
    more = sum(line is not None for line in curves.precision) > MOST_NAMED_CURVES
    which = "; named are the best and the worst classes" if more else ""
    yield line_chart(
        f"precision over recall, IoU 0.5 (AP50){which}",
        _lines(names, curves.recall, curves.precision, areas),
        x_label="recall",
        y_from=0,
        y_to=1,
    )
    yield line_chart(
        f"F1 over the least score (best F1){which}",
        _lines(names, curves.thresholds, curves.f1, best),
        x_label="least score",
        y_from=0,
        y_to=1,
        mark_x=threshold,
    )


def _lines(names: Sequence[str], x: Numbers, lines: Sequence[Numbers | None], scores: Sequence[float]) -> list[Line]:
    """Faint ones first, then those with names; the mean of all last."""
    known = [line for line in lines if line is not None]
    named = named_places(scores)
    others = [place for place, line in enumerate(lines) if line is not None and place not in named]
    places = others[:: max(1, len(others) // _MOST_FAINT)]  # no page of megabytes for lines that nobody tells apart
    mean = [sum(values) / len(known) for values in zip(*known, strict=True)]
    score = sum(value for value in scores if not math.isnan(value)) / len(known)
    return [
        *(_line(names, x, lines, scores, place, is_faint=True) for place in places),
        *(_line(names, x, lines, scores, place, is_faint=False) for place in named),
        *([Line(f"mean {score:.3f}", list(zip(x, mean, strict=True)), is_mean=True)] if len(known) > 1 else []),
    ]


def _line(
    names: Sequence[str],
    x: Numbers,
    lines: Sequence[Numbers | None],
    scores: Sequence[float],
    place: int,
    *,
    is_faint: bool,
) -> Line:
    return Line(f"{names[place]} {scores[place]:.3f}", list(zip(x, lines[place] or (), strict=True)), is_faint)


def _calibration_chart(calibration: Calibration) -> str:
    seen = [
        (confidence, accuracy)
        for confidence, accuracy, count in zip(
            calibration.confidence, calibration.accuracy, calibration.counts, strict=True
        )
        if count
    ]
    return line_chart(
        "how often it is right, by what it claims",
        [Line("measured", seen), Line("ideal", [(0.0, 0.0), (1.0, 1.0)])],
        x_label="probability",
        y_from=0,
        y_to=1,
    )


def confusion_matrix(confusion: Confusion) -> str:
    """The matrix as SVG, shaded by each cell's part of its row, and the most frequent confusions in words."""
    down, across = len(confusion.row_names), len(confusion.column_names)
    if across > _MOST_ROWS:
        return f"<p>Of {across} columns a matrix would be too large for a page.</p>{_most_confused(confusion)}"
    is_large = across <= _MOST_COUNTED
    cell = _LARGE_CELL if is_large else _SMALL_CELL
    letters = max(len(_short(name)) for name in (*confusion.row_names, *confusion.column_names))
    left = top = 10 + 6.4 * letters
    cells = "".join(_matrix_cells(confusion, cell, is_large=is_large))
    row_names = "".join(
        f'<text class="end" x="-6" y="{(place + 0.5) * cell + 4:.1f}">{escape(_short(name))}</text>'
        for place, name in enumerate(confusion.row_names)
    )
    column_names = "".join(
        f'<text style="text-anchor: start" transform="translate({(place + 0.5) * cell + 4:.1f} -6) rotate(-90)">'
        f"{escape(_short(name))}</text>"
        for place, name in enumerate(confusion.column_names)
    )
    width, height = left + across * cell + 2, top + down * cell + 2
    at = f" at score {confusion.threshold:.3f}" if math.isfinite(confusion.threshold) else ""
    return (
        f"<p>Rows: what is there; columns: what it was taken for{at}. A cell is the darker the larger its part of its "
        'row.</p><div class="wide matrix" tabindex="0" role="region" aria-label="confusion matrix">'
        f'<svg width="{width:.0f}" height="{height:.0f}" viewBox="{-left:.1f} {-top:.1f} {width:.1f} {height:.1f}" '
        f'role="img" aria-label="confusion matrix">'
        f'<rect class="frame" x="0" y="0" width="{across * cell}" height="{down * cell}"/>'
        f"{cells}{row_names}{column_names}</svg></div>{_most_confused(confusion)}"
    )


def _matrix_cells(confusion: Confusion, cell: int, *, is_large: bool) -> Iterable[str]:
    for row, counts in enumerate(confusion.counts):
        total = sum(counts)
        for column, count in enumerate(counts):
            if not count:
                continue
            share = count / total
            said = (
                f"{escape(confusion.row_names[row])} taken for {escape(confusion.column_names[column])}: "
                f"{count} ({share:.1%})"
            )
            yield (
                f'<rect x="{column * cell}" y="{row * cell}" width="{cell}" height="{cell}" '
                f'opacity="{0.08 + 0.92 * share:.2f}"><title>{said}</title></rect>'
            )
            if is_large:
                kind = ' class="on"' if share > 0.5 else ""
                x, y = (column + 0.5) * cell, (row + 0.5) * cell + 4
                yield f'<text{kind} x="{x:.0f}" y="{y:.0f}" pointer-events="none">{count}</text>'


def _most_confused(confusion: Confusion) -> str:
    pairs = sorted(
        (-count, row, column)
        for row, counts in enumerate(confusion.counts)
        for column, count in enumerate(counts)
        if count and row != column
    )[:_MOST_CONFUSED]
    if not pairs:
        return "<p>Nothing was taken for anything else.</p>"
    items = "".join(
        f"<li>{-count} × {escape(confusion.row_names[row])} → {escape(confusion.column_names[column])}</li>"
        for count, row, column in pairs
    )
    return f"<details><summary>the most frequent confusions</summary><ol>{items}</ol></details>"


def error_kinds(errors: Sequence[ErrorKind]) -> str:
    """How many errors there are of each kind, and what it would bring to mend them."""
    most = max((one.count for one in errors), default=0) or 1
    rows = "".join(
        f'<tr><th scope="row">{escape(one.kind)}</th><td class="text">{escape(one.says)}</td>'
        f'<td style="background-size: {one.count / most:.1%} 100%">{one.count}</td>'
        f"<td>{NOT_AVAILABLE if math.isnan(one.gain) else f'{one.gain:+.3f}'}</td></tr>"
        for one in errors
    )
    return (
        '<div class="wide" tabindex="0" role="region" aria-label="kinds of error"><table><thead><tr><th>kind</th>'
        '<th></th><th scope="col">errors</th><th scope="col">mAP50 if mended</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _short(name: str) -> str:
    half = _MOST_LETTERS // 2
    return name if len(name) <= _MOST_LETTERS else f"{name[: half - 1]}…{name[-half:]}"
