"""Line charts as inline SVG: fluid in width with text at its own size, described in words, values on hover.

Curves live in a nested SVG of 1000 by 1000 units that is stretched to the plot; everything that must keep its shape
(text, dots, whiskers) is placed in percent of the outer one.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rolecall.report.read import Series
from rolecall.report.series import Thin, scale, step_ticks, thin, ticks
from rolecall.report.text import DASH, esc, percent, plain, show, tick

PALETTE = 8
INK = "ink"


def colour(index: int) -> str:
    """The class of the colour with this number; eight differ, then they return with another dash."""
    return f"c{index % PALETTE}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One curve: a class of colour, a dash pattern (0 is solid), and for measured points `low` and `high`, drawn as
    whiskers around dots. `counted`: of how many the values are rates.
    """

    label: str
    colour: str
    series: Series
    low: Series = field(default_factory=Series)
    high: Series = field(default_factory=Series)
    dash: int = 0
    dots: bool = False
    counted: Series = field(default_factory=Series)


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    """What one chart shows; `kind` is rate, cosine or number, `axis` names the vertical one, `note` how to read it."""

    title: str
    axis: str
    lines: Sequence[Line]
    kind: str = "number"
    note: str = ""
    tall: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Frame:
    """Where steps and values fall, in units of 0 to 1000; y grows downwards."""

    first: int
    last: int
    low: float
    high: float

    def x(self, step: float) -> float:
        return 500.0 if self.last <= self.first else 1000 * (step - self.first) / (self.last - self.first)

    def y(self, value: float) -> float:
        return 1000 * (self.high - min(self.high, max(self.low, value))) / (self.high - self.low)


def draw(chart: Chart) -> str:
    """The figure as HTML; empty when no line has a point."""
    lines = [line for line in chart.lines if line.series]
    if not lines:
        return ""
    thinned = [thin(line.series) for line in lines]
    frame = _frame(chart, lines, thinned)
    body = "".join(_line(line, points, frame) for line, points in zip(lines, thinned, strict=True))
    title = f"{chart.title}, by step"
    desc = " ".join(_spoken(line, chart.kind) for line in lines)
    name = f"f{zlib.crc32(repr((title, desc, body)).encode('utf-8', 'replace')):08x}"
    width = max(points.width for points in thinned)
    note = chart.note + (f" Each point is the mean of {width} steps; the band spans them." if width > 1 else "")
    return (
        f'<figure class="chart" data-chart="{esc(_hover(chart.kind, lines, thinned))}">'
        f"<figcaption><h4>{esc(chart.title)}</h4>{f'<p>{esc(note.strip())}</p>' if note.strip() else ''}</figcaption>"
        f"{_legend(lines, chart.kind)}"
        f'<div class="frame{" tall" if chart.tall else ""}">'
        f'<svg class="plot" role="img" aria-labelledby="{name}t {name}d">'
        f'<title id="{name}t">{esc(title)}</title><desc id="{name}d">{esc(desc)}</desc>'
        f"{_axes(frame, chart)}{body}</svg></div></figure>"
    )


def _frame(chart: Chart, lines: Sequence[Line], thinned: Sequence[Thin]) -> Frame:
    values: list[float | None] = []
    for line, points in zip(lines, thinned, strict=True):
        values += [*points.means, *line.low.values, *line.high.values]
        values += [*points.lows, *points.highs] if points.width > 1 else []
    low, high = scale(values, chart.kind)
    return Frame(
        first=min(line.series.steps[0] for line in lines),
        last=max(line.series.steps[-1] for line in lines),
        low=low,
        high=high,
    )


def _axes(frame: Frame, chart: Chart) -> str:
    marks = ticks(frame.low, frame.high)
    drawn = []
    for value in marks:
        at = f"{frame.y(value) / 10:.2f}%"
        zero = " zero" if value == 0 and frame.low < 0 else ""
        text = tick(100 * value if chart.kind == "rate" else value)
        drawn.append(f'<line class="grid{zero}" x2="100%" y1="{at}" y2="{at}"/>')
        drawn.append(f'<text class="tick end" x="-8" y="{at}" dy=".32em">{esc(text)}</text>')
    for step in step_ticks(frame.first, frame.last):
        at = f"{frame.x(step) / 10:.2f}%"
        drawn.append(f'<text class="tick mid" x="{at}" y="100%" dy="17">{step:,}</text>')
    unit = f"{chart.axis}, %" if chart.kind == "rate" else chart.axis
    drawn.append(f'<text class="axis" x="-38" y="-12">{esc(unit)}</text>')
    drawn.append('<text class="axis mid" x="50%" y="100%" dy="32">step</text>')
    return "".join(drawn)


def _line(line: Line, points: Thin, frame: Frame) -> str:
    spoken = f"{line.label}: {_spoken_ends(line.series)}"
    band = _band(points, frame) if points.width > 1 else ""
    path = _path(points.steps, points.means, frame)
    dash = f" d{line.dash % 4}" if line.dash else ""
    inner = (
        '<svg width="100%" height="100%" viewBox="0 0 1000 1000" preserveAspectRatio="none" overflow="visible">'
        f'{band}<path class="curve{dash}" d="{path}"><title>{esc(spoken)}</title></path></svg>'
    )
    dots = ""
    if line.dots or len(line.series.steps) == 1:
        dots = "".join(_whisker(line, step, value, frame) for step, value in _pairs(line.series))
    return f'<g class="{line.colour}">{inner}{dots}</g>'


def _pairs(series: Series) -> list[tuple[int, float]]:
    every = max(1, math.ceil(len(series.steps) / 80))
    pairs = list(zip(series.steps, series.values, strict=True))
    return [pair for pair in pairs[::-1][::every][::-1] if math.isfinite(pair[1])]


def _whisker(line: Line, step: int, value: float, frame: Frame) -> str:
    x, y = f"{frame.x(step) / 10:.2f}%", f"{frame.y(value) / 10:.2f}%"
    low, high = (dict(zip(s.steps, s.values, strict=True)).get(step, math.nan) for s in (line.low, line.high))
    bar = ""
    if math.isfinite(low) and math.isfinite(high):
        ends = f'y1="{frame.y(low) / 10:.2f}%" y2="{frame.y(high) / 10:.2f}%"'
        bar = f'<line class="whisker" x1="{x}" x2="{x}" {ends}/>'
    return f'{bar}<circle class="dot" cx="{x}" cy="{y}" r="3.2"/>'


def _path(steps: Sequence[float], values: Sequence[float | None], frame: Frame) -> str:
    """The curve; a missing value breaks it, and a point alone between two gaps becomes a short dash."""
    drawn: list[str] = []
    pen = "M"
    for i, (step, value) in enumerate(zip(steps, values, strict=True)):
        if value is None:
            pen = "M"
            continue
        x, y = f"{frame.x(step):.0f}", f"{frame.y(value):.0f}"
        alone = pen == "M" and (i + 1 == len(values) or values[i + 1] is None)
        drawn.append(f"{pen}{x} {y}" + ("h4" if alone else ""))
        pen = "L"
    return "".join(drawn)


def _band(points: Thin, frame: Frame) -> str:
    there = [
        (step, low, high)
        for step, low, high in zip(points.steps, points.lows, points.highs, strict=True)
        if low is not None and high is not None
    ]
    if len(there) < 2:
        return ""
    upper = [f"{frame.x(step):.0f} {frame.y(high):.0f}" for step, _, high in there]
    lower = [f"{frame.x(step):.0f} {frame.y(low):.0f}" for step, low, _ in reversed(there)]
    return f'<path class="band" d="M{"L".join([*upper, *lower])}Z"/>'


def _legend(lines: Sequence[Line], kind: str) -> str:
    """Names with the last value of each and the step it is of, in the order of the lines."""
    keys = []
    ends = {line.series.last_step for line in lines}
    for line in lines:
        dash = f" d{line.dash % 4}" if line.dash else ""
        mark = f'<svg class="swatch" width="18" height="10" aria-hidden="true"><path class="curve{dash}" d="M0 5H18"/>'
        if line.dots:
            mark += '<circle class="dot" cx="9" cy="5" r="3.2"/>'
        of = dict(zip(line.counted.steps, line.counted.values, strict=True)).get(line.series.last_step or 0)
        small = f" of {plain(of)}" if of is not None else ""
        small += f" (step {line.series.last_step})" if len(ends) > 1 and line.series.last_step is not None else ""
        keys.append(
            f'<li class="{line.colour}">{mark}</svg><span>{esc(line.label)}</span> '
            f"<b>{esc(show(line.series.last, kind))}</b>{f'<small>{small.strip()}</small>' if small else ''}</li>"
        )
    if len(ends) == 1 and None not in ends:
        keys.append(f"<li><small>at step {ends.pop()}</small></li>")
    return f'<ul class="legend" aria-label="curves and their last values">{"".join(keys)}</ul>'


def _spoken_ends(series: Series) -> str:
    return f"{plain(series.values[0])} at step {series.steps[0]}, {plain(series.values[-1])} at step {series.steps[-1]}"


def _spoken(line: Line, kind: str) -> str:
    """One sentence on a curve, for those who cannot see it."""
    finite = line.series.finite
    if not finite:
        return f"{line.label}: no finite value."
    low, high = (show(value, kind) for value in (min(finite), max(finite)))
    first, last = (show(value, kind) for value in (line.series.values[0], line.series.values[-1]))
    return f"{line.label}: {first} at step {line.series.steps[0]}, {last} at the end, between {low} and {high}."


def _hover(kind: str, lines: Sequence[Line], thinned: Sequence[Thin]) -> str:
    """What the hover script reads: steps and values of each line, four digits each."""
    data = [
        {"n": line.label, "c": line.colour, "x": _short(points.steps), "y": _short(points.means)}
        for line, points in zip(lines, thinned, strict=True)
    ]
    return json.dumps({"k": kind, "l": data}, separators=(",", ":"), ensure_ascii=False)


def _short(values: Iterable[float | None]) -> list[float | int | None]:
    rounded = [None if value is None else float(f"{value:.4g}") for value in values]
    return [int(v) if v is not None and v == int(v) else v for v in rounded]


def spark(series: Series, colour_class: str, label: str) -> str:
    """A small curve without axes, for the side of a number; rates keep the range of 0 to 100 %."""
    points = thin(series, 80)
    if not any(value is not None for value in points.means):
        return ""
    low, high = scale(points.means, "number")
    if low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    frame = Frame(first=series.steps[0], last=series.steps[-1], low=low, high=high)
    spoken = esc(f"{label}: {_spoken_ends(series)}")
    return (
        f'<svg class="spark {colour_class}" viewBox="0 0 1000 1000" preserveAspectRatio="none" role="img" '
        f'aria-label="{spoken}"><title>{spoken}</title>'
        f'<path class="curve" d="{_path(points.steps, points.means, frame)}"/></svg>'
    )


def share_bar(share: float, colour_class: str) -> str:
    """A bar of a share in [0, 1] with its percentage."""
    width = f"{100 * min(1.0, max(0.0, share)):.1f}%" if math.isfinite(share) else "0%"
    value = percent(share, 0) if math.isfinite(share) else DASH
    return (
        f'<span class="bar {colour_class}"><svg aria-hidden="true"><rect width="100%" height="100%" class="back"/>'
        f'<rect width="{width}" height="100%" class="fill"/></svg><b>{value}</b></span>'
    )
