"""Curves, scales and text by hand: what is drawn is where it should be."""

from __future__ import annotations

import json
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecall.report.chart import Chart, Line, draw, share_bar, spark
from rolecall.report.forest import Row, direction, forest
from rolecall.report.read import Series
from rolecall.report.series import nice_step, scale, step_ticks, thin, ticks
from rolecall.report.text import cut, duration, esc, percent, plain, points, tick, visible

NAN = math.nan


def series(*values, first=1):
    return Series(steps=tuple(range(first, first + len(values))), values=tuple(values))


def chart(*lines, kind="rate"):
    return draw(Chart(title="Reward", axis="reward", kind=kind, lines=list(lines)))


def curve(page):
    return re.search(r'class="curve" d="(M0[^"]*)"><title>', page).group(1)


def test_a_curve_goes_through_its_points_with_y_downwards():
    assert curve(chart(Line(label="a", colour="c0", series=series(0.0, 0.5, 1.0)))) == "M0 1000L500 500L1000 0"


def test_a_missing_value_breaks_the_curve_and_a_lonely_point_stays_visible():
    page = chart(Line(label="a", colour="c0", series=series(0.0, NAN, 1.0, NAN, 0.5, 0.5)))
    assert curve(page) == "M0 1000h4M400 0h4M800 500L1000 500"


def test_one_step_is_a_dot_in_the_middle():
    page = chart(Line(label="a", colour="c0", series=series(0.5)))
    assert 'cx="50.00%" cy="50.00%"' in page


def test_a_line_without_points_and_a_chart_without_lines_are_not_drawn():
    assert chart(Line(label="a", colour="c0", series=Series())) == ""
    assert draw(Chart(title="x", axis="y", lines=[])) == ""
    assert spark(series(NAN), "c0", "a") == ""


def test_whiskers_stand_at_their_interval():
    line = Line(
        label="a", colour="c0", series=series(0.5, 0.6), low=series(0.4, 0.5), high=series(0.75, 0.7), dots=True
    )
    assert '<line class="whisker" x1="0.00%" x2="0.00%" y1="60.00%" y2="25.00%"/>' in chart(line)


def test_a_chart_is_described_in_words_and_its_axes_are_named():
    page = chart(Line(label="solver", colour="c0", series=series(0.25, 0.75)))
    assert 'role="img"' in page
    assert "solver: 25.0\u202f% at step 1, 75.0\u202f% at the end, between 25.0\u202f% and 75.0\u202f%." in page
    assert ">reward, %<" in page
    assert ">step<" in page
    assert "<b>75.0\u202f%</b>" in page


def legend(*lines):
    drawn = draw(Chart(title="t", axis="a", kind="rate", lines=lines))
    return re.sub(r"<[^>]*>", "|", drawn.partition('<ul class="legend"')[2].partition("</ul>")[0])


def test_a_legend_says_of_which_step_its_values_are_and_of_how_many():
    counts = Series(steps=(1, 4), values=(9.0, 13.0))
    kept = Line(label="corrector", colour="c1", series=Series(steps=(1, 4), values=(0.5, 0.25)), counted=counts)
    other = Line(label="solver", colour="c2", series=Series(steps=(1, 4), values=(0.5, math.nan)))
    assert re.search(r"corrector\|* \|*25\.0\u202f%\|*of 13\|*at step 4\|*$", legend(kept))
    assert re.search(
        r"corrector\|* \|*25\.0\u202f%\|*of 13 \(step 4\)\|.*solver\|* \|*50\.0\u202f%\|*\(step 1\)\|*$",
        legend(kept, other),
    )


def test_hover_values_are_the_drawn_ones():
    page = chart(Line(label='a"<', colour="c0", series=series(0.123456, NAN)), kind="number")
    raw = re.search(r'data-chart="([^"]*)"', page).group(1)
    data = json.loads(raw.replace("&quot;", '"').replace("&lt;", "<").replace("&amp;", "&"))
    assert data == {"k": "number", "l": [{"n": 'a"<', "c": "c0", "x": [1, 2], "y": [0.1235, None]}]}


def test_thinning_keeps_the_mean_and_the_extremes_of_every_window():
    found = thin(series(0.0, 1.0, NAN, 4.0, NAN, NAN), limit=3)
    assert found.width == 2
    assert found.steps == (1.5, 3.5, 5.5)
    assert found.means == (0.5, 4.0, None)
    assert found.lows == (0.0, 4.0, None)
    assert found.highs == (1.0, 4.0, None)


def test_a_thinned_chart_says_so_and_draws_the_band():
    page = chart(Line(label="a", colour="c0", series=series(*[0.5, 1.0] * 250)))
    assert "Each point is the mean of 4 steps" in page
    assert 'class="band"' in page


@pytest.mark.parametrize(
    ("values", "kind", "wanted"),
    [
        ((0.1, 0.9), "rate", (0.0, 1.0)),
        ((0.0, 0.03), "rate", (0.0, 0.03)),
        ((0.0, 0.0), "rate", (0.0, 0.01)),
        ((-0.2, 0.1), "cosine", (-0.5, 0.5)),
        ((-0.9, 0.1), "cosine", (-1.0, 1.0)),
        ((3.0, 18.0), "number", (0.0, 20.0)),
        ((-1.0, 3.0), "number", (-1.0, 3.0)),
        ((), "number", (0.0, 1.0)),
        ((5.0, 5.0), "number", (0.0, 6.0)),
    ],
)
def test_the_range_of_an_axis(values, kind, wanted):
    assert scale(values, kind) == pytest.approx(wanted)


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True, width=32), max_size=20))
def test_every_finite_value_is_inside_the_range_and_ticks_are_few(values):
    low, high = scale(values, "number")
    assert low < high
    for value in values:
        if math.isfinite(value):
            assert low - 1e-9 * abs(high - low) <= value <= high + 1e-9 * abs(high - low)
    assert len(ticks(low, high)) <= 8


@pytest.mark.parametrize(("span", "wanted"), [(1.0, 0.25), (60, 20), (0.03, 0.01), (9, 2.5), (1e-5, 2.5e-6)])
def test_steps_between_ticks_are_round(span, wanted):
    assert nice_step(span) == pytest.approx(wanted)


def test_step_ticks_hold_the_first_and_the_last_step_and_do_not_crowd_them():
    assert step_ticks(1, 60) == [1, 20, 40, 60]
    assert step_ticks(1, 41) == [1, 10, 20, 30, 41]
    assert step_ticks(5, 5) == [5]
    assert step_ticks(1, 2) == [1, 2]


def test_intervals_that_do_not_meet_have_a_direction():
    low, high = {"low": 0.4, "high": 0.5}, {"low": 0.51, "high": 0.6}
    assert direction(low, high) == "up"
    assert direction(high, low) == "down"
    assert direction(low, {"low": 0.5, "high": 0.6}) == "same"
    assert direction({}, {}) == "same"


def test_a_forest_places_means_and_intervals_in_percent():
    page = forest([Row(label="team", colour="ink", before=None, after={"mean": 0.5, "low": 0.4, "high": 0.7})], "x")
    assert 'x1="40.00%" x2="70.00%"' in page
    assert 'cx="50.00%"' in page
    assert "before not measured, after 50.0\u202f% [40.0, 70.0]" in page
    assert forest([Row(label="team", colour="ink", before=None, after=None)], "x") == ""


def test_numbers_are_written_as_people_read_them():
    assert [plain(v) for v in (0, 0.29734, 12.345, 123.45, 10408.2, 1.4e-5, -0.5, -2e-7, NAN, None, True)] == [
        *("0", "0.297", "12.3", "123.5", "10,408", "1.4·10⁻⁵", "−0.500", "−2.0·10⁻⁷", "–", "–", "–")
    ]
    assert [tick(v) for v in (0, 0.5, 0.25, 20, 1e-5, -1)] == ["0", "0.5", "0.25", "20", "1·10⁻⁵", "−1"]
    assert [duration(v) for v in (45, 111, 7380, None)] == ["45 s", "1 min 51 s", "2 h 03 min", "–"]
    assert (percent(0.4884), percent(NAN), points(-0.031), points(0.37)) == ("48.8\u202f%", "–", "−3.1", "+37.0")
    assert "0.0%" in share_bar(0.0, "c0")
    assert "–" in share_bar(NAN, "c0")


@given(st.text())
def test_any_text_is_safe_and_can_be_written(text):
    safe = esc(text)
    assert not set(safe) & set("<>\"'")
    safe.encode("utf-8")
    assert visible(text).count("\n") == text.count("\n")


def test_cutting_keeps_the_beginning_and_the_end():
    assert cut("abc", 3, 1) == ("abc", 0)
    assert cut("a" * 5 + "b" * 5, 4, 2) == ("aa\n[… 6 characters left out …]\nbb", 6)
