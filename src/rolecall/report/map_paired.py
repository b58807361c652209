"""Comparisons of the cells of a matrix that differ in one axis alone, paired by seed. Plain numbers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from rolecall.report.map_data import Figure, MapCell, MapData, RoleFigures, at, mean_of

Measure = Callable[[MapCell], float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """Two settings that differ in one axis, `first` being the value that the matrix file lists first, and the cells of
    both that have ended, by seed."""

    setting: str
    first: str
    other: str
    cells: tuple[tuple[MapCell, MapCell], ...]

    def difference(self, measure: Measure) -> Figure:
        """Other minus first, mean over seeds in the interval of Student's t; one seed has no interval."""
        return mean_of(measure(other) - measure(first) for first, other in self.cells)

    def ratio(self, measure: Measure) -> Figure:
        """Other over first, the geometric mean over seeds, with the interval of Student's t of its logarithm."""
        return ratio_of((measure(other), measure(first)) for first, other in self.cells)


def pairs(data: MapData, axis: str) -> Iterator[Pair]:
    """For every setting of the other axes: each value of `axis` beside its first, where both have a seed."""
    if axis not in data.axes:
        return
    first, *others = data.axes[axis]
    rest = [name for name in data.axes if name != axis]
    groups: dict[str, dict[tuple[str, int], MapCell]] = {}
    for cell in data.ended:
        groups.setdefault(at(cell, rest), {})[cell.axes[axis], cell.seed] = cell
    for setting, cells in groups.items():
        for other in others:
            both = [(cells[first, s], cells[other, s]) for s in data.seeds if {(first, s), (other, s)} <= cells.keys()]
            if both:
                yield Pair(setting=setting, first=first, other=other, cells=tuple(both))


def ratio_of(values: Iterable[tuple[float, float]]) -> Figure:
    """The geometric mean of a / b over the pairs in which both are positive.

    >>> ratio_of([(2.0, 1.0), (8.0, 1.0)]).mean
    4.0
    """
    found = mean_of(math.log2(a / b) for a, b in values if 0.0 < a < math.inf and 0.0 < b < math.inf)
    return Figure(mean=2.0**found.mean, low=2.0**found.low, high=2.0**found.high)


def copied_over_others(cells: Sequence[MapCell], measure: Callable[[RoleFigures], float]) -> Figure:
    """A figure of the role with copies over the mean of the other roles of its cell; geometric mean over the cells."""
    found = []
    for cell in cells:
        copied = [measure(role) for role in cell.roles.values() if role.copies]
        others = [measure(role) for role in cell.roles.values() if not role.copies]
        if len(copied) == 1 and others:
            found.append((copied[0], statistics.fmean(others)))
    return ratio_of(found)


def role_measure(role: str, measure: Callable[[RoleFigures], float]) -> Measure:
    """The figure of one role of a cell; nan where the cell lacks the role."""
    return lambda cell: measure(cell.roles[role]) if role in cell.roles else math.nan


def heaviest(cell: MapCell) -> str | None:
    """The role that holds the most gradient mass of a policy that roles share, over the run; None without one."""
    masses = {name: role.mass for name, role in cell.roles.items() if math.isfinite(role.mass)}
    return max(masses, key=masses.__getitem__) if masses else None


def leaked(cell: MapCell) -> tuple[float, float]:
    """How much the share of the other roles' turns in the heaviest role's format, and of those that the classifier
    takes for its own, has risen: the largest over the others; nan where nothing is known."""
    mine = heaviest(cell)
    if mine is None:
        return math.nan, math.nan
    others = [role for name, role in cell.roles.items() if name != mine]
    formats = [role.formats[mine] for role in others if mine in role.formats]
    taken = [role.taken_for[mine] for role in others if mine in role.taken_for]
    return max(formats, default=math.nan), max(taken, default=math.nan)
