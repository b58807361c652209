"""Accuracies before and after as dots with 95 % intervals on one axis: intervals that do not meet are seen at once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rolecall.report.text import DASH, esc, interval, number, percent, points


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One figure before and after training; either may be missing."""

    label: str
    colour: str
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    note: str = ""
    strong: bool = False


def forest(rows: Sequence[Row], caption: str) -> str:
    """The rows on one axis from 0 to 100 %; rows without any figure are left out."""
    kept = [row for row in rows if row.before or row.after]
    if not kept:
        return ""
    return (
        f'<figure class="forest"><figcaption>{esc(caption)}</figcaption>'
        '<div class="forest-key" aria-hidden="true"><span><svg width="34" height="12"><line class="whisker before" '
        'x1="2" x2="32" y1="6" y2="6"/><circle class="hollow" cx="17" cy="6" r="4"/></svg> before</span>'
        '<span><svg width="34" height="12"><line class="whisker after" x1="2" x2="32" y1="6" y2="6"/>'
        '<circle class="dot" cx="17" cy="6" r="4.5"/></svg> after</span></div>'
        f'<div class="forest-rows">{"".join(_row(row) for row in kept)}{_scale()}</div></figure>'
    )


def _row(row: Row) -> str:
    spoken = f"{row.label}: before {_words(row.before)}, after {_words(row.after)}"
    marks = _mark(row.before, "before", 11) + _mark(row.after, "after", 25)
    grid = "".join(f'<line class="grid" x1="{at}%" x2="{at}%" y1="0" y2="36"/>' for at in (0, 25, 50, 75, 100))
    strong = " strong" if row.strong else ""
    note = f'<small title="{esc(row.note)}">{esc(row.note)}</small>' if row.note else ""
    return (
        f'<div class="forest-row{strong} {row.colour}"><div class="name"><span>{esc(row.label)}</span>{note}</div>'
        f'<div class="track"><svg role="img" aria-label="{esc(spoken)}"><title>{esc(spoken)}</title>{grid}{marks}</svg>'
        f'</div><div class="figures"><span class="was">{_cell(row.before)}</span><span class="now">{_cell(row.after)}'
        f"</span>{change(row.before, row.after)}</div></div>"
    )


def _mark(estimate: Mapping[str, Any] | None, when: str, y: int) -> str:
    mean, low, high = (number((estimate or {}).get(name)) for name in ("mean", "low", "high"))
    if not math.isfinite(mean):
        return ""
    whisker = ""
    if math.isfinite(low) and math.isfinite(high):
        ends = f'x1="{_at(low)}" x2="{_at(high)}" y1="{y}" y2="{y}"'
        whisker = f'<line class="whisker {when}" {ends}/>'
    shape = "dot" if when == "after" else "hollow"
    return f'{whisker}<circle class="{shape}" cx="{_at(mean)}" cy="{y}" r="{4.5 if when == "after" else 4}"/>'


def _at(value: float) -> str:
    return f"{100 * min(1.0, max(0.0, value)):.2f}%"


def _scale() -> str:
    marks = "".join(f'<text class="tick mid" x="{at}%" y="14">{at}</text>' for at in (0, 25, 50, 75, 100))
    return (
        '<div class="forest-row scale" aria-hidden="true"><div class="name"></div><div class="track">'
        f'<svg>{marks}</svg></div><div class="figures"><small>% right, 95\u202f% interval</small></div></div>'
    )


def _words(estimate: Mapping[str, Any] | None) -> str:
    return f"{percent(estimate.get('mean'))} {interval(estimate)}" if estimate else "not measured"


def _cell(estimate: Mapping[str, Any] | None) -> str:
    if not estimate:
        return DASH
    return f"{percent(estimate.get('mean'))}<small>{interval(estimate)}</small>"


def change(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> str:
    """The difference in points; green or red only where the intervals do not meet."""
    if not before or not after:
        return ""
    kind = direction(before, after)
    spoken = {"up": "intervals apart, up", "down": "intervals apart, down", "same": "intervals overlap"}[kind]
    difference = points(number(after.get("mean")) - number(before.get("mean")))
    return f'<span class="change {kind}" title="{spoken}">{difference}</span>'


def direction(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """`up` or `down` where the two intervals do not meet, else `same`."""
    if number(after.get("low")) > number(before.get("high")):
        return "up"
    if number(after.get("high")) < number(before.get("low")):
        return "down"
    return "same"
