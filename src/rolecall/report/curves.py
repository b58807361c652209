"""Which curves a page has. One run: a colour a role. Several runs: a colour a run, and one chart for each role."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from rolecall.report.catalogue import WITHIN_POLICY, Curve
from rolecall.report.chart import INK, PALETTE, Chart, Line, colour, draw
from rolecall.report.read import RunData, Series
from rolecall.report.text import listed, plain


@dataclass(frozen=True, kw_only=True, slots=True)
class Style:
    """How the curves of one run are drawn."""

    colour: str
    dash: int = 0


def styles(runs: Sequence[RunData]) -> list[Style]:
    """A colour a run. Where runs differ only in their seed, and others differ in more, those of one setting share a
    colour and differ in dash."""
    groups = by_setting(runs)
    if not 1 < len(groups) < len(runs):
        return [Style(colour=colour(i), dash=i // PALETTE) for i in range(len(runs))]
    found = {}
    for i, group in enumerate(groups.values()):
        for j, run in enumerate(group):
            found[run.label] = Style(colour=colour(i), dash=j)
    return [found[run.label] for run in runs]


def by_setting(runs: Sequence[RunData]) -> dict[str, list[RunData]]:
    """The runs by configuration, apart from name and seed, in order of first appearance."""
    groups: dict[str, list[RunData]] = {}
    for run in runs:
        settings = {key: value for key, value in run.config.items() if key not in ("name", "seed")}
        groups.setdefault(json.dumps(settings, sort_keys=True, default=str), []).append(run)
    return groups


def role_colours(run: RunData) -> dict[str, str]:
    """The colour of each role, by its place in the workflow."""
    return {role: colour(i) for i, role in enumerate(run.roles)}


def charts(runs: Sequence[RunData], curves: Sequence[Curve], *, of: str = "roles") -> str:
    """The charts of some curves; `of` says what fills the key, `roles` or `policies`."""
    return "".join(draw(chart) for curve in curves for chart in _charts(runs, curve, of))


def same_curves(run: RunData, first: str, second: str) -> bool:
    """Whether two metrics are equal for every role: a reward that is the accuracy need not be drawn twice."""
    return all(run.series(first.format(role)) == run.series(second.format(role)) for role in run.roles)


def _names(run: RunData, of: str) -> tuple[str, ...]:
    return tuple(run.roles) if of == "roles" else run.policies


def _charts(runs: Sequence[RunData], curve: Curve, of: str) -> list[Chart]:
    if len(runs) == 1:
        names = enumerate(_names(runs[0], of))
        lines = [
            Line(
                label=name,
                colour=colour(i),
                dash=i // PALETTE,
                series=_series(runs[0], curve, name),
                counted=runs[0].series(curve.counted.format(name)),
            )
            for i, name in names
        ]
        return [] if _quiet(curve, lines) else [_chart(curve, curve.title, lines)]
    if of == "policies":
        chart = _policies_of_runs(runs, curve)
        return [] if _quiet(curve, chart.lines) else [chart]
    found = []
    for role in dict.fromkeys(role for run in runs for role in run.roles):
        series = [_series(run, curve, role) for run in runs]
        lines = run_lines(runs, series)
        if not _quiet(curve, lines):
            found.append(_chart(curve, f"{curve.title}: {role}", lines, _without(runs, curve, role)))
    return found


def _series(run: RunData, curve: Curve, name: str) -> Series:
    """The metric; nothing for a share within a policy of the role's own, which says only that it is alone there."""
    return Series() if curve.axis in WITHIN_POLICY and run.alone(name) else run.series(curve.key.format(name))


def _policies_of_runs(runs: Sequence[RunData], curve: Curve) -> Chart:
    lines = [
        Line(
            label=f"{run.label}: {policy}" if len(run.policies) > 1 else run.label,
            colour=style.colour,
            dash=style.dash + i,
            series=run.series(curve.key.format(policy)),
        )
        for run, style in zip(runs, styles(runs), strict=True)
        for i, policy in enumerate(run.policies)
    ]
    return _chart(curve, curve.title, lines)


def _chart(curve: Curve, title: str, lines: Sequence[Line], more: str = "") -> Chart:
    kept = [line for line in lines if line.series]
    note = " ".join(part for part in (curve.note, more) if part)
    return Chart(title=title, axis=curve.axis, lines=kept, kind=curve.kind, note=note)


def _quiet(curve: Curve, lines: Sequence[Line]) -> bool:
    """Whether there is nothing to see: no point, or never more than `quiet`."""
    return not any(abs(value) > curve.quiet for line in lines for value in line.series.finite)


def unseen(runs: Sequence[RunData], curves: Sequence[Curve], *, of: str = "roles") -> str:
    """A sentence on the curves that were recorded and are not drawn, and why."""
    names = []
    for curve in curves:
        series = [_series(run, curve, name) for run in runs for name in _names(run, of)]
        lines = [Line(label="", colour=INK, series=one) for one in series]
        if any(series) and _quiet(curve, lines):
            names.append(f"{_in_sentence(curve.title)} ({_why(series)})")
    own = [run.label for run in runs if any(run.alone(role) for role in run.roles)]
    sentences = [f"Recorded and not drawn: {listed(names)}."] if names else []
    if own and any(curve.axis in WITHIN_POLICY for curve in curves):
        whose = f" in {listed(own)}" if len(runs) > 1 else ""
        sentences.append(f"Shares within a policy are left out for roles with a policy of their own{whose}.")
    return " ".join(sentences)


def _in_sentence(title: str) -> str:
    """`Cut off` -> `cut off`; `KL to base` stays."""
    return title if title[1:2].isupper() else title[:1].lower() + title[1:]


def _why(series: Sequence[Series]) -> str:
    top = max((abs(value) for one in series for value in one.finite), default=0.0)
    return f"at most {plain(top)}: rounding" if top else "0 throughout"


def run_lines(runs: Sequence[RunData], series: Sequence[Series]) -> list[Line]:
    """One line a run, in the colour and dash of the run."""
    return [
        Line(label=run.label, colour=style.colour, dash=style.dash, series=one)
        for run, style, one in zip(runs, styles(runs), series, strict=True)
    ]


def _without(runs: Sequence[RunData], curve: Curve, role: str) -> str:
    missing = [run.label for run in runs if not run.series(curve.key.format(role))]
    return f"Not recorded by {listed(missing)}." if missing else ""


def team_chart(run: RunData) -> str:
    """Training and validation of one run in one chart, for its first screen."""
    training = Line(label="training", colour="faint", series=run.series("reward/team"))
    note = "Validation with 95 % intervals; training tasks are others in every step."
    lines = [training, _validation(run, "validation", Style(colour=INK))]
    return draw(Chart(title="Team accuracy", axis="right", kind="rate", lines=lines, note=note))


def _validation(run: RunData, label: str, style: Style) -> Line:
    low, high = (run.series(f"validation/team_{end}") for end in ("low", "high"))
    means = run.series("validation/team")
    return Line(label=label, colour=style.colour, dash=style.dash, dots=True, series=means, low=low, high=high)


def team_charts(runs: Sequence[RunData]) -> str:
    """Validation with its intervals, and the share of training episodes that the team won, of several runs."""
    validation = [_validation(run, run.label, style) for run, style in zip(runs, styles(runs), strict=True)]
    training = run_lines(runs, [run.series("reward/team") for run in runs])
    drawn = [
        Chart(
            title="Team accuracy on the validation set",
            axis="right",
            kind="rate",
            lines=validation,
            note="Bars are 95 % intervals, clustered by task.",
            tall=True,
        ),
        Chart(
            title="Team accuracy on training tasks",
            axis="right",
            kind="rate",
            lines=training,
            note="Mean score of the step's episodes, other tasks in every step.",
            tall=True,
        ),
    ]
    return "".join(draw(chart) for chart in drawn)


def cosine_charts(runs: Sequence[RunData]) -> str:
    """The cosine of every two roles' gradients within one policy."""
    pairs = dict.fromkeys(
        (role, other) for run in runs for i, role in enumerate(run.roles) for other in tuple(run.roles)[i + 1 :]
    )
    note = "Above 0 the roles help each other, below 0 they pull apart. Only within one policy."
    if len(runs) == 1:
        lines = [
            Line(label=f"{a} · {b}", colour=colour(i + 3), series=runs[0].series(f"dynamics/{a}/cosine/{b}"))
            for i, (a, b) in enumerate(pairs)
        ]
        drawn = [Chart(title="Cosine between two roles", axis="cosine", kind="cosine", lines=lines, note=note)]
    else:
        drawn = [
            Chart(
                title=f"Cosine: {a} · {b}",
                axis="cosine",
                kind="cosine",
                lines=run_lines(runs, [run.series(f"dynamics/{a}/cosine/{b}") for run in runs]),
                note=note,
            )
            for a, b in pairs
        ]
    return "".join(draw(chart) for chart in drawn)
