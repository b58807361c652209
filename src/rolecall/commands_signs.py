"""The command `rolecall signs`: what recorded runs say about early signs of a fall."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from rolecall.errors import UsageError, nearest


def register(app: typer.Typer) -> None:
    """Add `signs` to the command line."""
    app.command()(signs)


def signs(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Run folders, or folders with run folders in them")
    ],
    threshold: Annotated[
        list[str] | None, typer.Option("--threshold", help="Another threshold, as chi2=0.5; may be given several times")
    ] = None,
    patience: Annotated[
        int | None, typer.Option("--patience", min=1, help="Measurements in a row that make a warning [default: 2]")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON")] = False,
) -> None:
    """Say how often, and how many steps before, early signs warned of a fall of validation in recorded runs, and how
    often they warned in runs that did not fall."""
    from rolecall.dynamics.early_signs import PATIENCE, Table, judge
    from rolecall.report.read import read_run

    read = {path: read_run(path) for path in run_folders(runs)}
    broken = {str(path): why for path, run in read.items() if (why := unreadable(run))}
    found = [(path, Table.of_run(run)) for path, run in read.items() if str(path) not in broken]
    tables = [table for _, table in found]
    records = judge(tables, thresholds=thresholds(threshold or ()), patience=patience or PATIENCE)
    unwatched = [str(path) for path, table in found if not table.watched]
    if as_json:
        falls = {str(path): table.fall for path, table in found}
        told = {
            "runs": falls,
            "unwatched": unwatched,
            "unreadable": broken,
            "signs": [record.to_dict() for record in records],
        }
        typer.echo(json.dumps(told, indent=2))
        return
    fallen = [(path, table) for path, table in found if table.fall is not None]
    typer.echo(f"{len(found)} run{'s' if len(found) > 1 else ''}, {len(fallen)} of them with a fall of validation")
    for name, why in broken.items():
        typer.echo(f"left out, it cannot be read whole: {name}: {why}")
    if unwatched:
        typer.echo(f"{len(unwatched)} left out, with too few validations to show a fall: {', '.join(unwatched)}")
    for path, table in fallen:
        typer.echo(f"  {path.name}: seen at step {table.fall} of {table.last}")
    for record in records:
        has_not = "run does" if record.unmeasured == 1 else "runs do"
        missing = f" ({record.unmeasured} {has_not} not have it)" if record.unmeasured else ""
        typer.echo(f"{record.words}{missing}")


def thresholds(given: Sequence[str]) -> dict[str, float]:
    """`["chi2=0.5"]` as a table; `UsageError` for an unknown sign or something that is no number."""
    from rolecall.dynamics.early_signs import SIGNS

    known = [sign.name for sign in SIGNS]
    found: dict[str, float] = {}
    for text in given:
        name, _, value = text.partition("=")
        if name not in known:
            raise UsageError(f"--threshold {text!r}: there is no sign {name!r}{nearest(name, known)}")
        found[name] = _number(value)
        if not math.isfinite(found[name]):
            raise UsageError(f"--threshold {text!r}: {value!r} is no number; wanted {name}=0.5")
    return found


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def run_folders(paths: Sequence[Path]) -> list[Path]:
    """The run folders among `paths` and, where a path is none itself, all below it."""
    found: dict[Path, None] = {}
    for path in paths:
        inside = (
            [path] if is_run(path) else sorted(one.parent for one in path.rglob("config.toml") if is_run(one.parent))
        )
        if not inside:
            raise UsageError(f"{str(path)!r} is no run folder and holds none (config.toml with metrics/ beside it)")
        found |= dict.fromkeys(inside)
    return list(found)


def is_run(path: Path) -> bool:
    return (path / "config.toml").is_file() and (path / "metrics").is_dir()


def unreadable(run: Any) -> str:
    """Why the figures of a run that was read cannot be trusted, "" when they can: what is lost may be its fall."""
    return "; ".join(run.problems) or ("" if run.roles else "nothing says which roles it has")
