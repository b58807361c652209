"""The map of a matrix as one self-contained page: heat maps, curves beside role gradients, every cell in a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rolecall.report.map_curves import curves_section
from rolecall.report.map_data import Figure, MapCell, MapData, at, over_seeds
from rolecall.report.map_mechanisms import capture_section, counts, paired_section, roles_section, signs_section
from rolecall.report.map_table import shown, span, table
from rolecall.report.page import frame
from rolecall.report.text import DASH, esc, listed, percent, plain, points

Value = Callable[[MapCell], Figure]

HEAT: tuple[tuple[str, str, bool, Value], ...] = (
    ("Base", "before training", False, lambda cell: cell.fall.base if cell.fall else Figure()),
    ("Peak", "the best two validations in a row", False, lambda cell: cell.fall.peak if cell.fall else Figure()),
    ("Terminal", "the last two validations", False, lambda cell: cell.fall.last if cell.fall else Figure()),
    ("Fall", "peak minus terminal, in points", True, lambda cell: cell.fall.fall if cell.fall else Figure()),
)

LINKS = (
    ("map", "Map"),
    ("sharing", "Sharing"),
    ("roles", "Roles"),
    ("paired", "Changes"),
    ("capture", "Capture"),
    ("signs", "Signs"),
    ("curves", "Curves"),
    ("controls", "Controls"),
    ("cells", "Cells"),
)

CSS = """
.heat td{min-width:108px;background:color-mix(in oklab,var(--tint) calc(var(--v)*55%),var(--card))}
.heat td b{font-weight:600}.heat small{display:block;color:var(--ink);opacity:.75}
.heat td.none{background:repeating-linear-gradient(135deg,var(--card) 0 6px,var(--wash) 6px 12px)}
.fell{color:var(--bad);font-weight:600}.missing li{padding:3px 0}.cell h3{margin-top:34px}
.terms{display:grid;grid-template-columns:max-content 1fr;gap:4px 18px;font-size:.9em;max-width:100ch}
.terms dd{margin:0}@media (max-width:700px){.terms{display:block}.terms dd{margin:0 0 8px}}
"""


def map_page(data: MapData) -> str:
    """The page of a matrix; cells that are missing are named in words, and nothing else is left out."""
    sections = (
        _section("overview", "Overview", _overview(data)),
        _section("map", "The map", _heat_maps(data)),
        _section("sharing", "Shared or isolated", _sharing(data)),
        _section("roles", "What training did to each role", roles_section(data)),
        _section("paired", "What one change does", paired_section(data)),
        _section("capture", "Capture of a shared policy", capture_section(data)),
        _section("signs", "Early signs", signs_section(data)),
        _section("curves", "Accuracy beside role gradients", curves_section(data)),
        _section("controls", "Controls at equal compute", _controls(data)),
        _section("cells", "Every cell", _table(data)),
    )
    nav = "".join(
        f'<li><a href="#{name}">{label}</a></li>' for name, label in LINKS if f'id="{name}"' in "".join(sections)
    )
    top = (
        f'<header class="top"><div><div class="brand">rolecall report</div><h1>{esc(data.name)}</h1></div></header>'
        f'<nav aria-label="sections"><ul>{nav}</ul></nav>'
    )
    return frame(f"{data.name}: map", top, "".join(sections), css=CSS)


def _section(name: str, title: str, body: str) -> str:
    return f'<section id="{name}"><h2>{title}</h2>{body}</section>' if body else ""


def _overview(data: MapData) -> str:
    """How much is there, how many runs learned, how many fell; then what is missing, and why."""
    teams = data.ended
    whole = len(data.cells) - len(data.missing)
    words = f"{whole} of {len(data.cells)} cells have come to their end"
    if teams:
        learned = sum(cell.learned for cell in teams)
        words += f"; {learned} of {len(teams)} teams learned, {counts(teams)}"
    note = (
        "Validation accuracy of the team, 95 % intervals. Peak and terminal are means of two validations in a row. A "
        "cliff: the terminal accuracy is at least 5 points below the peak and outside the interval of the difference, "
        "or below the base, by however little. A run that never rose may have a peak below its base, which is one "
        "validation and no mean of two. Learned: the intervals of the test set before training and of the best "
        "checkpoint do not meet. Several seeds: the mean over seeds, in the interval of Student's t. Cells under way "
        "are drawn and not counted."
    )
    return f'<p class="answer">{words}</p><p class="lead">{note}</p>{_names(data)}{_missing(data)}'


def _names(data: MapData) -> str:
    """What the parts of a cell's name are: the axes in their order, with their values."""
    named = {axis: values for axis, values in data.axes.items() if len(values) > 1 or axis not in ("algorithm", "arm")}
    axes = "; ".join(f"{axis}: {listed(list(values))}" for axis, values in named.items())
    seeds = f"; seed: {listed([f's{seed}' for seed in data.seeds])}" if len(data.seeds) > 1 else ""
    return f"<p>Names of cells, in this order: {esc(axes + seeds)}.</p>"


def _missing(data: MapData) -> str:
    missing = [(cell.name, cell.missing) for cell in data.missing]
    missing += [
        (f"{cell.name}, majority for the tokens of {team}", why)
        for cell in data.controls
        if not cell.missing
        for team, why in cell.no_majority.items()
    ]
    if not missing:
        return ""
    rows = "".join(f"<li><b>{esc(name)}</b>: {esc(why)}</li>" for name, why in missing)
    return f'<div class="panel"><h3>What is missing</h3><ul class="missing">{rows}</ul></div>'


def _heat_maps(data: MapData) -> str:
    return "".join(_heat_map(data, *one) for one in HEAT)


def _heat_map(data: MapData, title: str, words: str, falls: bool, value: Value) -> str:
    """Rows: workflow, sharing and arm; columns: scale, task and algorithm. The colour repeats the number."""
    down = [axis for axis in data.axes if axis in ("workflow", "sharing", "arm")]
    across = [axis for axis in data.axes if axis not in down]
    groups: dict[tuple[str, str], list[MapCell]] = {}
    for cell in data.teams:
        groups.setdefault((at(cell, down), at(cell, across)), []).append(cell)
    rows = dict.fromkeys(row for row, _ in groups)
    columns = dict.fromkeys(column for _, column in groups)
    head = "".join(f'<th scope="col">{esc(column)}</th>' for column in columns)
    body = "".join(
        f'<tr><th scope="row">{esc(row)}</th>'
        f"{''.join(_heat_cell(groups.get((row, column), ()), value, falls) for column in columns)}</tr>"
        for row in rows
    )
    tint = "bad" if falls else "c0"
    return (
        f'<h3>{title} <small>{words}</small></h3><div class="table heat" style="--tint:var(--{tint})"><table><thead>'
        f'<tr><th scope="col"></th>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _heat_cell(cells: Sequence[MapCell], value: Value, falls: bool) -> str:
    ended = [cell for cell in cells if cell.ended]
    figure = over_seeds([value(cell) for cell in ended or cells])
    if not figure.known:
        why = cells[0].missing if cells else "not in the matrix"
        return f'<td class="none">{DASH}<small>{esc(why or "not measured")}</small></td>'
    strength = min(1.0, max(0.0, figure.mean * (3 if falls else 1)))
    show = points if falls else percent
    words = f"<b>{show(figure.mean)}</b><small>{span(figure, show)}</small>"
    if not ended:
        return f'<td class="none">{words}<small>{esc(cells[0].missing)}</small></td>'
    return f'<td style="--v:{strength:.3f}">{words}{_mark(ended) if falls else ""}</td>'


def _mark(cells: Sequence[MapCell]) -> str:
    """How many of the cells fell from their peak or, without that, ended below their base."""
    falls = [cell.fall for cell in cells if cell.fall is not None]
    of = f" of {len(falls)}" if len(falls) > 1 else ""
    kinds = (
        ("fell", [fall.fell for fall in falls]),
        ("below base", [fall.below_base and not fall.fell for fall in falls]),
    )
    return "".join(
        f'<small class="fell">{name}{f" in {sum(found)}{of}" if of else ""}</small>'
        for name, found in kinds
        if any(found)
    )


def _sharing(data: MapData) -> str:
    """Peak, terminal and falls of each way of sharing, over everything else."""
    if "sharing" not in data.axes:
        return ""
    rows = []
    for name in data.axes["sharing"]:
        cells = [cell for cell in data.ended if cell.axes["sharing"] == name]
        falls = [cell.fall for cell in cells if cell.fall is not None]
        means = [
            percent(sum(values) / len(values)) if values else DASH
            for values in ([one.peak.mean for one in falls], [one.last.mean for one in falls])
        ]
        fell = [cell.name for cell in cells if cell.fall and cell.fall.is_cliff]
        rows.append([name, str(len(cells)), *means, f"{len(fell)} of {len(cells)}", listed(fell) or DASH])
    head = ("sharing", "cells", "mean peak", "mean terminal", "cliffs", "which")
    note = "Means over cells of several workflows and scales: the table counts, and estimates nothing."
    return f"<p>{note}</p>{table(head, rows)}"


def _controls(data: MapData) -> str:
    """One agent trained on a team's tokens, and its majority at the tokens of each team's episode."""
    rows = []
    for cell in data.controls:
        before, after = cell.test
        how = cell.missing or f"trained on the tokens of {cell.control_of}"
        rows.append([cell.name, how, shown(before), shown(after), ""])
        for team, (majority, answers) in cell.majorities.items():
            other = next((one.test[1] for one in data.cells if one.name == team), Figure())
            words = f"majority of {answers} answers, for the tokens of {team}"
            rows.append(["", words, "", shown(majority), shown(other)])
    head = ("control", "how", "before", "after", "the team after")
    note = (
        "A single agent is trained until it has generated as many tokens as the named team did in training; then it "
        "answers each test task as often as the tokens of a team's episode pay for, and the majority counts. Accuracy "
        "on the test tasks before training, and with the weights that were best on validation."
    )
    return f"<p>{note}</p>{table(head, rows)}" if rows else ""


def _table(data: MapData) -> str:
    head = (
        "cell",
        "base",
        "peak",
        "at step",
        "terminal",
        "fall",
        "cliff",
        "test before",
        "test after",
        "tokens",
        "missing",
    )
    rows = []
    for cell in data.cells:
        fall, (before, after) = cell.fall, cell.test
        figures = [DASH] * 6
        if fall is not None:
            figures = [shown(fall.base), shown(fall.peak), plain(fall.peak_step), shown(fall.last)]
            verdict = ("yes" if fall.is_cliff else "no") if cell.ended else DASH
            figures += [f"{points(fall.fall.mean)} {span(fall.fall, points)}", verdict]
        tokens = f"{cell.tokens:,}" if cell.tokens else DASH
        rows.append([cell.name, *figures, shown(before), shown(after), tokens, cell.missing])
    files = "The same figures are in <code>map.csv</code> and, for a paper, in <code>map.tex</code>."
    return f"<p>{files}</p>{table(head, rows)}"
