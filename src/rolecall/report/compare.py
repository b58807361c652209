"""Several runs at the top of one page: accuracy side by side, and what is wrong with each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rolecall.report.checks import findings
from rolecall.report.curves import Style, by_setting, styles
from rolecall.report.forest import Row, change, direction, forest
from rolecall.report.overview import findings_list
from rolecall.report.read import RunData, mapping
from rolecall.report.tables import flat
from rolecall.report.text import DASH, duration, esc, interval, number, percent, plain, points


def comparison_header(runs: Sequence[RunData]) -> str:
    """The runs with their colours."""
    items = "".join(
        f'<li class="{style.colour}">● <b>{esc(run.label)}</b> {"" if run.finished else "(no summary yet)"}</li>'
        for run, style in zip(runs, styles(runs), strict=True)
    )
    return (
        '<header class="top"><div><div class="brand">rolecall report</div>'
        f'<h1>{len(runs)} runs</h1><ul class="facts">{items}</ul></div></header>'
    )


def comparison(runs: Sequence[RunData]) -> str:
    """The first screen of several runs."""
    checked = "".join(_run_findings(run, style) for run, style in zip(runs, styles(runs), strict=True))
    return (
        f'<section class="first" id="overview"><div><p class="answer">{_answer(runs)}</p>'
        f"{forest(_rows(runs), 'Team accuracy on the test tasks before and after training.')}</div>"
        f'<div class="side"><div class="panel"><h2>What to look at</h2>{checked}</div></div></section>'
        f"{_settings_table(runs)}<h3>Side by side</h3>{_table(runs)}"
    )


def _answer(runs: Sequence[RunData]) -> str:
    """How many learned, and whether the best is apart from the rest."""
    done = [run for run in runs if _team(run, "before") and _team(run, "after")]
    if not done:
        return f"{len(runs)} runs, none with a test set before and after yet"
    learned = [run for run in done if direction(_team(run, "before"), _team(run, "after")) == "up"]
    ranked = sorted(done, key=lambda run: -float(_team(run, "after").get("mean", 0.0)))
    text = f"{len(learned)} of {len(done)} runs learned"
    if len(ranked) > 1:
        best, second = ranked[0], ranked[1]
        apart = direction(_team(second, "after"), _team(best, "after")) == "up"
        value = percent(_team(best, "after").get("mean"))
        text += f"; {esc(best.label)} is best with {value}" if apart else "; the best ones do not differ clearly"
    return text


def _team(run: RunData, when: str) -> Mapping[str, Any]:
    return mapping(run.sampled(when).get("team"))


def _rows(runs: Sequence[RunData]) -> list[Row]:
    return [
        Row(
            label=run.label,
            colour=style.colour,
            before=_team(run, "before") or None,
            after=_team(run, "after") or None,
            note="" if run.finished else "no summary yet",
        )
        for run, style in zip(runs, styles(runs), strict=True)
    ]


def _run_findings(run: RunData, style: Style) -> str:
    found = [one for one in findings(run) if one.level != "fine"]
    body = findings_list(found) if found else '<p class="gone">Nothing looks wrong.</p>'
    is_open = " open" if any(one.level == "bad" for one in found) else ""
    count = f"{len(found)} to look at" if found else "nothing"
    return (
        f'<details{is_open}><summary><span class="{style.colour}">●</span> {esc(run.label)}: {count}</summary>{body}'
        "</details>"
    )


def _settings_table(runs: Sequence[RunData]) -> str:
    """Runs of one setting and several seeds as one row: mean, least and most; empty when no setting has two runs."""
    groups = list(by_setting(runs).values())
    if not 1 < len(groups) < len(runs):
        return ""
    flats = [flat({key: value for key, value in group[0].config.items() if key != "name"}) for group in groups]
    keys = [key for key in dict.fromkeys(key for one in flats for key in one) if key != "seed"]
    differing = [key for key in keys if len({one.get(key) for one in flats}) > 1]
    rows = []
    looks = dict(zip((run.label for run in runs), styles(runs), strict=True))
    for group, own in zip(groups, flats, strict=True):
        named = ", ".join(f"{key} = {own.get(key, DASH)}" for key in differing[:3])
        more = f" and {len(differing) - 3} more" if len(differing) > 3 else ""
        cells = "".join(f"<td>{_range(group, name)}</td>" for name in ("team", "first_answer", "margin"))
        head = f'<th scope="row" class="{looks[group[0].label].colour}">{esc(named)}{more}</th>'
        rows.append(f'<tr>{head}<td class="n">{len(group)}</td>{cells}</tr>')
    return (
        '<h3>By setting</h3><div class="table"><table><thead><tr><th scope="col">runs that differ only in their seed'
        '</th><th class="n" scope="col">runs</th><th scope="col">team after</th><th scope="col">first answer after</th>'
        f'<th scope="col">team minus first answer</th></tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
    )


def _range(group: Sequence[RunData], name: str) -> str:
    """Mean over runs with the least and the most of them: a spread over seeds, not an interval."""
    found = [number(mapping(run.sampled("after").get(name)).get("mean")) for run in group]
    values = [value for value in found if math.isfinite(value)]
    if not values:
        return DASH
    show = points if name == "margin" else percent
    spread = f" <small>{show(min(values))} to {show(max(values))}</small>" if len(values) > 1 else ""
    short = f" <small>({len(values)} of {len(group)} runs)</small>" if len(values) < len(group) else ""
    return f"<b>{show(sum(values) / len(values))}</b>{spread}{short}"


def _table(runs: Sequence[RunData]) -> str:
    """Figures in rows, runs in columns."""
    looks = styles(runs)
    head = "".join(f'<th scope="col" class="{s.colour}">{esc(r.label)}</th>' for r, s in zip(runs, looks, strict=True))
    rows = [_group("test set", len(runs))]
    for name, label in (("team", "team"), ("first_answer", "first answer alone")):
        sides = [[mapping(run.sampled(when).get(name)) for when in ("before", "after")] for run in runs]
        rows.append(_row(label, [_both(*pair) for pair in sides]))
    greedy = [[mapping(mapping(mapping(s).get("greedy")).get("team")) for s in (run.before, run.after)] for run in runs]
    rows.append(_row("team, greedy", [_both(*pair) for pair in greedy]))
    margins = [[mapping(run.sampled(when).get("margin")) for when in ("before", "after")] for run in runs]
    rows.append(_row("team minus first answer, points", [_margin(*pair) for pair in margins]))
    rows.append(_group("accuracy by role", len(runs)))
    for role in dict.fromkeys(role for run in runs for role in run.roles):
        sides = [[_role(run, when, role) for when in ("before", "after")] for run in runs]
        rows.append(_row(role, [_both(*pair) for pair in sides]))
    rows.append(_group("the run", len(runs)))
    for label, values in _facts(runs):
        rows.append(_row(label, values))
    return (
        f'<div class="table"><table><thead><tr><th scope="col"></th>{head}</tr></thead><tbody>{"".join(rows)}</tbody>'
        "</table></div>"
    )


def _facts(runs: Sequence[RunData]) -> list[tuple[str, list[str]]]:
    return [
        ("policies", [esc(", ".join(run.policies)) or DASH for run in runs]),
        ("seed", [esc(run.config.get("seed", DASH)) for run in runs]),
        ("steps", [plain(run.steps[-1]) if run.steps else "0" for run in runs]),
        ("best step", [plain(run.summary.get("best_step")) for run in runs]),
        ("last validation", [percent(run.series("validation/team").last) for run in runs]),
        ("tokens trained", [plain(mapping(run.summary.get("tokens")).get("trained")) for run in runs]),
        ("tokens/s generated", [plain(run.summary.get("tokens_per_s")) for run in runs]),
        ("time", [duration(run.summary.get("wall_s")) for run in runs]),
    ]


def _role(run: RunData, when: str, role: str) -> Mapping[str, Any]:
    return mapping(mapping(mapping(run.sampled(when).get("roles")).get(role)).get("accuracy"))


def _both(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    if not before and not after:
        return DASH
    was = percent(before.get("mean")) if before else DASH
    now = f"<b>{percent(after.get('mean'))}</b> <small>{interval(after)}</small>" if after else DASH
    return f"{was} → {now} {change(before, after)}"


def _margin(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    if not before and not after:
        return DASH
    return f"{points(before.get('mean'))} → <b>{points(after.get('mean'))}</b> <small>{interval(after)}</small>"


def _group(title: str, columns: int) -> str:
    return f'<tr class="group"><th colspan="{columns + 1}" scope="rowgroup">{title}</th></tr>'


def _row(label: str, cells: Sequence[str]) -> str:
    return f'<tr><th scope="row">{esc(label)}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'
