"""The part of a map that looks for causes: what training did to each role, what arms and sharing change, capture."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from rolecall.report.map_data import MapCell, MapData, RoleFigures, by_setting
from rolecall.report.map_paired import Pair, copied_over_others, heaviest, leaked, mean_of, pairs, role_measure
from rolecall.report.map_table import shown, table
from rolecall.report.text import DASH, esc, listed, points

OUTCOMES: tuple[tuple[str, Callable[[MapCell], float]], ...] = (
    ("peak", lambda cell: cell.fall.peak.mean if cell.fall else math.nan),
    ("terminal", lambda cell: cell.fall.last.mean if cell.fall else math.nan),
    ("fall", lambda cell: cell.fall.fall.mean if cell.fall else math.nan),
    ("test after", lambda cell: cell.test[1].mean),
)


def roles_section(data: MapData) -> str:
    """A row for each role of each setting, means over seeds; then the role with copies against the others."""
    rows = []
    for name, cells in by_setting(data.ended).items():
        for role in dict.fromkeys(role for cell in cells for role in cell.roles):
            found = [cell.roles[role] for cell in cells if role in cell.roles]
            rows.append([name, role + (" (copies)" if any(one.copies for one in found) else ""), *_figures(found)])
    if not rows:
        return ""
    head = ("cell", "role", "optimizer steps", "update size", "KL from base", "gradient mass", "known turns lost")
    words = (
        "Sums over the run of optimizer steps and of update sizes; KL of the role to the policy before training, a "
        "token, over the last quarter of the run; its mean share of the gradient mass, where roles share a policy; how "
        "much less often the classifier of roles knows its turns at the end than at the start. Update sizes of roles "
        "with policies of their own are those of their own adapters."
    )
    return f"<p>{words}</p>{table(head, rows)}{_copied(data)}"


def _figures(found: Sequence[RoleFigures]) -> list[str]:
    return [
        shown(mean_of(one.optimizer_steps for one in found), _plain),
        shown(mean_of(one.update_norm for one in found), _three),
        shown(mean_of(one.kl_base for one in found), _three),
        shown(mean_of(one.mass for one in found)),
        shown(mean_of(one.lost for one in found), points),
    ]


def _copied(data: MapData) -> str:
    """How far the role with copies was pushed, over the mean of the other roles of its cell."""
    rows = []
    for name, cells in by_setting(data.ended).items():
        steps, update, drift = (copied_over_others(cells, of) for of in (_steps, _update, _drift))
        if steps.known or update.known:
            rows.append([name, str(len(cells)), *(shown(one, _times) for one in (steps, update, drift))])
    head = ("cell", "seeds", "optimizer steps", "update size", "KL from base")
    words = "The role with copies over the mean of the other roles of its cell; geometric means over seeds."
    return f"<h3>The copied role</h3><p>{words}</p>{table(head, rows)}" if rows else ""


def paired_section(data: MapData) -> str:
    """What each other value of the axes of arm and sharing changes against the first, paired by seed."""
    parts = []
    for axis, title in (("arm", "Arms"), ("sharing", "Sharing")):
        found = list(pairs(data, axis))
        if found:
            parts.append(f"<h3>{title} against {found[0].first}</h3>{_paired_table(found)}")
    words = (
        "Cells that differ in one axis alone, paired by seed: differences in points and, by role, ratios of the "
        "update size over the run and of the KL from the base; 95 % intervals of Student's t over seeds, of which "
        "one seed has none."
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
        "fell, without and with",
        "update size, KL by role",
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
    head = ("cell", "heaviest role (seeds)", "its mass", "its format in others", "others taken for it", "cliffs")
    words = (
        "The role with the largest mean share of the shared policy's gradient mass; how much the share of another "
        "role's turns in its format, and of those that the classifier of roles takes for its, has risen from the first "
        "three measurements to the last quarter of the run (of the other roles the one in which it rose most)."
    )
    return f"<p>{words}</p>{table(head, rows)}" if rows else ""


def _count(heavy: Sequence[tuple[MapCell, str]], role: str) -> int:
    return sum(one == role for _, one in heavy)


def signs_section(data: MapData) -> str:
    """What the runs of the map say about early signs of a fall."""
    if not data.signs:
        return ""
    words = (
        f"Over the {len(data.ended)} runs of the map that have ended; several maps at once: "
        "<code>rolecall signs FOLDER...</code>. A fall is one from the peak, as above."
    )
    rows = "".join(f"<li>{esc(one)}.</li>" for one in data.signs)
    return f'<p>{words}</p><div class="panel"><ul class="missing">{rows}</ul></div>'


def _steps(role: RoleFigures) -> float:
    return role.optimizer_steps


def _update(role: RoleFigures) -> float:
    return role.update_norm


def _drift(role: RoleFigures) -> float:
    return role.kl_base


def _three(value: float) -> str:
    return f"{value:.3g}"


def _plain(value: float) -> str:
    return f"{value:.0f}"


def _times(value: float) -> str:
    return f"{value:.2f}×"


def counts(cells: Sequence[MapCell]) -> str:
    """How many of the cells fell from their peak and how many ended below their base, in words."""
    falls = [cell.fall for cell in cells if cell.fall is not None]
    fell, below = sum(fall.fell for fall in falls), sum(fall.below_base and not fall.fell for fall in falls)
    return f"{fell} fell from their peak, {below} more ended below their base"
