"""Charts show every value where it belongs, in round numbers."""

from __future__ import annotations

import math
import re

import pytest

from visiontrain.report.svg import HEIGHT, WIDTH, Axis, Line, line_chart, tick_text

NAN = math.nan


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 1, ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
        (1, 50, ["10", "20", "30", "40", "50"]),
        (0.0002, 0.0011, ["0.0002", "0.0004", "0.0006", "0.0008", "0.001"]),
        (-3, 3, ["-2", "0", "2"]),
    ],
)
def test_ticks_are_round_and_inside(low, high, ticks):
    assert [tick_text(value) for value in Axis(low, high, 0, 100).ticks()] == ticks


@pytest.mark.parametrize("exponent", range(-12, 20, 3))
def test_axes_of_any_size_have_a_few_ticks(exponent):
    for low, high in ((0, 1), (1, 1.7), (-5, 93), (0.999, 1)):
        axis = Axis.over([low * 10.0**exponent, high * 10.0**exponent], 0, 100)
        ticks = axis.ticks()
        assert 2 <= len(ticks) <= 8
        assert all(axis.low - 1e-6 * abs(axis.low) <= tick <= axis.high * (1 + 1e-6) for tick in ticks)


@pytest.mark.parametrize("value", [0.0, 5.0, -3.0, 1e-9])
def test_a_single_value_stands_in_the_middle(value):
    axis = Axis.over([value], 0, 100)
    assert axis.at(value) == pytest.approx(50)
    assert axis.ticks()


def test_an_axis_that_counts_has_whole_numbers_only(checked):
    lines = [Line("a", [(1, 0), (2, 1), (3, 0)])]
    assert "1.5" in checked(line_chart("t", lines, x_label="x")).text
    assert "1.5" not in checked(line_chart("t", lines, x_label="x", is_counted=True)).text


def test_points_lie_where_their_values_are(checked):
    text = line_chart("title", [Line("a", [(0, 0), (1, 10), (2, 5)])], x_label="epoch")
    checked(text)
    places = [(float(x), float(y)) for x, y in re.findall(r'cx="([\d.]+)" cy="([\d.]+)"', text)]
    (x0, y0), (x1, y1), (x2, y2) = places
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.11)
    assert (y0 - y2) == pytest.approx((y0 - y1) / 2, abs=0.11)  # up is less
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in places)
    assert "a at 1: 10" in text


def test_missing_and_endless_values_are_left_out_without_breaking_the_curve():
    text = line_chart("t", [Line("a", [(1, 2), (2, NAN), (3, math.inf), (4, 1e300), (5, 3)])], x_label="x")
    assert text.count("<circle") == 2
    assert len(re.findall(r'd="M[^"]*L[^"]*"', text)) == 1


@pytest.mark.parametrize("lines", [[], [Line("a", [])], [Line("a", [(1, NAN)])]])
def test_a_chart_without_values_says_so(lines):
    assert "no values" in line_chart("t", lines, x_label="x")


def test_names_are_escaped_and_only_those_that_stand_out_are_in_the_legend(checked):
    lines = [Line("<b>", [(0, 0), (1, 1)]), Line("faint one", [(0, 1), (1, 0)], is_faint=True)]
    text = line_chart("<i>", lines, x_label="<u>")
    assert not {"b", "i", "u"} & set(checked(text).tags)
    legend = text.partition('class="legend"')[2]
    assert "&lt;b&gt;" in legend
    assert "faint one" not in legend
