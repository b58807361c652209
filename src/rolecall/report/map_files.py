"""The table of a map for other programs: CSV with every digit, LaTeX for a paper."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping

from rolecall.report.map_data import Figure, MapCell, MapData, by_setting, over_seeds

FIGURES = ("base", "peak", "last", "fall", "test_before", "test_after")
LATEX = {"\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"} | {
    char: f"\\{char}" for char in "&%$#_"
}


def map_csv(data: MapData) -> str:
    """One row a cell, controls too; an empty field where nothing is known."""
    head = ["cell", *data.axes, "seed", "control_of", "steps", "tokens", "peak_step", "cliff", "fell", "below_base"]
    for name in FIGURES:
        head += [name, f"{name}_low", f"{name}_high"]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*head, "missing"])
    for cell in data.cells:
        row = [cell.name, *[cell.axes.get(axis, "") for axis in data.axes], cell.seed, cell.control_of or ""]
        row += [cell.steps or "", cell.tokens or ""]
        row += _verdict(cell)
        for name in FIGURES:
            figure = figure_of(cell, name)
            row += [_number(value) for value in (figure.mean, figure.low, figure.high)]
        writer.writerow([*row, cell.missing])
    return text.getvalue()


def _verdict(cell: MapCell) -> list[int | str]:
    """Step of the peak and how the run ended, which a cell under way does not know yet."""
    if cell.fall is None:
        return [""] * 4
    if not cell.ended:
        return [cell.fall.peak_step, "", "", ""]
    return [cell.fall.peak_step, int(cell.fall.is_cliff), int(cell.fall.fell), int(cell.fall.below_base)]


def map_roles_csv(data: MapData) -> str:
    """One row a role of every team: what training did to it (`map_data.RoleFigures`)."""
    names = ("turns", "optimizer_steps", "update_norm", "kl_base", "mass", "lost")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    shares = ("formats", "taken_for")
    writer.writerow(["cell", *data.axes, "seed", "role", "policy", "copies", *names, *shares, "missing"])
    for cell in data.teams:
        for role, one in cell.roles.items():
            row = [cell.name, *[cell.axes.get(axis, "") for axis in data.axes], cell.seed, role, one.policy]
            row += [int(one.copies), *[_number(getattr(one, name)) for name in names]]
            row += [_shares(one.formats), _shares(one.taken_for), cell.missing]
            writer.writerow(row)
    return text.getvalue()


def _shares(by_role: Mapping[str, float]) -> str:
    return " ".join(f"{role}={_number(value)}" for role, value in by_role.items())


def figure_of(cell: MapCell, name: str) -> Figure:
    """One of `FIGURES` of a cell."""
    if name == "test_before":
        return cell.test[0]
    if name == "test_after":
        return cell.test[1]
    if cell.fall is None:
        return Figure()
    return {"base": cell.fall.base, "peak": cell.fall.peak, "last": cell.fall.last, "fall": cell.fall.fall}[name]


def map_tex(data: MapData) -> str:
    """A `tabular` (of the package booktabs) with a row a setting: means over seeds, in percent, with intervals; the
    share of seeds that ended on a cliff. Cells that have not come to their end count nowhere."""
    lines = [r"\begin{tabular}{lrrrrr}", r"\toprule", r"cell & base & peak & terminal & fall & cliffs \\", r"\midrule"]
    for name, cells in by_setting(data.teams).items():
        ended = [cell for cell in cells if cell.ended]
        falls = [cell.fall for cell in ended if cell.fall is not None]
        figures = [_percent(over_seeds([figure_of(cell, one) for cell in ended])) for one in FIGURES[:4]]
        cliffs = f"{sum(fall.is_cliff for fall in falls)}/{len(falls)}" if falls else "--"
        lines.append(" & ".join([_escape(name), *figures, cliffs]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _number(value: float) -> str:
    return repr(round(value, 6)) if math.isfinite(value) else ""


def _percent(figure: Figure) -> str:
    if not figure.known:
        return "--"
    span = f" [{100 * figure.low:.1f}, {100 * figure.high:.1f}]" if math.isfinite(figure.high) else ""
    return f"{100 * figure.mean:.1f}{span}"


def _escape(text: str) -> str:
    return "".join(LATEX.get(char, char) for char in text)
