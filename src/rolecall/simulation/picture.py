"""Timelines as one SVG: a panel a schedule on a common axis, a lane an engine and a learner, colours by role."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rolecall.simulation.timeline import LEARNER_LANES, Timeline

WIDTH, LEFT, RIGHT = 1180, 104, 20
LANE, GAP, HEAD, FOOT = 20, 3, 44, 26
PLOT = WIDTH - LEFT - RIGHT
PALETTE = 6
STYLE = """
svg{--paper:#fff;--ink:#1c1d1f;--soft:#5d6169;--lane:#eef0ee;--rule:#d9dad5;--c0:#2a62c4;--c1:#d98a3d;--c2:#1f9a80;
--c3:#a03491;--c4:#9a8300;--c5:#b8374b;--still:#a9adb5;--learn:#4a4f57;--publish:#c3c7cd;
font:12px system-ui,-apple-system,"Segoe UI",Roboto,Arial,sans-serif;font-variant-numeric:tabular-nums}
@media (prefers-color-scheme:dark){svg{--paper:#141518;--ink:#e9e9e6;--soft:#a9adb5;--lane:#22252a;--rule:#3a3e45;
--c0:#80abf5;--c1:#f0a263;--c2:#52c6ab;--c3:#de8fd3;--c4:#d0b64c;--c5:#f18d99;--still:#6a7079;--learn:#c9cdd3;
--publish:#7f848d}}
text{fill:var(--ink)}.soft{fill:var(--soft)}.lane{fill:var(--lane)}.rule{stroke:var(--rule)}.paper{fill:var(--paper)}
.c0{fill:var(--c0)}.c1{fill:var(--c1)}.c2{fill:var(--c2)}.c3{fill:var(--c3)}.c4{fill:var(--c4)}.c5{fill:var(--c5)}
.still{fill:var(--still)}.learn{fill:var(--learn)}.publish{fill:var(--publish)}.end{stroke:var(--ink);stroke-width:1}
"""


def draw(timelines: Sequence[Timeline], figures: Mapping[str, Mapping[str, Any]], title: str) -> str:
    """The picture; `figures` as `figures.figures` made them, by the timelines' names."""
    longest = max(timeline.end_s for timeline in timelines) or 1.0
    roles = timelines[0].roles
    parts, y = [_legend(roles, title)], 58.0
    for timeline in timelines:
        panel, height = _panel(timeline, figures[timeline.name], longest)
        parts.append(f'<g transform="translate(0 {y:g})">{panel}</g>')
        y += height
    described = "; ".join(f"{one.name}: {_seconds(one.end_s)}" for one in timelines)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y:g}" width="{WIDTH}" height="{y:g}" '
        f'role="img" aria-label="{escape(f"{title}. {described}")}"><style>{STYLE}</style>'
        f'<rect class="paper" width="{WIDTH}" height="{y:g}"/>{"".join(parts)}</svg>\n'
    )


def _legend(roles: Sequence[str], title: str) -> str:
    names = [(f"c{place % PALETTE}", role) for place, role in enumerate(roles)]
    names += [("still", "prompts, weights"), ("learn", "learning"), ("publish", "publishing"), ("lane", "idle")]
    parts = [f'<text x="{LEFT}" y="24" font-size="15" font-weight="600">{escape(title)}</text>']
    x = float(LEFT)
    for kind, name in names:
        parts.append(f'<rect class="{kind}" x="{x:g}" y="37" width="11" height="11" rx="2"/>')
        parts.append(f'<text class="soft" x="{x + 16:g}" y="47">{escape(name)}</text>')
        x += 34 + 6.6 * len(name)
    return "".join(parts)


def _panel(timeline: Timeline, figures: Mapping[str, Any], longest_s: float) -> tuple[str, float]:
    """One schedule: head line, lanes, axis; and its height."""
    bins = min(timeline.shares(10**9).shape[2], math.ceil(timeline.end_s / timeline.width_s))
    step = PLOT * timeline.width_s / longest_s
    shares = timeline.shares(bins)
    name = f'<tspan font-weight="600">{escape(timeline.name)}</tspan>'
    parts = [f'<text x="{LEFT}" y="18">{name}<tspan class="soft" dx="12">{_words(figures)}</tspan></text>']
    y = float(HEAD - 16)
    for lane, engines in enumerate(timeline.engines_in):
        first = timeline.lane_of.index(lane)
        name = f"engine {first}" if engines == 1 else f"engines {first}-{first + engines - 1}"
        parts.append(_lane(name, y))
        parts += _areas(shares[lane], step, y)
        y += LANE + GAP
    learners = timeline.num_learners
    lanes = [f"learner {number}" for number in range(learners)]
    for name in lanes if learners <= LEARNER_LANES else [f"{learners} learners"]:
        parts.append(_lane(name, y))
        parts += _updates(timeline.updates, PLOT / longest_s, y)
        y += LANE + GAP
    end = LEFT + PLOT * timeline.end_s / longest_s
    parts.append(f'<line class="end" x1="{end:.1f}" x2="{end:.1f}" y1="{HEAD - 20}" y2="{y + 1:g}"/>')
    parts.append(_axis(longest_s, y))
    return "".join(parts), y + FOOT + 8


def _words(figures: Mapping[str, Any]) -> str:
    idle = figures["idle_share"]
    bound = figures["over_bound"]
    words = [
        _seconds(figures["makespan_s"]),
        f"{bound:.2f} times the lower bound" if bound else "",
        f"engines idle {idle['engines']:.0%}, slots empty {figures['empty_slots_share']:.0%}",
        f"learners idle {idle['learners']:.0%}",
        f"{figures['updates']} updates",
        f"staleness at most {figures['staleness_max']}",
    ]
    return escape(" · ".join(filter(None, words)))


def _lane(name: str, y: float) -> str:
    return (
        f'<text class="soft" x="{LEFT - 8}" y="{y + LANE - 6:g}" text-anchor="end" font-size="11">{name}</text>'
        f'<rect class="lane" x="{LEFT}" y="{y:g}" width="{PLOT}" height="{LANE}"/>'
    )


def _areas(shares: NDArray[np.float64], step: float, y: float) -> list[str]:
    """Stacked areas from the bottom of a lane: [roles + 1, bins] shares of its slots."""
    tops = np.minimum(np.cumsum(shares, axis=0), 1.0) * LANE
    tops = np.round(tops, 1)
    paths = []
    low = np.zeros(tops.shape[1])
    for role, high in enumerate(tops):
        kind = "still" if role == len(tops) - 1 else f"c{role % PALETTE}"
        runs = _runs(low, high)
        pieces = [
            f"M{LEFT + first * step:.1f} {y + LANE - bottom:.1f}h{(last - first) * step:.1f}v{bottom - top:.1f}"
            f"h{(first - last) * step:.1f}z"
            for first, last, bottom, top in runs
            if top > bottom
        ]
        if pieces:
            paths.append(f'<path class="{kind}" shape-rendering="crispEdges" d="{"".join(pieces)}"/>')
        low = high
    return paths


def _runs(low: NDArray[np.float64], high: NDArray[np.float64]) -> list[tuple[int, int, float, float]]:
    """Neighbouring bins that are alike, as one: first, end, bottom, top."""
    found: list[tuple[int, int, float, float]] = []
    for place, (bottom, top) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
        if found and found[-1][2:] == (bottom, top):
            found[-1] = (found[-1][0], place + 1, bottom, top)
        else:
            found.append((place, place + 1, bottom, top))
    return found


def _updates(updates: Sequence[tuple[float, float, float]], scale: float, y: float) -> list[str]:
    pieces: dict[str, list[str]] = {"learn": [], "publish": []}
    for begin, learned, end in updates:
        for kind, start, stop in (("learn", begin, learned), ("publish", learned, end)):
            width = (stop - start) * scale
            if width > 0:
                x = LEFT + start * scale
                pieces[kind].append(f"M{x:.1f} {y + 2:g}h{max(width, 0.4):.1f}v{LANE - 4}h{-max(width, 0.4):.1f}z")
    return [f'<path class="{kind}" d="{"".join(found)}"/>' for kind, found in pieces.items() if found]


def _axis(longest_s: float, y: float) -> str:
    parts = [f'<line class="rule" x1="{LEFT}" x2="{LEFT + PLOT}" y1="{y + 2:g}" y2="{y + 2:g}"/>']
    step = _tick(longest_s)
    for number in range(int(longest_s / step) + 1):
        x = LEFT + PLOT * number * step / longest_s
        parts.append(f'<line class="rule" x1="{x:.1f}" x2="{x:.1f}" y1="{y + 2:g}" y2="{y + 6:g}"/>')
        anchor = "start" if not number else "middle" if x < LEFT + PLOT - 20 else "end"
        parts.append(
            f'<text class="soft" x="{x:.1f}" y="{y + 18:g}" font-size="11" text-anchor="{anchor}">'
            f"{_seconds(number * step)}</text>"
        )
    return "".join(parts)


def _tick(longest_s: float) -> float:
    """A round step of which about eight fit."""
    rough = longest_s / 8
    for unit in (3600.0, 60.0, 1.0):
        if rough >= unit:
            return float(unit * _round(rough / unit))
    return float(_round(rough))


def _round(value: float) -> float:
    power = 10.0 ** math.floor(math.log10(value))
    return float(next(step for step in (1, 2, 5, 10) if step * power >= value) * power)


def _seconds(seconds: float) -> str:
    """A time, as short as can be read."""
    if seconds >= 36000:
        return f"{seconds / 3600:.0f} h"
    if seconds >= 3600:
        return f"{seconds / 3600:.1f} h"
    if seconds >= 600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds:.0f} s" if seconds >= 10 or seconds == 0 else f"{seconds:.2g} s"
