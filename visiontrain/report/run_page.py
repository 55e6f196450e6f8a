"""The page of a run: what it reached, how it got there and where it fails, in one file that needs no network.

It is made of whatever the run folder holds; what is not there is told and left out. Names and texts come from the
user's files: everything is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import NamedTuple

from visiontrain.report.curves import Columns, panels_of
from visiontrain.report.gallery import gallery
from visiontrain.report.html import html_page, image_tag, write_page
from visiontrain.report.review import Review
from visiontrain.report.run_script import SCRIPT
from visiontrain.report.run_style import RUN_CSS
from visiontrain.report.score_parts import (
    NOT_AVAILABLE,
    confusion_matrix,
    error_kinds,
    fixed,
    score_curves,
    score_table,
)
from visiontrain.report.svg import Line, line_chart

Pairs = Sequence[tuple[str, str]]


class Argument(NamedTuple):
    """A setting of the run."""

    key: str
    value: str
    origin: str
    """default, cfg file, command line, python, sample or decided."""


class Picture(NamedTuple):
    """A picture of the run folder."""

    caption: str
    jpeg: bytes


@dataclass(frozen=True)
class RunPage:
    """What the page tells; what is empty or None is left out."""

    title: str
    """The run folder."""
    state: str
    """How far the run has come, in one sentence."""
    is_done: bool
    missing: Sequence[str] = ()
    """What the page lacks, and why."""
    facts: Pairs = ()
    """Names and values, the most important first."""
    warnings: Sequence[str] = ()
    columns: Columns | None = None
    """Of `results.csv`."""
    review: Review | None = None
    shots: Sequence[bytes | None] = ()
    """A JPEG of each image of the review's gallery; None where it cannot be read."""
    plan: Pairs = ()
    windows: Pairs = ()
    """Epochs, and the windows of each of them."""
    arguments: Sequence[Argument] = ()
    environment: Pairs = ()
    pictures: Sequence[Picture] = field(default_factory=tuple)


def write_run_page(path: Path, page: RunPage) -> None:
    """Write the page in one step: whoever opens it sees all of it, or the one before."""
    write_page(path, run_page(page))


def run_page(page: RunPage) -> str:
    """The page as HTML."""
    parts = [(name, html) for name, html in _parts(page) if html]
    links = "".join(f'<a href="#{_anchor(name)}">{name}</a>' for name, _ in parts)
    body = [
        f"<h1>{escape(page.title)}</h1>",
        f'<p class="verdict {"good" if page.is_done else "bad"}">{escape(page.state)}</p>',
        _list("warnings", page.warnings),
        _facts(page),
        f'<nav aria-label="parts of the page">{links}</nav>',
        *(f'<h2 id="{_anchor(name)}">{name}</h2>{html}' for name, html in parts),
    ]
    return html_page(f"run: {page.title}", "\n".join(filter(None, body)), style=RUN_CSS, script=SCRIPT)


def _parts(page: RunPage) -> Iterable[tuple[str, str]]:
    """Titles of chapters and what is in them; some may be empty."""
    review = page.review
    yield "Curves", "" if page.columns is None else _curves(page.columns)
    if review is not None:
        counted = "" if review.instances is None else f", {review.instances} labels"
        about = f"<p>The {escape(review.split)} split: {review.images} images{counted}.</p>"
        yield "Scores", "" if review.table is None else about + score_table(review.table)
        yield "Score curves", score_curves(review)
        yield "Confusion", "" if review.confusion is None else confusion_matrix(review.confusion)
        yield "Kinds of error", error_kinds(review.errors) if review.errors else ""
        yield "Worst images", gallery(review, page.shots) if review.gallery else ""
    yield "Plan", _pairs(page.plan) + _windows(page.windows)
    yield "Time", "" if page.columns is None else _time(page.columns)
    yield "Pictures", _pictures(page.pictures)
    yield "Settings", _arguments(page.arguments)
    yield "Environment", _pairs(page.environment)
    yield "Not here", f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in page.missing)}</ul>" if page.missing else ""


def _anchor(name: str) -> str:
    return name.lower().replace(" ", "-")


def _list(kind: str, lines: Sequence[str]) -> str:
    return f'<ul class="{kind}">{"".join(f"<li>{escape(line)}</li>" for line in lines)}</ul>' if lines else ""


def _facts(page: RunPage) -> str:
    """Tiles: the scores with their intervals, then the rest."""
    review = page.review
    tiles = []
    for name, value in () if review is None else review.summary:
        assert review is not None
        low, high = (review.intervals or {}).get(name, (math.nan, math.nan))
        interval = "" if math.isnan(low) else f"<small>95 % interval: {low:.3f} to {high:.3f}</small>"
        tiles.append(f"<div><dt>{escape(short_metric(name))}</dt><dd>{fixed(value)}{interval}</dd></div>")
    tiles += [f'<div><dt>{escape(name)}</dt><dd class="word">{escape(value)}</dd></div>' for name, value in page.facts]
    return f'<dl class="tiles">{"".join(tiles)}</dl>' if tiles else ""


def short_metric(name: str) -> str:
    """`metrics/mAP50(B)` as it is spoken: mAP50."""
    return name.removeprefix("metrics/").removesuffix("(B)").replace("_", " ")


def _curves(columns: Columns) -> str:
    charts = [
        line_chart(
            panel.title,
            [
                Line(label, list(zip(columns["epoch"], columns[column], strict=True)))
                for label, column in panel.curves.items()
            ],
            x_label="epoch",
            is_counted=True,
            y_from=0 if panel.from_zero else None,
        )
        for panel in panels_of(columns)
    ]
    return f'<div class="charts">{"".join(charts)}</div>'


def _pairs(pairs: Pairs) -> str:
    if not pairs:
        return ""
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td class="text">{escape(value)}</td></tr>' for name, value in pairs
    )
    return f'<div class="wide"><table><tbody>{rows}</tbody></table></div>'


def _windows(windows: Pairs) -> str:
    if not windows:
        return ""
    return f"<details><summary>windows: the images of each update</summary>{_pairs(windows)}</details>"


def _time(columns: Columns) -> str:
    """What the run's time went into; what is in none of the columns is told as the rest."""
    known = [
        (says, _total(columns[name]))
        for name, says in (
            ("t_data", "waiting for data"),
            ("t_step", "forward, backward and update"),
            ("t_val", "validation"),
        )
        if name in columns
    ]
    total = max((x for x in columns.get("time", ()) if math.isfinite(x)), default=math.nan)
    rest = total - sum(seconds for _, seconds in known)
    if not known or not total > 0:
        return ""
    rows = "".join(
        f'<tr><th scope="row">{says}</th><td>{seconds:,.1f} s</td>'
        f'<td style="background-size: {share:.1%} 100%; min-width: 12rem">{share:.1%}</td></tr>'
        for says, seconds in (*known, ("saving and the rest", max(rest, 0.0)))
        for share in (min(seconds / max(total, sum(x for _, x in known)), 1.0),)
    )
    rows += f"<tr><th>all</th><td>{total:,.1f} s</td><td></td></tr>"
    return f'<div class="wide"><table><tbody>{rows}</tbody></table></div>'


def _total(values: Sequence[float]) -> float:
    return sum(value for value in values if math.isfinite(value))


def _pictures(pictures: Sequence[Picture]) -> str:
    if not pictures:
        return ""
    return (
        '<div class="pictures">'
        + "".join(
            f"<details{' open' if place == 0 else ''}><summary>{escape(picture.caption)}</summary>"
            f"{image_tag(picture.jpeg, picture.caption)}</details>"
            for place, picture in enumerate(pictures)
        )
        + "</div>"
    )


def _arguments(arguments: Sequence[Argument]) -> str:
    """Those that are not defaults, and all behind a click."""
    if not arguments:
        return ""
    given = [one for one in arguments if one.origin != "default"]
    return (
        _argument_table(given)
        + f"<details><summary>all {len(arguments)} settings</summary>{_argument_table(arguments)}</details>"
    )


def _argument_table(arguments: Sequence[Argument]) -> str:
    rows = "".join(
        f'<tr><th scope="row"><code>{escape(one.key)}</code></th><td class="text">{escape(one.value) or NOT_AVAILABLE}'
        f'</td><td class="text">{escape(one.origin)}</td></tr>'
        for one in arguments
    )
    return (
        '<div class="wide"><table><thead><tr><th scope="col">key</th><th scope="col">value</th>'
        f'<th scope="col">from</th></tr></thead><tbody>{rows}</tbody></table></div>'
    )
