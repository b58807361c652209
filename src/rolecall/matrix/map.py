"""From the folder of a matrix to its map: what every cell came to, as a page, a CSV and a LaTeX table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rolecall.dynamics.cliff import Cliff, Measured, curve_of, find_cliff, smoothed
from rolecall.dynamics.early_signs import Table, judge
from rolecall.errors import UsageError
from rolecall.files import write_aside
from rolecall.matrix.controls import evaluation_name, short_of_tokens
from rolecall.matrix.folder import MatrixFolder, read_json
from rolecall.matrix.map_roles import role_figures
from rolecall.report.map_data import INDEX, Fall, Figure, MapCell, MapData
from rolecall.report.map_files import map_csv, map_roles_csv, map_tex
from rolecall.report.map_page import map_page
from rolecall.report.read import RunData, Series, mapping, number_of, read_run
from rolecall.report.text import number

PAGE = "map.html"


def write_map(path: Path, out: Path | None = None) -> list[Path]:
    """Write the page (at `out`, or map.html in the folder) and, beside it, map.csv, map_roles.csv and map.tex; return
    the four."""
    data = read_map(path)
    page = out or path / PAGE
    texts = {
        page: map_page(data),
        page.with_name("map.csv"): map_csv(data),
        page.with_name("map_roles.csv"): map_roles_csv(data),
        page.with_name("map.tex"): map_tex(data),
    }
    for target, text in texts.items():
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            _write(target, text)
        except OSError as error:
            raise UsageError(f"{str(target)!r} cannot be written ({error.strerror}); choose another --out") from None
    return list(texts)


def _write(target: Path, text: str) -> None:
    write_aside(target, "matrix", lambda path: path.write_text(text, encoding="utf-8", errors="replace"))


def read_map(path: Path) -> MapData:
    """The cells that `matrix.json` lists, each with what its run folder holds."""
    index = read_json(path / INDEX)
    if index is None or not isinstance(index.get("cells"), list):
        raise UsageError(f"{str(path)!r} is no matrix (no readable {INDEX} in it); give the folder of rolecall matrix")
    folder = MatrixFolder(path=path)
    failures = mapping(index.get("failures"))
    seeds = tuple(index.get("seeds", ()))
    runs = {name: _read(folder.run(name)) for name in _begun(folder, index["cells"])}
    cells = tuple(
        _cell(folder, mapping(row), failures, runs.get(str(row["name"])), seeded=len(seeds) > 1)
        for row in index["cells"]
    )
    ended = [runs[cell.name] for cell in cells if cell.ended and cell.control_of is None]
    tables = [Table.of_run(run) for run in ended if isinstance(run, RunData)]
    return MapData(
        name=str(index.get("name", path.name)),
        axes={str(axis): tuple(values) for axis, values in mapping(index.get("axes")).items()},
        seeds=seeds,
        cells=cells,
        signs=tuple(f"{record.what}: {record.words}" for record in judge(tables)) if tables else (),
    )


def _begun(folder: MatrixFolder, rows: Iterable[Mapping[str, Any]]) -> list[str]:
    return [name for name in (str(row["name"]) for row in rows) if (folder.run(name) / "config.toml").is_file()]


def _read(path: Path) -> RunData | str:
    """A cell's run, or in words why it cannot be read."""
    try:
        return read_run(path)
    except UsageError as error:
        return str(error)


def _cell(
    folder: MatrixFolder,
    row: Mapping[str, Any],
    failures: Mapping[str, Any],
    run: RunData | str | None,
    *,
    seeded: bool,
) -> MapCell:
    """One cell; `run` is None when it has no run folder, and words when that cannot be read."""
    name = str(row["name"])
    given: dict[str, Any] = {
        "name": name,
        "axes": dict(row["axes"]),
        "seed": int(row["seed"]),
        "control_of": row.get("tokens_of"),
        "seeded": seeded,
    }
    if not isinstance(run, RunData):
        return MapCell(missing=_words(mapping(failures.get(name)), run or "not begun"), **given)
    steps = max(run.steps, default=0)
    missing = ""
    if not run.finished:
        missing = _words(mapping(failures.get(name)), f"unfinished: step {steps} of {run.config.get('steps', '?')}")
    elif team := row.get("tokens_of"):
        missing = short_of_tokens(folder, name, str(team))
    teams = row.get("teams", ())
    majorities = dict(_majorities(folder, name, teams))
    return MapCell(
        missing=missing,
        fall=_fall(run),
        validation=(
            run.series("validation/team"),
            run.series("validation/team_low"),
            run.series("validation/team_high"),
        ),
        gradients=dict(_by_role(run, "dynamics/{}/grad_norm")),
        masses=dict(_by_role(run, "dynamics/{}/mass_share")) if len(run.policies) == 1 and len(run.roles) > 1 else {},
        roles=role_figures(run),
        test=(_figure(run.sampled("before").get("team")), _figure(run.sampled("after").get("team"))),
        tokens=int(number_of(mapping(run.summary.get("tokens")).get("generated")) or 0),
        steps=steps,
        majorities=majorities,
        no_majority={
            team: _words(mapping(failures.get(f"{name}.{evaluation_name(team)}")), "not measured yet")
            for team in map(str, teams)
            if team not in majorities
        },
        **given,
    )


def _words(failed: Mapping[str, Any], otherwise: str) -> str:
    """Why a cell is missing."""
    if not failed:
        return otherwise
    times = f", {failed['times']} times" if failed.get("times", 1) > 1 else ""
    return f"failed{times} (exit code {failed.get('exit_code')}): {failed.get('reason')}; its log: {failed.get('log')}"


def _by_role(run: RunData, key: str) -> Iterator[tuple[str, Series]]:
    for role in run.roles:
        if series := run.series(key.format(role)):
            yield role, series


def _fall(run: RunData) -> Fall | None:
    """Peak, terminal and fall of the run's validations; None before there are enough."""
    curve = [one for one in curve_of(run.rows()) if math.isfinite(one.mean)]
    found = find_cliff(curve)
    return None if found is None else _with_intervals(found, curve)


def _with_intervals(found: Cliff, curve: list[Measured]) -> Fall:
    line = smoothed(curve)
    peak = next(one for one in line if one.step == found.peak_step)
    return Fall(
        base=_measured(curve[0]) if curve[0].step == 0 else Figure(),
        peak=_measured(peak),
        peak_step=found.peak_step,
        last=_measured(line[-1]),
        fall=Figure(mean=found.fall, low=found.fall - found.width, high=found.fall + found.width),
        fell=found.fell,
        below_base=found.below_base,
    )


def _measured(one: Measured) -> Figure:
    return Figure(mean=one.mean, low=one.low, high=one.high)


def _figure(estimate: Any) -> Figure:
    found = mapping(estimate)
    return Figure(**{name: number(found.get(name)) for name in ("mean", "low", "high")})


def _majorities(folder: MatrixFolder, name: str, teams: Any) -> Iterator[tuple[str, tuple[Figure, int]]]:
    for team in teams:
        found = read_json(folder.run(name) / "evaluations" / f"{evaluation_name(team)}.json")
        if found is not None:
            yield team, (_figure(found.get("majority_at_k")), int(number_of(found.get("samples")) or 0))
