"""The command `rolecall matrix`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from rolecall.errors import UsageError


def register(app: typer.Typer) -> None:
    """Add `matrix` to the command line."""
    app.command()(matrix)


def matrix(
    file: Annotated[Path, typer.Argument(help="A matrix file, e.g. recipes/study/tiny_matrix.toml")],
    out: Annotated[
        Path | None, typer.Option("--out", help="The folder of its runs [default: runs/<name of the matrix>]")
    ] = None,
    only: Annotated[
        list[str], typer.Option("--only", metavar="TEXT", help="Only cells with this in their name; may be repeated")
    ] = [],  # noqa: B006 - typer reads the default
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, help="Cells side by side [default: limits.jobs of the file]")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the cells and their state, and stop")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --dry-run: as JSON")] = False,
) -> None:
    """Run every cell of a matrix that is not done; run it again after a kill, and it goes on. Exit code 1 says that
    something is missing."""
    from rolecall.matrix import MatrixFolder, load_matrix, missing_models, plan, run_matrix

    if as_json and not dry_run:
        raise UsageError("--json lists the cells of --dry-run; give both, or leave it out")
    found = load_matrix(file).only(tuple(only))
    if jobs is not None:
        found = found.with_jobs(jobs)
    folder = MatrixFolder(path=out or Path("runs") / found.name)
    if dry_run:
        listed = plan(found, folder)
        typer.echo(json.dumps(listed, indent=1)) if as_json else _print_plan(listed)
        for words in missing_models(found):
            typer.echo(f"before it can run: {words}", err=True)
        return
    again = f"run it again to go on: rolecall matrix {file} --out {folder.path}"
    try:
        course = run_matrix(found, folder, lambda words: typer.echo(words))
    except KeyboardInterrupt:
        typer.echo(f"interrupted; {again}", err=True)
        raise typer.Exit(130) from None
    for name, why in {**course.failed, **course.waits}.items():
        typer.echo(f"missing: {name}: {why}", err=True)
    ended, number = len(course.done) + len(course.skipped), len(course.failed) + len(course.waits)
    typer.echo(f"{ended} done ({len(course.skipped)} before), {number} missing")
    _make_page(folder.path)
    if not course.complete:
        typer.echo(again, err=True)
        raise typer.Exit(1)


def _print_plan(listed: list[Mapping[str, Any]]) -> None:
    width = max(len(one["name"]) for one in listed)
    for one in listed:
        budget = one.get("token_budget")
        until = f"{budget:,} tokens" if budget else f"{one['steps']} steps" if "steps" in one else "one evaluation"
        if budget is None and one.get("tokens_of"):
            until = f"as many tokens as {one['tokens_of']}"
        typer.echo(f"{one['name']:{width}}  {one['kind']:8}  {one['state']:10}  {until}")


def _make_page(path: Path) -> None:
    """The map of the matrix; what is measured does not depend on it."""
    from rolecall.errors import RolecallError, boundary
    from rolecall.matrix.map import write_map

    try:
        with boundary(RolecallError, "the map"):
            made = write_map(path)
    except RolecallError as error:
        typer.echo(f"{error}; make it again with: rolecall report {path}", err=True)
        return
    for file in made:
        typer.echo(f"{file.name}: {file}")
