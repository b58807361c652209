"""The command `rolecall report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add `report` to the command line."""
    app.command()(report)


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders, or the folder of a matrix")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="The file to write [default: report.html in the run folder, map.html in that of a matrix; "
            "comparison.html here]",
        ),
    ] = None,
) -> None:
    """Make one self-contained HTML page of a run, of several side by side, or of a matrix (with map.csv, map.tex)."""
    from rolecall.errors import UsageError, boundary
    from rolecall.report import write_comparison, write_report
    from rolecall.report.map_data import INDEX

    if len(runs) == 1 and (runs[0] / INDEX).is_file():
        from rolecall.matrix.map import write_map

        with boundary(UsageError, f"reading the matrix {str(runs[0])!r}"):
            files = write_map(runs[0], out)
        for file in files:
            typer.echo(f"{file.name}: {file}")
        return
    if out is None and len(runs) == 1:
        made = write_report(runs[0])
    else:
        made = write_comparison(runs, out or Path("comparison.html"))
    typer.echo(f"report: {made}")
