"""The curves of a map: validation of the settings that compare, and beside it the gradients of each one's roles.

A setting with several seeds is one curve, its mean over them: single runs are in their own reports.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rolecall.report.chart import PALETTE, Chart, Line, colour, draw
from rolecall.report.map_data import Figure, MapCell, MapData, at, by_setting, over_seeds
from rolecall.report.read import Series
from rolecall.report.text import esc


def curves_section(data: MapData) -> str:
    """For each group that differs in sharing, arm and seed alone: validation in one chart, then each setting's
    roles."""
    groups: dict[str, list[MapCell]] = {}
    for cell in data.teams:
        apart = [axis for axis in data.axes if axis not in ("sharing", "arm")]
        groups.setdefault(at(cell, apart), []).append(cell)
    parts = []
    for name, cells in groups.items():
        settings = by_setting(cells)
        drawn = _validation_chart(name, settings) + "".join(_role_charts(*one) for one in settings.items())
        if drawn:
            parts.append(f'<div class="cell"><h3>{esc(name)}</h3><div class="charts">{drawn}</div></div>')
    note = (
        "Norms of roles that have policies of their own are not comparable in scale; shares of gradient mass are drawn "
        "where roles share one policy. Of several seeds the mean, with Student's interval, at the steps that all of "
        "those which have ended have."
    )
    return f"<p>{note}</p>{''.join(parts)}" if parts else ""


def _validation_chart(name: str, settings: Mapping[str, Sequence[MapCell]]) -> str:
    lines = []
    for i, (setting, cells) in enumerate(settings.items()):
        drawn = _drawn(cells)
        mean, low, high = drawn[0].validation if len(drawn) == 1 else mean_series([one.validation[0] for one in drawn])
        label = f"{setting} ({len(drawn)} seeds)" if len(drawn) > 1 else drawn[0].name
        lines.append(Line(label=label, colour=colour(i), dash=i // PALETTE, dots=True, series=mean, low=low, high=high))
    return draw(Chart(title=f"{name}: validation", axis="right", kind="rate", lines=lines, tall=len(lines) > 4))


def _role_charts(setting: str, cells: Sequence[MapCell]) -> str:
    drawn = _drawn(cells)
    name = setting if len(drawn) > 1 else drawn[0].name
    charts = (
        (f"{name}: gradient norm by role", "norm", "number", [cell.gradients for cell in drawn]),
        (f"{name}: share of gradient mass", "share", "rate", [cell.masses for cell in drawn]),
    )
    return "".join(
        draw(Chart(title=title, axis=axis, kind=kind, lines=_role_lines(found))) for title, axis, kind, found in charts
    )


def _role_lines(found: Sequence[Mapping[str, Series]]) -> list[Line]:
    roles = dict.fromkeys(role for one in found for role in one)
    return [
        Line(label=role, colour=colour(i), series=mean_series([one[role] for one in found if role in one])[0])
        for i, role in enumerate(roles)
    ]


def _drawn(cells: Sequence[MapCell]) -> Sequence[MapCell]:
    """The cells that have ended; those that have begun while none has."""
    return [cell for cell in cells if cell.ended] or [cell for cell in cells if cell.validation[0]] or cells


def mean_series(found: Sequence[Series]) -> tuple[Series, Series, Series]:
    """Mean, low and high over several runs (`over_seeds`), at the steps at which all of them have a finite value; of
    one run its own series, without an interval."""
    if len(found) < 2:
        return (found[0] if found else Series()), Series(), Series()
    tables = [{step: v for step, v in zip(one.steps, one.values, strict=True) if math.isfinite(v)} for one in found]
    steps = tuple(sorted(set.intersection(*map(set, tables))))
    figures = [over_seeds([Figure(mean=table[step]) for table in tables]) for step in steps]
    return (
        Series(steps=steps, values=tuple(one.mean for one in figures)),
        Series(steps=steps, values=tuple(one.low for one in figures)),
        Series(steps=steps, values=tuple(one.high for one in figures)),
    )
