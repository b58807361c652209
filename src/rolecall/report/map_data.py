"""What the map of a matrix shows, as plain data: filled by whoever knows the cells, drawn by `map_page.py`."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rolecall.intervals import student_half_width
from rolecall.report.read import Series

INDEX = "matrix.json"
"""The file that makes a folder that of a matrix: its cells, and which of them failed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """A share in its 95 % interval; nan where there is none.

    >>> Figure(mean=0.5, low=0.4, high=0.6).known
    True
    """

    mean: float = math.nan
    low: float = math.nan
    high: float = math.nan

    @property
    def known(self) -> bool:
        return math.isfinite(self.mean)


@dataclass(frozen=True, kw_only=True, slots=True)
class Fall:
    """Base, peak and terminal accuracy on the validation tasks, and whether the run went over a cliff, as
    `dynamics.cliff` defines them. `peak` and `last` are smoothed; `fall` is peak minus last, in the interval of the
    difference."""

    base: Figure
    peak: Figure
    peak_step: int
    last: Figure
    fall: Figure
    fell: bool
    below_base: bool

    @property
    def is_cliff(self) -> bool:
        return self.fell or self.below_base


@dataclass(frozen=True, kw_only=True, slots=True)
class RoleFigures:
    """What a run did to one role; nan where it was not measured.

    `copies`: whether it was called several times side by side; `alone`: whether its policy is its own; `turns`: its
    turns an episode, over all of the run.
    `optimizer_steps` and `update_norm`: the sums over the run. `kl_base`: KL to the policy before training, the mean
    of the last quarter of the run. `mass`: mean over the steps of its share of the shared policy's gradient mass.
    `lost`: how much less often the classifier of roles knows its turns than at the start. `formats`, `taken_for`: by
    other role, how much the share of its turns in that role's format, or taken for that role's, has risen since the
    start. Starts are the mean of the first three measurements, ends that of the last quarter.
    """

    policy: str
    copies: bool
    turns: float = math.nan
    optimizer_steps: float = math.nan
    update_norm: float = math.nan
    kl_base: float = math.nan
    mass: float = math.nan
    lost: float = math.nan
    formats: Mapping[str, float] = field(default_factory=dict)
    taken_for: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class MapCell:
    """One cell. `seeded`: whether its name ends with its seed. `missing` says in words why it has not come to its end
    ("" when it has); a cell that is under way shows what it has. `majorities`: of a control, accuracy of its majority
    at the tokens of a team, and its answers a task; `no_majority`: by team, why there is none.
    """

    name: str
    axes: Mapping[str, str]
    seed: int
    seeded: bool = False
    missing: str = ""
    control_of: str | None = None
    fall: Fall | None = None
    validation: tuple[Series, Series, Series] = (Series(), Series(), Series())
    gradients: Mapping[str, Series] = field(default_factory=dict)
    masses: Mapping[str, Series] = field(default_factory=dict)
    roles: Mapping[str, RoleFigures] = field(default_factory=dict)
    test: tuple[Figure, Figure] = (Figure(), Figure())
    tokens: int = 0
    steps: int = 0
    majorities: Mapping[str, tuple[Figure, int]] = field(default_factory=dict)
    no_majority: Mapping[str, str] = field(default_factory=dict)

    @property
    def setting(self) -> str:
        """The name without the seed."""
        return self.name.removesuffix(f"-s{self.seed}") if self.seeded else self.name

    @property
    def ended(self) -> bool:
        """Whether it has come to its end, so that its last validation is its terminal one."""
        return not self.missing and self.fall is not None

    @property
    def learned(self) -> bool:
        """Whether the intervals of the test set before training and of the best checkpoint do not meet."""
        before, after = self.test
        return after.low > before.high


@dataclass(frozen=True, kw_only=True, slots=True)
class MapData:
    """A matrix with what its cells have come to."""

    name: str
    axes: Mapping[str, tuple[str, ...]]
    seeds: tuple[int, ...]
    cells: tuple[MapCell, ...]
    signs: tuple[str, ...] = ()  # what its runs say about early signs of a fall, in words

    @property
    def teams(self) -> list[MapCell]:
        return [cell for cell in self.cells if cell.control_of is None]

    @property
    def controls(self) -> list[MapCell]:
        return [cell for cell in self.cells if cell.control_of is not None]

    @property
    def ended(self) -> list[MapCell]:
        """The teams that have come to their end: what is counted and averaged."""
        return [cell for cell in self.teams if cell.ended]

    @property
    def missing(self) -> list[MapCell]:
        return [cell for cell in self.cells if cell.missing]


def by_setting(cells: Sequence[MapCell]) -> dict[str, list[MapCell]]:
    """Cells that differ in their seed alone, by the name without it."""
    groups: dict[str, list[MapCell]] = {}
    for cell in cells:
        groups.setdefault(cell.setting, []).append(cell)
    return groups


def at(cell: MapCell, axes: Sequence[str]) -> str:
    """The values of the cell on these axes, as a part of a name; "all" without axes."""
    return "-".join(cell.axes[axis] for axis in axes) or "all"


def over_seeds(figures: Sequence[Figure]) -> Figure:
    """One figure of several seeds: their mean with the 95 % interval of Student's t over seeds; of one seed: its own.

    >>> found = over_seeds([Figure(mean=0.4), Figure(mean=0.6)])
    >>> round(found.mean, 3), round(found.high - found.mean, 4)
    (0.5, 1.2706)
    """
    known = [one for one in figures if one.known]
    return known[0] if len(known) == 1 else mean_of(one.mean for one in known)


def mean_of(values: Iterable[float]) -> Figure:
    """The mean of the finite values, in the interval of Student's t where there are two or more.

    >>> found = mean_of([0.4, 0.6])
    >>> round(found.mean, 2), round(found.high - found.mean, 4)
    (0.5, 1.2706)
    """
    known = [value for value in values if math.isfinite(value)]
    if not known:
        return Figure()
    mean = statistics.fmean(known)
    if len(known) == 1:
        return Figure(mean=mean)
    half = student_half_width(known)
    return Figure(mean=mean, low=mean - half, high=mean + half)
