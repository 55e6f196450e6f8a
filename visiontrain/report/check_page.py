"""The page of `check`: what was found in a data set, with pictures, in one file that needs no network and no script.

Names and texts come from the user's files: everything is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from visiontrain.findings import Severity
from visiontrain.report.html import html_page, image_tag, write_page

_CHART_WIDTH, _CHART_HEIGHT, _AXIS = 330, 120, 16  # units of the drawing


@dataclass(frozen=True)
class Picture:
    """An image of a place."""

    caption: str
    jpeg: bytes | None
    """None where the image cannot be read."""


@dataclass(frozen=True)
class Place:
    """Where something was found."""

    where: str
    """File and line."""
    text: str
    pictures: Sequence[Picture] = ()


@dataclass(frozen=True)
class Section:
    """All places of one code in one split."""

    code: str
    severity: Severity
    split: str
    count: int
    says: str
    places: Sequence[Place]
    has_more: bool
    """Whether there are places that are not told."""


@dataclass(frozen=True)
class Page:
    """What the page tells."""

    source: str
    """The data set."""
    verdict: str
    passed: bool
    faults: Sequence[str]
    """What makes the data unfit for training."""
    notes: Sequence[str]
    sections: Sequence[Section]
    splits: Mapping[str, Mapping[str, Any]]
    """Statistics of each, as in the document of `json=True`."""
    imgsz: int


class Chart(NamedTuple):
    """A histogram to draw."""

    title: str
    counts: Sequence[int]
    labels: Sequence[str]
    """One for each bar, or for each border between two bars."""


def write_check_page(path: Path, page: Page) -> None:
    """Write the page in one step: whoever opens it sees all of it, or the one before."""
    write_page(path, check_page(page))


def check_page(page: Page) -> str:
    """The page as HTML."""
    errors = [section for section in page.sections if section.severity == "error"]
    warnings = [section for section in page.sections if section.severity == "warning"]
    body = [
        f"<h1>{escape(page.source)}</h1>",
        f'<p class="verdict {"good" if page.passed else "bad"}">{escape(page.verdict)}</p>',
        _list("Unfit for training", page.faults),
        _list("Notes", page.notes),
        *_findings("Errors", errors),
        *_findings("Warnings", warnings),
        "<h2>Splits and classes</h2>",
        _table(page.splits),
        f"<h2>Distributions</h2><p>Pixels are those of images whose long side is {page.imgsz}.</p>",
        *(_distributions(split, statistics) for split, statistics in page.splits.items()),
    ]
    return html_page(f"check: {page.source}", "\n".join(filter(None, body)))


def _list(title: str, lines: Sequence[str]) -> str:
    if not lines:
        return ""
    return f"<h2>{title}</h2><ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>"


def _findings(title: str, sections: Sequence[Section]) -> Iterable[str]:
    if not sections:
        return
    yield f"<h2>{title}</h2>"
    for section in sections:
        where = f"{escape(section.split)}: " if section.split else ""
        yield (
            f'<section class="{section.severity}"><h3>{where}{section.count} {escape(section.says)} '
            f"<code>{section.code}</code></h3><ul>"
            + "".join(map(_place, section.places))
            + "</ul>"
            + ("<p>and more</p>" if section.has_more else "")
            + "</section>"
        )


def _place(place: Place) -> str:
    text = f" <q>{escape(place.text)}</q>" if place.text else ""
    figures = "".join(map(_figure, place.pictures))
    return f"<li><code>{escape(place.where)}</code>{text}{f'<div>{figures}</div>' if figures else ''}</li>"


def _figure(picture: Picture) -> str:
    caption = f"<figcaption>{escape(picture.caption)}</figcaption>"
    if picture.jpeg is None:
        return f'<figure><div class="unreadable">cannot be read</div>{caption}</figure>'
    return f"<figure>{image_tag(picture.jpeg, picture.caption)}{caption}</figure>"


def _table(splits: Mapping[str, Mapping[str, Any]]) -> str:
    """Images and labels of each class in each split."""
    head = "".join(f'<th colspan="2">{escape(split)}</th>' for split in splits)
    units = "<th>images</th><th>labels</th>" * len(splits)
    rows = [_table_row("all", [(one["images"], one["labels"], 0.0) for one in splits.values()])]
    rows.append(_table_row("background", [(one["background"], "", 0.0) for one in splits.values()]))
    most = {split: max((row["labels"] for row in one["classes"].values()), default=0) for split, one in splits.items()}
    for name in next(iter(splits.values()))["classes"]:
        cells = []
        for split, one in splits.items():
            row = one["classes"][name]
            cells.append((row["images"], row["labels"], row["labels"] / max(most[split], 1)))
        rows.append(_table_row(name, cells))
    return (
        f'<div class="wide"><table><thead><tr><th rowspan="2">class</th>{head}</tr><tr>{units}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _table_row(name: str, cells: Sequence[tuple[Any, Any, float]]) -> str:
    values = "".join(
        f'<td>{images}</td><td style="background-size: {share:.1%} 100%">{labels}</td>'
        for images, labels, share in cells
    )
    return f"<tr><th>{escape(name)}</th>{values}</tr>"


def _distributions(split: str, statistics: Mapping[str, Any]) -> str:
    counts = statistics["labels_per_image"]
    charts = [Chart("labels of an image", counts["counts"], _count_labels(counts["edges"]))]
    boxes = statistics["boxes"]
    lines = []
    if boxes:
        area, ratio = boxes["area"], boxes["aspect_ratio"]
        charts.append(
            Chart("area of a box, % of the image", area["counts"], [f"{100 * x:g}" for x in area["edges"][1:-1]])
        )
        charts.append(Chart("width : height of a box", ratio["counts"], [_ratio(x) for x in ratio["edges"][1:-1]]))
        lines.append(
            f"{boxes['small']} boxes are small (below 32² pixels), {boxes['medium']} medium, "
            f"{boxes['large']} large (from 96² on)"
        )
    sizes = ", ".join(f"{one['width']} × {one['height']} ({one['images']})" for one in statistics["image_sizes"])
    more = statistics["different_image_sizes"] - len(statistics["image_sizes"])
    lines.append(f"image sizes: {sizes}" + (f" and {more} more" if more else ""))
    if statistics["imbalance"]:
        lines.append(f"the most frequent class has {statistics['imbalance']:.3g} times the labels of the rarest")
    return (
        f"<h3>{escape(split)}</h3>"
        f'<div class="charts">{"".join(map(_chart, charts))}</div><p>{"<br>".join(map(escape, lines))}</p>'
    )


def _chart(chart: Chart) -> str:
    """A bar chart as SVG; the title of a bar tells its number."""
    width = _CHART_WIDTH / len(chart.counts)
    most = max(*chart.counts, 1)
    offset = 0.5 if len(chart.labels) == len(chart.counts) else 1.0
    bars = []
    for place, count in enumerate(chart.counts):
        height = _CHART_HEIGHT * count / most
        bars.append(
            f'<rect x="{place * width + 1:.1f}" y="{_CHART_HEIGHT - height:.1f}" width="{width - 2:.1f}" '
            f'height="{height:.1f}"><title>{count}</title></rect>'
        )
    labels = [
        f'<text x="{(place + offset) * width:.1f}" y="{_CHART_HEIGHT + _AXIS - 4}">{escape(label)}</text>'
        for place, label in enumerate(chart.labels)
    ]
    return (
        f"<figure><figcaption>{escape(chart.title)}</figcaption>"
        f'<svg viewBox="0 0 {_CHART_WIDTH} {_CHART_HEIGHT + _AXIS}" font-size="9" text-anchor="middle" role="img" '
        f'aria-label="{escape(chart.title, quote=True)}: {", ".join(map(str, chart.counts))}">'
        f'<line x1="0" x2="{_CHART_WIDTH}" y1="{_CHART_HEIGHT}" y2="{_CHART_HEIGHT}"/>'
        f"{''.join(bars)}{''.join(labels)}</svg></figure>"
    )


def _count_labels(edges: Sequence[float]) -> list[str]:
    """`0`, `1`, `2-3`, ..., `128+` for whole numbers from each edge up to the next."""
    labels = []
    for low, high in pairwise(edges):
        if high == float("inf"):
            labels.append(f"{low:g}+")
        else:
            labels.append(f"{low:g}" if high - low <= 1 else f"{low:g}-{high - 1:g}")
    return labels


def _ratio(value: float) -> str:
    return f"{value:g}:1" if value >= 1 else f"1:{1 / value:g}"
