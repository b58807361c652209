"""The command `rolecall view`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

DEFAULT_PORT = 8642


def register(app: typer.Typer) -> None:
    """Add `view` to the command line."""
    app.command(name="view")(view)


def view(
    runs: Annotated[Path, typer.Argument(help="A run folder, or a folder of runs")] = Path("runs"),
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0: any free port")] = DEFAULT_PORT,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Do not open a browser")] = False,
) -> None:
    """Look at runs in the browser: curves, steps, episodes; live while a run goes on. This machine only."""
    from rolecall.viewer.serve import serve

    serve(runs, port=port, browser=not no_browser, say=typer.echo)
