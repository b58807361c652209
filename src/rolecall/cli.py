"""The command line: `rolecall train`, and the commands of the files beside it. A user's mistake is exit code 2."""

from __future__ import annotations

import io
import signal
import sys
from importlib import metadata
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from rolecall import (
    commands_debug,
    commands_evaluate,
    commands_matrix,
    commands_report,
    commands_signs,
    commands_simulate,
    commands_tasks,
    commands_view,
)
from rolecall.commands_evaluate import interval_words
from rolecall.errors import BlockedLoop, RolecallError, UsageError
from rolecall.rollout.watchdog import EXIT_BLOCKED

EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130

SUMMARY_ROWS = (
    ("team", "team"),
    ("first answer alone", "first_answer"),
    ("team minus first answer", "margin"),
)
QUIET_ROWS = ("truncated", "unparsed")
"""Rates that are shown only when something is wrong."""

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Train the roles of multi-agent LLM workflows with reinforcement learning.",
)

Overrides = Annotated[
    list[str], typer.Option("--set", metavar="KEY=VALUE", help="Override a setting, e.g. --set learner.lr=1e-4")
]


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rolecall {metadata.version('rolecall')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and stop")
    ] = False,
) -> None:
    """Train the roles of multi-agent LLM workflows with reinforcement learning."""


@app.command()
def train(
    recipe: Annotated[
        Path | None, typer.Argument(help="A TOML recipe; not needed with --resume", show_default=False)
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option("--run", help="The run folder [default: runs/<name>, the recipe's own name or its file's]"),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the run folder's last checkpoint")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a run that is in the folder")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the resolved run and stop")] = False,
    keep_inflight: Annotated[
        bool, typer.Option("--keep-inflight", help="Record calls as they come; a resumed run goes on with them")
    ] = False,
    overrides: Overrides = [],  # noqa: B006 - typer reads the default
) -> None:
    """Train as a recipe says, in a run folder; writes summary.json there."""
    from rolecall.config import load_config

    if keep_inflight:
        overrides = [*overrides, "checkpoint.keep_inflight=true"]
    if resume and overwrite:
        raise UsageError("--resume goes on with a run and --overwrite replaces it; give one of them")
    if resume:
        config, folder = _resumed(recipe, run, overrides)
    else:
        if recipe is None:
            raise UsageError("no recipe given; name one, e.g. rolecall train recipes/demo.toml")
        config = load_config(recipe, overrides)
        folder = run or Path("runs") / config.name
    if dry_run:
        from rolecall.assemble import make_plan
        from rolecall.dry_run import describe, describe_tasks

        typer.echo(describe(make_plan(config)))
        typer.echo(describe_tasks(config))
        return
    from rolecall.progress import make_progress
    from rolecall.train import train as train_run

    progress = make_progress(config.steps, _role_names(config))
    try:
        summary = train_run(config, folder, progress, resume=resume, overwrite=overwrite)
    except KeyboardInterrupt:
        typer.echo(f"interrupted; go on with: rolecall train --resume --run {folder}", err=True)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    finally:
        progress.close()
    _print_summary(summary, folder)


def _resumed(recipe: Path | None, run: Path | None, overrides: list[str]) -> tuple[Any, Path]:
    """The configuration of an earlier run, with overrides; a recipe given too must say the same."""
    from rolecall.config import apply_overrides, load_config, make_config, read_recipe
    from rolecall.run_folder import RunFolder

    folder = run
    if folder is None:
        if recipe is None:
            raise UsageError("--resume needs the run folder: rolecall train --resume --run runs/demo")
        folder = Path("runs") / load_config(recipe, overrides).name
    saved = RunFolder.open(folder).path / "config.toml"
    config = make_config(apply_overrides(read_recipe(saved), overrides), source=str(saved))
    if recipe is not None:
        from rolecall.assemble import config_fingerprint

        if config_fingerprint(load_config(recipe, overrides)) != config_fingerprint(config):
            raise UsageError(
                f"recipe {str(recipe)!r} says something else than the run in {str(folder)!r}; resume with "
                f"rolecall train --resume --run {folder}, or start a new run in another folder"
            )
    return config, folder


def _role_names(config: Any) -> tuple[str, ...]:
    from rolecall.assemble import make_plan

    return make_plan(config).roles


def _print_summary(summary: dict[str, Any], folder: Path) -> None:
    """Before and after, in a table; the whole is in summary.json."""
    console = Console()
    before, after = summary["evaluation"]["before"], summary["evaluation"]["after"]
    table = Table(box=None, pad_edge=False)
    for column in ("held-out tasks", "before", f"after (step {summary['best_step']})"):
        table.add_column(column)
    if "sampled" in before and "sampled" in after:
        for name, key in SUMMARY_ROWS:
            table.add_row(name, interval_words(before["sampled"].get(key)), interval_words(after["sampled"].get(key)))
        if "greedy" in before:
            greedy = [interval_words(side["greedy"].get("team")) for side in (before, after)]
            table.add_row("team, greedy", *greedy)
        for role, figures in after["sampled"]["roles"].items():
            for name, estimate in figures.items():
                earlier = before["sampled"]["roles"].get(role, {}).get(name)
                if name in QUIET_ROWS and not estimate["mean"] and not (earlier or {}).get("mean"):
                    continue
                table.add_row(f"{role}: {name.replace('_', ' ')}", interval_words(earlier), interval_words(estimate))
        console.print(table)
    tokens = summary["tokens"]
    console.print(
        f"{summary['steps']} steps in {summary['wall_s']:.0f} s, {tokens['generated']:,} tokens generated "
        f"({summary['tokens_per_s']:,.0f} a second), {tokens['trained']:,} trained; engine and learner "
        f"log-probabilities differ by at most {summary['parity']['max_abs_diff']:.1e}",
        highlight=False,
    )
    for name in ("summary.json", "report.html"):
        console.print(f"{name.partition('.')[0]}: {folder / name}", highlight=False, soft_wrap=True)


commands_debug.register(app)
commands_evaluate.register(app)
commands_matrix.register(app)
commands_report.register(app)
commands_signs.register(app)
commands_simulate.register(app)
commands_tasks.register(app)
commands_view.register(app)


def main() -> None:
    """Entry point: errors that rolecall names become one message; everything else keeps its traceback."""
    signal.signal(signal.SIGTERM, _interrupt)
    for stream in (sys.stdout, sys.stderr):
        forgive(stream)
    try:
        app()
    except BlockedLoop as error:
        _complain(error)
        sys.exit(EXIT_BLOCKED)
    except UsageError as error:
        _complain(error)
        sys.exit(EXIT_USAGE)
    except RolecallError as error:
        _complain(error)
        sys.exit(EXIT_FAILED)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


def forgive(stream: object) -> None:
    """A terminal that lacks a letter shows "?" for it, and never ends a run."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="replace")


def _interrupt(number: int, frame: FrameType | None) -> None:
    """A polite kill does what Ctrl-C does; a second one ends the process at once."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a job in the background of a script
        raise KeyboardInterrupt
    signal.raise_signal(signal.SIGINT)


def _complain(error: Exception) -> None:
    print(f"rolecall: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
