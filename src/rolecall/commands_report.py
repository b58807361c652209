"""The command `rolecall report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add `report` to the command line."""
    app.command()(report)


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="One or more run folders")],
    out: Annotated[
        Path | None,
        typer.Option("--out", help="The file to write [default: report.html in the run folder; comparison.html here]"),
    ] = None,
) -> None:
    """Make one self-contained HTML page of a run, or of several side by side."""
    from rolecall.report import write_comparison, write_report

    if out is None and len(runs) == 1:
        made = write_report(runs[0])
    else:
        made = write_comparison(runs, out or Path("comparison.html"))
    typer.echo(f"report: {made}")
