"""The commands on tasks, `rolecall decontaminate` and `rolecall difficulty`: both write ids for `[tasks] only`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command()(decontaminate)
    app.command()(difficulty)


Out = Annotated[Path | None, typer.Option("--out", help="Write the ids that are kept and the report to this JSON file")]


def decontaminate(
    recipe: Annotated[Path, typer.Argument(help="A recipe; its [tasks] are read")],
    against: Annotated[
        list[Path], typer.Option("--against", metavar="FILE.jsonl", help="More evaluation sets; may be given again")
    ] = [],  # noqa: B006 - typer reads the default
    n: Annotated[int, typer.Option("--n", min=1, help="Words in a row that make an overlap")] = 13,
    overrides: Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the recipe")] = [],  # noqa: B006
    out: Out = None,
) -> None:
    """Find training tasks that share words in a row with the validation set, the test set or other files."""
    from rolecall.assemble import make_tasks
    from rolecall.config import load_config
    from rolecall.tasks.decontaminate import decontaminate as search
    from rolecall.tasks.evaluation_file import evaluation_tasks

    splits = make_tasks(load_config(recipe, overrides))
    sets = {"validation": splits.validation.tasks, "test": splits.test.tasks}
    sets |= {path.name: evaluation_tasks(path).tasks for path in against}
    found = search(splits.train, sets, n=n)
    _finish({"ids": [task.id for task in found.kept], **found.report()}, out)


def difficulty(
    episodes: Annotated[Path, typer.Argument(help="A run folder, or a file evaluations/NAME.parquet of one")],
    k: Annotated[int, typer.Option("--k", min=2, help="Graded tries that a task must have")] = 4,
    low: Annotated[float, typer.Option("--low", help="Keep tasks solved more often than this share of tries")] = 0.0,
    high: Annotated[float, typer.Option("--high", help="Keep tasks solved less often than this share of tries")] = 1.0,
    out: Out = None,
) -> None:
    """Keep the tasks that the policy of some episodes solves sometimes: 0 < pass@k < 1."""
    from rolecall.tasks.difficulty import filter_by_difficulty, tries_of_run

    tries = tries_of_run(episodes)
    found = filter_by_difficulty(tries, tries, k=k, low=low, high=high)
    _finish({"ids": list(found.kept), "k": k, "low": low, "high": high, **found.report()}, out)


def _finish(report: dict[str, Any], out: Path | None) -> None:
    shown = {name: value for name, value in report.items() if name != "ids"}
    typer.echo(json.dumps(shown, indent=2, ensure_ascii=False))
    if out is not None:
        out.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        typer.echo(f"{len(report['ids'])} ids: {out}")
