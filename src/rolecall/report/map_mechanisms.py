"""The part of a map that looks for causes: what training did to each role, what arms and sharing change, capture."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from rolecall.report.map_data import MapCell, MapData, RoleFigures, by_setting, mean_of
from rolecall.report.map_paired import Pair, copied_over_others, heaviest, leaked, pairs, role_measure
from rolecall.report.map_table import shown, table, terms
from rolecall.report.text import DASH, esc, listed, plain, points

OUTCOMES: tuple[tuple[str, Callable[[MapCell], float]], ...] = (
    ("peak", lambda cell: cell.fall.peak.mean if cell.fall else math.nan),
    ("terminal", lambda cell: cell.fall.last.mean if cell.fall else math.nan),
    ("fall", lambda cell: cell.fall.fall.mean if cell.fall else math.nan),
    ("test after", lambda cell: cell.test[1].mean),
)

ROLE_WORDS = (
    "A row for each role of each setting, means over its seeds. The figures are explained below the table; "
    "docs/dynamics.md defines them."
)
ROLE_TERMS = {
    "turns": (
        "turns of the role an episode, over the run. About 1 of a role with copies: the workflow has come to call one "
        "of them, and what is said of copies holds for the beginning alone"
    ),
    "optimizer steps": "those of the run in which the role had a gradient",
    "update size": (
        "the sum over them of the length of the change of its policy's weights. Roles that share a policy have "
        "it in common where both have a gradient; sizes of different policies are of different adapters"
    ),
    "KL from base": (
        "how far what the role says has moved from the policy before training, in nats a token, mean of the last "
        "quarter of the run"
    ),
    "gradient mass": (
        "the norm of the role's gradient over the sum of the norms of all roles of its policy, mean over the steps. "
        "Two roles that pull alike have 50 % each, three 33 %; none where a policy has one role. Optimizer steps in "
        "which the role has no sample are not in it, so that shares of small batches can add up to more than 100 %"
    ),
    "turns known less, points": (
        "a classifier, fitted on the first turns of every role, tells by its words which role wrote a turn: by how "
        "many points the share of the role's turns that it knows has fallen from the first three measurements to the "
        "last quarter of the run"
    ),
}
CAPTURE_TERMS = {
    "heaviest role (seeds)": "the role with the largest gradient mass of the policy, and in how many seeds",
    "its mass": "two roles that pull alike have 50 % each, three 33 %",
    "its format in others, points": (
        "by how many points the share of another role's turns that can be read in its format has risen from the first "
        "three measurements to the last quarter of the run; of the other roles the one in which it rose most"
    ),
    "others taken for it, points": "the same of the turns that the classifier of roles takes for its",
    "cliffs": "seeds that fell from their peak or ended below their base",
}


def roles_section(data: MapData) -> str:
    """A row for each role of each setting, means over seeds; then the role with copies against the others."""
    rows = []
    for name, cells in by_setting(data.ended).items():
        for role in dict.fromkeys(role for cell in cells for role in cell.roles):
            found = [cell.roles[role] for cell in cells if role in cell.roles]
            rows.append([name, role + (" (copies)" if any(one.copies for one in found) else ""), *_figures(found)])
    if not rows:
        return ""
    head = ("cell", "role", *ROLE_TERMS)
    return f"<p>{ROLE_WORDS}</p>{table(head, rows)}{terms(ROLE_TERMS)}{_copied(data)}"


def _figures(found: Sequence[RoleFigures]) -> list[str]:
    return [
        shown(mean_of(one.turns for one in found), plain),
        shown(mean_of(one.optimizer_steps for one in found), _plain),
        shown(mean_of(one.update_norm for one in found), plain),
        shown(mean_of(one.kl_base for one in found), plain),
        shown(mean_of(one.mass for one in found)),
        shown(mean_of(one.lost for one in found), points),
    ]


def _copied(data: MapData) -> str:
    """How far the role with copies was pushed, over the mean of the other roles of its cell."""
    rows = []
    for name, cells in by_setting(data.ended).items():
        steps, update, drift = (copied_over_others(cells, of) for of in (_steps, _update, _drift))
        if steps.known or update.known:
            turns = mean_of(one.turns for cell in cells for one in cell.roles.values() if one.copies)
            figures = [shown(one, _times) for one in (steps, update, drift)]
            rows.append([name, str(len(cells)), shown(turns, plain), *figures])
    head = ("cell", "seeds", "its turns an episode", "optimizer steps", "update size", "KL from base")
    words = (
        "The figures of the role that was called several times side by side, over their mean for the other roles of "
        "its cell: 3.00× is three times as much. Roles of one shared policy have steps and updates "
        "almost in common, so that the KL tells most there. Geometric means over seeds."
    )
    return f"<h3>The copied role</h3><p>{words}</p>{table(head, rows)}" if rows else ""


def paired_section(data: MapData) -> str:
    """What each other value of the axes of arm and sharing changes against the first, paired by seed."""
    parts = []
    for axis, title in (("arm", "Arms"), ("sharing", "Sharing")):
        found = list(pairs(data, axis))
        if found:
            parts.append(f"<h3>{title} against {found[0].first}</h3>{_paired_table(found)}")
    words = (
        "Cells that differ in one axis alone, paired by seed: the value in the column “with” minus that in the "
        "heading, in points of accuracy (above 0: more with the change; for the fall, a deeper one). By role, the "
        "update size over the run and the KL from the base with the change over those without it. Intervals are those "
        "of Student's t over the seeds, 95 %: one seed has none, and that of two is very wide. One that holds 0 (of "
        "ratios: 1×) does not tell the change from chance."
    )
    return f"<p>{words}</p>{''.join(parts)}" if parts else ""


def _paired_table(found: Sequence[Pair]) -> str:
    rows = []
    for pair in found:
        fell = [
            sum(cell.fall is not None and cell.fall.fell for cell in side) for side in zip(*pair.cells, strict=True)
        ]
        rows.append(
            [
                pair.setting,
                pair.other,
                str(len(pair.cells)),
                *[shown(pair.difference(measure), points) for _, measure in OUTCOMES],
                f"{fell[0]} and {fell[1]}",
                "; ".join(_ratios(pair)) or DASH,
            ]
        )
    head = (
        "cell",
        "with",
        "seeds",
        *(name for name, _ in OUTCOMES),
        "fell from the peak, without and with",
        "by role: update size, KL",
    )
    return table(head, rows)


def _ratios(pair: Pair) -> Iterator[str]:
    for role in dict.fromkeys(role for cells in pair.cells for cell in cells for role in cell.roles):
        update, drift = (pair.ratio(role_measure(role, of)) for of in (_update, _drift))
        if update.known or drift.known:
            yield f"{role} {shown(update, _times)}, {shown(drift, _times)}"


def capture_section(data: MapData) -> str:
    """Of each setting in which roles share a policy: who holds the most gradient mass, and whether the others take
    on its way of speaking."""
    rows = []
    for name, cells in by_setting(data.ended).items():
        heavy = [(cell, role) for cell in cells if (role := heaviest(cell)) is not None]
        if not heavy:
            continue
        names = listed([f"{role} ({n})" for role in dict.fromkeys(r for _, r in heavy) if (n := _count(heavy, role))])
        formats, taken = zip(*(leaked(cell) for cell, _ in heavy), strict=True)
        mass = mean_of(cell.roles[role].mass for cell, role in heavy)
        fell = sum(cell.fall is not None and cell.fall.is_cliff for cell, _ in heavy)
        rows.append(
            [
                name,
                names,
                shown(mass),
                shown(mean_of(formats), points),
                shown(mean_of(taken), points),
                f"{fell} of {len(heavy)}",
            ]
        )
    words = (
        "Of the policies that roles share: whose gradient moves them, and whether the other roles begin to speak like "
        "that one. A policy is captured where both are so."
    )
    return f"<p>{words}</p>{table(('cell', *CAPTURE_TERMS), rows)}{terms(CAPTURE_TERMS)}" if rows else ""


def _count(heavy: Sequence[tuple[MapCell, str]], role: str) -> int:
    return sum(one == role for _, one in heavy)


def signs_section(data: MapData) -> str:
    """What the runs of the map say about early signs of a fall."""
    if not data.signs:
        return ""
    words = (
        f"Over the {len(data.ended)} runs of the map that have ended. Of each sign the largest figure of a run's roles "
        "or policies; it warned when two measurements in a row were at the bound or above. A fall is one from the "
        "peak, counted from the validation at which it was first seen, also where the run recovered from it (the map "
        "counts those alone that ended low); a warning counts when it came before. "
        "<code>rolecall signs FOLDER...</code> takes several maps at once; docs/interventions.md explains it."
    )
    rows = "".join(f"<li>{esc(one)}.</li>" for one in data.signs)
    return f'<p>{words}</p><div class="panel"><ul class="missing">{rows}</ul></div>'


def _steps(role: RoleFigures) -> float:
    return role.optimizer_steps


def _update(role: RoleFigures) -> float:
    return role.update_norm


def _drift(role: RoleFigures) -> float:
    return role.kl_base


def _plain(value: float) -> str:
    return f"{value:.0f}"


def _times(value: float) -> str:
    return f"{value:.2f}×"


def counts(cells: Sequence[MapCell]) -> str:
    """How many of the cells fell from their peak and how many ended below their base, in words."""
    falls = [cell.fall for cell in cells if cell.fall is not None]
    fell, below = sum(fall.fell for fall in falls), sum(fall.below_base and not fall.fell for fall in falls)
    return f"{fell} fell from their peak, {below} more ended below their base"
