"""The tables of the page: outcomes, time, configuration, environment, every metric."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rolecall.report.read import RunData, mapping
from rolecall.report.text import DASH, cut, duration, esc, interval, percent, plain

OUTCOMES = ("ok", "truncated", "invalid", "error", "timeout")
OUTCOME_COLOURS = {"ok": "c2", "truncated": "c4", "invalid": "c3", "error": "c5", "timeout": "c1"}


def outcomes(runs: Sequence[RunData]) -> str:
    """How training episodes and those of the test set ended, every class named."""
    rows = []
    for run in runs:
        training = {kind: sum(run.series(f"episodes/{kind}").finite) for kind in OUTCOMES}
        sets = [("training", training)]
        for when in ("before", "after"):
            counted = mapping(run.sampled(when).get("outcomes"))
            sets.append((f"test set, {when}", {kind: float(counted.get(kind, 0)) for kind in OUTCOMES}))
        for name, counts in sets:
            total = sum(counts.values())
            if total:
                label = f"{run.label}: {name}" if len(runs) > 1 else name
                rows.append(_outcome_row(label, counts, total))
    if not rows:
        return '<p class="gone">No episode has ended yet.</p>'
    head = "".join(f'<th class="n" scope="col">{kind}</th>' for kind in OUTCOMES)
    return (
        f'<div class="table"><table><thead><tr><th scope="col">episodes</th><th class="n" scope="col">all</th>{head}'
        f'<th scope="col">shares</th></tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
    )


def _outcome_row(label: str, counts: Mapping[str, float], total: float) -> str:
    cells = "".join(f'<td class="n">{plain(counts[kind])}</td>' for kind in OUTCOMES)
    x, bars = 0.0, []
    for kind in OUTCOMES:
        width = 100 * counts[kind] / total
        if width:
            bars.append(
                f'<rect class="{OUTCOME_COLOURS[kind]}" fill="currentColor" x="{x:.2f}%" width="{width:.2f}%" '
                f'height="100%"><title>{kind} {percent(counts[kind] / total)}</title></rect>'
            )
        x += width
    spoken = ", ".join(f"{kind} {percent(counts[kind] / total)}" for kind in OUTCOMES if counts[kind])
    bar = f'<svg width="160" height="10" role="img" aria-label="{spoken}">{"".join(bars)}</svg>'
    return f'<tr><th scope="row">{esc(label)}</th><td class="n">{plain(total)}</td>{cells}<td>{bar}</td></tr>'


def times(runs: Sequence[RunData]) -> str:
    """Where the seconds of the steps went."""
    names = sorted({key for run in runs for key in run.metrics if key.startswith("time/")})
    if not names:
        return ""
    head = "".join(f'<th class="n" scope="col">{esc(name[5:].removesuffix("_s"))}</th>' for name in names)
    rows = []
    for run in runs:
        sums = [sum(run.series(name).finite) for name in names]
        total = sum(sums)
        cells = "".join(
            f'<td class="n">{duration(value)} <small>{percent(value / total, 0) if total else DASH}</small></td>'
            for value in sums
        )
        rate = plain(mapping(run.summary).get("tokens_per_s"))
        rows.append(
            f'<tr><th scope="row">{esc(run.label)}</th><td class="n">{duration(total)}</td>{cells}'
            f'<td class="n">{rate}</td></tr>'
        )
    return (
        f'<div class="table"><table><thead><tr><th scope="col">time in steps</th><th class="n" scope="col">all</th>'
        f'{head}<th class="n" scope="col">tokens/s generated</th></tr></thead><tbody>{"".join(rows)}</tbody></table>'
        "</div>"
    )


def flat(value: Any, prefix: str = "") -> dict[str, str]:
    """A nested configuration as dotted keys and short texts.

    >>> flat({"a": {"b": 1, "c": [1, 2]}})
    {'a.b': '1', 'a.c': '1, 2'}
    """
    if isinstance(value, Mapping):
        found: dict[str, str] = {}
        for key, item in value.items():
            found |= flat(item, f"{prefix}.{key}" if prefix else str(key))
        return found
    if isinstance(value, list):
        return {prefix: ", ".join(str(item) for item in value)}
    if isinstance(value, bool):
        return {prefix: "true" if value else "false"}
    return {prefix: DASH if value is None else str(value)}


def settings(runs: Sequence[RunData], source: str, name: str) -> str:
    """The configuration or the environment, side by side; with several runs what differs stands first, the rest is
    folded."""
    columns = [flat(getattr(run, source)) for run in runs]
    keys = list(dict.fromkeys(key for column in columns for key in column))
    if not keys:
        return f'<p class="gone">There is no {esc(name)} in the folder.</p>'
    differing = [key for key in keys if len({column.get(key, DASH) for column in columns}) > 1]
    if len(runs) == 1:
        summary = f"{len(keys)} settings" if source == "config" else f"{len(keys)} facts"
        return f"<details><summary>{summary}</summary>{_table(runs, columns, keys, name)}</details>"
    same = [key for key in keys if key not in differing]
    parts = [_table(runs, columns, differing, name) if differing else f'<p class="gone">The same {esc(name)}.</p>']
    if same:
        parts.append(
            f"<details><summary>{len(same)} that are the same</summary>"
            f"{_table(runs[:1], columns[:1], same, name, heads=['all runs'])}</details>"
        )
    return "".join(parts)


def _table(
    runs: Sequence[RunData],
    columns: Sequence[Mapping[str, str]],
    keys: Sequence[str],
    name: str,
    heads: Sequence[str] | None = None,
) -> str:
    labels = heads or [run.label for run in runs]
    head = "".join(f'<th scope="col">{esc(label)}</th>' for label in labels)
    rows = []
    for key in keys:
        cells = "".join(f"<td><code>{esc(cut(column.get(key, DASH), 400, 80)[0])}</code></td>" for column in columns)
        rows.append(f'<tr><th scope="row"><code>{esc(cut(key, 200, 40)[0])}</code></th>{cells}</tr>')
    return (
        f'<div class="table"><table><thead><tr><th scope="col">{esc(name)}</th>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def every_metric(run: RunData) -> str:
    """Each recorded key with its first, last, smallest and largest value: no metric is out of sight."""
    if not run.metrics:
        return '<p class="gone">No metric is recorded yet.</p>'
    rows = []
    for key in sorted(run.metrics):
        series = run.metrics[key]
        finite = series.finite
        values = [finite[0], finite[-1], min(finite), max(finite)] if finite else [math.nan] * 4
        cells = "".join(f'<td class="n">{plain(value)}</td>' for value in values)
        rows.append(
            f'<tr><th scope="row"><code>{esc(key)}</code></th><td class="n">{len(series.steps)}</td>{cells}</tr>'
        )
    head = "".join(f'<th class="n" scope="col">{name}</th>' for name in ("steps", "first", "last", "least", "most"))
    return (
        f'<div class="table"><table><thead><tr><th scope="col">metric</th>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def role_figures(run: RunData) -> str:
    """Every figure of every role on the test set, before and after, with intervals and denominators."""
    rows = []
    for role in run.roles:
        sides = [mapping(mapping(run.sampled(when).get("roles")).get(role)) for when in ("before", "after")]
        names = list(dict.fromkeys(name for side in sides for name in side))
        if names:
            rows.append(f'<tr class="group"><th colspan="5" scope="rowgroup">{esc(role)}</th></tr>')
        for name in sorted(names, key=lambda name: (name != "accuracy", name)):
            cells = "".join(_figure(mapping(side.get(name))) for side in sides)
            rows.append(f'<tr><th scope="row">{esc(name.replace("_", " "))}</th>{cells}</tr>')
    if not rows:
        return ""
    return (
        '<div class="table"><table><thead><tr><th scope="col">test set</th><th class="n" scope="col">before</th>'
        '<th class="n" scope="col">of</th><th class="n" scope="col">after</th><th class="n" scope="col">of</th></tr>'
        f"</thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _figure(estimate: Mapping[str, Any]) -> str:
    if not estimate:
        return f'<td class="n">{DASH}</td><td class="n"></td>'
    return (
        f'<td class="n">{percent(estimate.get("mean"))} <small>{interval(estimate)}</small></td>'
        f'<td class="n">{plain(estimate.get("n"))}</td>'
    )
