"""A matrix file: a recipe, axes of overrides, and the cells that their product makes.

    name = "tiny"
    base = "tiny.toml"
    seeds = [0, 1]

    [axes.workflow.Voting.workflow]
    name = "voting"
    [axes.sharing.IP]
    sharing = "isolated"
    [axes.sharing.SP]
    sharing = "shared"
    [axes.scale."0.8M".model]
    model = "builtin:tiny_workflows"

    [[where]]
    when = { workflow = "Voting", sharing = "IP" }
    set = { learner = { minibatches = 1 } }

Cells are named as in the workflow study, by the values of their axes: `Voting-IP-0.8M-Sums`.
"""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from rolecall.assemble import make_plan
from rolecall.config import RunConfig, Section, check_kinds, explain, make_config, overlay, read_recipe
from rolecall.errors import ConfigError, UsageError, nearest
from rolecall.report.map_data import INDEX

AXES = ("workflow", "sharing", "scale", "task", "algorithm", "arm")
"""In the order of a cell's name. `arm` is for whatever else differs, such as an intervention."""

OF_A_TEAM = ("workflow", "sharing", "arm")
"""Axes that a control, which has one agent, does not have."""

NAMED_WHEN_ONE = ("workflow", "sharing", "scale", "task")
"""Axes that stand in the name although they have one value, as in the study; others only where they have several."""

WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._]*(-[A-Za-z0-9._]+)*")
LONGEST_NAME = 100
"""Of a cell: a control's majority at a team's tokens has both names in that of its log."""

TAKEN = ("logs", INDEX, "map.html", "map.csv", "map_roles.csv", "map.tex")
"""What the folder of a matrix holds beside its cells."""

SET_BY_MATRIX = {"seed": "give it in seeds", "name": "a cell is named by its axes"}


class Where(Section):
    """Overrides for the cells whose axes have all the values in `when`."""

    when: dict[str, str]
    set: dict[str, Any]


class ControlConfig(Section):
    """Cells with one agent for each scale, task, algorithm and seed: each is trained until it has generated as many
    tokens as the cell that `tokens_of` names by its axes (those left out: the control's own, or the first value), and
    then answers with the `majority` of as many samples as the tokens of each team's episode pay for."""

    set: dict[str, Any]
    tokens_of: dict[str, str]
    majority: bool = True


class Limits(Section):
    """What the cells may take of the machine; `jobs` 0: as many as cores and memory allow."""

    jobs: int = Field(default=0, ge=0)
    cores_per_cell: int = Field(default=1, ge=1)
    memory_per_cell_gib: float = Field(default=1.5, gt=0, allow_inf_nan=False)
    min_free_gib: float = Field(default=0.5, ge=0, allow_inf_nan=False)


class MatrixConfig(Section):
    """A matrix file. `leave_out`: cells that have all the values of one of its tables are no part of it."""

    name: str
    base: str
    seeds: tuple[int, ...] = Field(default=(0,), min_length=1)
    axes: dict[str, dict[str, dict[str, Any]]]
    leave_out: tuple[dict[str, str], ...] = ()
    where: tuple[Where, ...] = ()
    controls: dict[str, ControlConfig] = Field(default_factory=dict)
    limits: Limits = Limits()


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One run of a matrix: a name, its values on the axes, the configuration. A control has the name of the cell whose
    tokens it may generate, and those of the `teams` against which its majority is measured."""

    name: str
    axes: Mapping[str, str]
    seed: int
    config: RunConfig
    tokens_of: str | None = None
    teams: tuple[str, ...] = ()

    @property
    def is_control(self) -> bool:
        return self.tokens_of is not None


@dataclass(frozen=True, kw_only=True, slots=True)
class Matrix:
    """All cells of a matrix file, controls last; `chosen` are those to run, None for all."""

    name: str
    file: Path
    axes: Mapping[str, tuple[str, ...]]
    seeds: tuple[int, ...]
    every: tuple[Cell, ...]
    limits: Limits
    chosen: frozenset[str] | None = None

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The cells to run."""
        return tuple(cell for cell in self.every if self.chosen is None or cell.name in self.chosen)

    def only(self, patterns: tuple[str, ...]) -> Matrix:
        """The matrix with the cells whose names hold one of `patterns`, and what their controls are measured by."""
        kept = {cell.name for cell in self.cells if not patterns or any(part in cell.name for part in patterns)}
        if not kept:
            raise UsageError(f"no cell of {self.file} has {' or '.join(patterns)} in its name; see --dry-run")
        needed = {cell.tokens_of for cell in self.cells if cell.name in kept and cell.tokens_of}
        return replace(self, chosen=frozenset(kept | needed))

    def with_jobs(self, jobs: int) -> Matrix:
        return replace(self, limits=self.limits.model_copy(update={"jobs": jobs}))


def load_matrix(path: Path) -> Matrix:
    """Read a matrix file and check every cell as `rolecall train --dry-run` would; `ConfigError` names the cell."""
    config = _read(path)
    axes = {axis: config.axes[axis] for axis in AXES if axis in config.axes}
    _check(config, path)
    teams = list(_teams(config, path, axes))
    if not teams:
        raise ConfigError(f"matrix {str(path)!r}: leave_out leaves no cell; take a table out of it")
    cells = list(teams)
    for name, control in config.controls.items():
        cells += _controls(config, path, axes, name, control, teams)
    _check_cells(config, cells, path)
    values = {axis: tuple(axes[axis]) for axis in axes}
    return Matrix(
        name=config.name, file=path, axes=values, seeds=config.seeds, every=tuple(cells), limits=config.limits
    )


def _read(path: Path) -> MatrixConfig:
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"matrix {str(path)!r} cannot be read ({error.strerror}); give a .toml file") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"matrix {str(path)!r} is not TOML: {error}") from None
    if "axes" not in data and {"workflow", "extends"} & data.keys():
        raise ConfigError(f"{str(path)!r} is a recipe and no matrix; train it with: rolecall train {path}")
    try:
        made = MatrixConfig.model_validate(data)
    except ValidationError as error:
        lines = [explain(item, MatrixConfig) for item in error.errors()]
        raise ConfigError(f"matrix {str(path)!r}: " + "; ".join(lines)) from None
    check_kinds(data, made, f"matrix {str(path)!r}")
    return made


def _check(config: MatrixConfig, path: Path) -> None:
    """Names of axes and values, wherever the file names them."""
    where = f"matrix {str(path)!r}"
    for axis, values in config.axes.items():
        if axis not in AXES:
            raise ConfigError(f"{where}: no axis is called {axis!r}{nearest(axis, AXES)}")
        if not values:
            raise ConfigError(f"{where}: axis {axis!r} has no values; name one, or leave the axis out")
    if "workflow" not in config.axes:
        raise ConfigError(f"{where} has no axis 'workflow'; give at least [axes.workflow.NAME]")
    if len(set(config.seeds)) != len(config.seeds):
        raise ConfigError(f"{where}: seeds are {list(config.seeds)}; wanted each once")
    words = [name for values in config.axes.values() for name in values] + list(config.controls)
    for word in words:
        if not WORD.fullmatch(word):
            raise ConfigError(f"{where}: {word!r} is no part of a cell's name; wanted letters, digits, dots and dashes")
    if not WORD.fullmatch(config.name) or len(config.name) > LONGEST_NAME:  # it is a folder under runs/
        raise ConfigError(
            f"{where}: name is {config.name[:80]!r}; wanted up to {LONGEST_NAME} letters, digits, dots and dashes"
        )
    for name in config.controls:
        if name in config.axes["workflow"]:
            raise ConfigError(f"{where}: {name!r} is a control and a value of axis 'workflow'; rename one of them")
    _check_overrides(config, where)
    named = [*config.leave_out, *[one.when for one in config.where]] + [
        control.tokens_of for control in config.controls.values()
    ]
    for table in named:
        for axis, value in table.items():
            if axis not in config.axes:
                raise ConfigError(f"{where} names the axis {axis!r}, which it lacks{nearest(axis, config.axes)}")
            if value not in config.axes[axis]:
                raise ConfigError(f"{where}: axis {axis!r} has no {value!r}{nearest(value, config.axes[axis])}")


def _check_overrides(config: MatrixConfig, where: str) -> None:
    """Settings of a cell that the matrix decides, and so would not read."""
    tables = {f"axes.{axis}.{name}": table for axis, values in config.axes.items() for name, table in values.items()}
    tables |= {f"where.{number}.set": one.set for number, one in enumerate(config.where)}
    tables |= {f"controls.{name}.set": control.set for name, control in config.controls.items()}
    for name, table in tables.items():
        own = {"token_budget": "it is that of tokens_of"} if name.startswith("controls.") else {}
        for key, move in (SET_BY_MATRIX | own).items():
            if key in table:
                raise ConfigError(f"{where}: {name} sets {key!r}, which nothing reads: {move}; leave it out")


def _check_cells(config: MatrixConfig, cells: Sequence[Cell], path: Path) -> None:
    """Names that can be folders beside each other, overrides that meet a cell, controls that can be measured."""
    where = f"matrix {str(path)!r}"
    found: set[str] = set()
    for cell in cells:
        if len(cell.name) > LONGEST_NAME:
            raise ConfigError(
                f"{where}: cell {cell.name[:80]}... has {len(cell.name)} letters; wanted at most {LONGEST_NAME}"
            )
        if cell.name.casefold() in TAKEN:
            raise ConfigError(
                f"{where}: a cell cannot be called {cell.name!r}, as a file of the matrix; rename a value"
            )
        if cell.name.casefold() in found:  # some file systems do not tell case
            raise ConfigError(f"{where} has two cells called {cell.name!r}; rename a value")
        found.add(cell.name.casefold())
        if cell.teams and not cell.config.tasks.sizes.test:
            raise ConfigError(
                f"{where}: control {cell.name} has no test tasks to answer by majority; set tasks.sizes.test above 0, "
                "or majority = false"
            )
    for one in config.where:
        if not any(one.when.items() <= cell.axes.items() for cell in cells):
            raise ConfigError(f"{where}: no cell has all of where's {one.when}; leave that override out")


def _teams(config: MatrixConfig, path: Path, axes: Mapping[str, Mapping[str, Any]]) -> Iterator[Cell]:
    for seed in config.seeds:  # by seed, so that a partial map compares
        for values in itertools.product(*axes.values()):
            at = dict(zip(axes, values, strict=True))
            if any(table.items() <= at.items() for table in config.leave_out):
                continue
            name = _name(config, at, seed)
            yield Cell(name=name, axes=at, seed=seed, config=_resolve(config, path, at, name, seed))


def _controls(
    config: MatrixConfig,
    path: Path,
    axes: Mapping[str, Mapping[str, Any]],
    control_name: str,
    control: ControlConfig,
    teams: list[Cell],
) -> Iterator[Cell]:
    own = {axis: values for axis, values in axes.items() if axis not in OF_A_TEAM}
    for seed in config.seeds:
        for values in itertools.product(*own.values()):
            at = dict(zip(own, values, strict=True))
            name = _name(config, {"workflow": control_name, **at}, seed)
            first = {axis: next(iter(axes[axis])) for axis in axes}
            reference = _name(config, {**first, **at, **control.tokens_of}, seed)
            if reference not in {team.name for team in teams}:
                raise ConfigError(
                    f"matrix {str(path)!r}: control {name} is to have the tokens of {reference}, which is left out; "
                    "name another cell in tokens_of"
                )
            beside = tuple(t.name for t in teams if t.seed == seed and at.items() <= t.axes.items())
            yield Cell(
                name=name,
                axes={"workflow": control_name, **at},
                seed=seed,
                config=_resolve(config, path, at, name, seed, control.set),
                tokens_of=reference,
                teams=beside if control.majority else (),
            )


def _name(config: MatrixConfig, at: Mapping[str, str], seed: int) -> str:
    parts = [at[a] for a in AXES if a in at and (a in NAMED_WHEN_ONE or len(config.axes[a]) > 1)]
    return "-".join([*parts, *([f"s{seed}"] if len(config.seeds) > 1 else [])])


def _resolve(
    config: MatrixConfig,
    path: Path,
    at: Mapping[str, str],
    name: str,
    seed: int,
    last: Mapping[str, Any] | None = None,
) -> RunConfig:
    """The base recipe under the overrides of each axis in turn, then `where`, then a control's own."""
    data = read_recipe(path.parent / config.base)
    for axis in AXES:
        if axis in at:
            data = overlay(data, _overrides(config.axes[axis][at[axis]], path.parent))
    for one in config.where:
        if one.when.items() <= at.items():
            data = overlay(data, one.set)
    data = overlay(data, {**(last or {}), "name": name, "seed": seed})
    found = make_config(data, source=f"matrix {str(path)!r}, cell {name}")
    try:
        make_plan(found)
    except ConfigError as error:
        raise ConfigError(f"matrix {str(path)!r}, cell {name}: {error}") from None
    return found


def _overrides(table: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
    """A value's overrides; `extends` names a recipe to read first, as in a recipe."""
    if "extends" not in table:
        return table
    rest = {key: value for key, value in table.items() if key != "extends"}
    return overlay(read_recipe(folder / str(table["extends"])), rest)
