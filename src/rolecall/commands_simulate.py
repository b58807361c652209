"""The command `rolecall simulate`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from rolecall.errors import UsageError, nearest

Overrides = Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE", help="Override a setting of the recipe")]


def register(app: typer.Typer) -> None:
    """Add `simulate` to the command line."""
    app.command()(simulate)


def simulate(
    recipe: Annotated[Path, typer.Argument(help="A TOML recipe with agentic groups, e.g. recipes/marsrl_tiny.toml")],
    costs: Annotated[Path, typer.Option("--costs", help="What each part costs: a TOML file, as in recipes/costs")],
    schedule: Annotated[
        list[str], typer.Option("--schedule", help="Only this one of the four; may be given again")
    ] = [],  # noqa: B006 - typer reads the default
    timeline: Annotated[Path | None, typer.Option("--timeline", help="Draw what happened into this SVG file")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, by schedule")] = False,
    overrides: Overrides = [],  # noqa: B006 - typer reads the default
) -> None:
    """Run a recipe's schedule on a simulated clock: makespan, idle shares, staleness, and the lower bound."""
    from rolecall.assemble import make_plan
    from rolecall.config import load_config
    from rolecall.pipeline.schedule import MODES
    from rolecall.simulation.compare import compare
    from rolecall.simulation.costs import load_costs
    from rolecall.simulation.picture import draw
    from rolecall.simulation.timeline import Timeline

    for name in schedule:
        if name not in MODES:
            raise UsageError(f"--schedule {name!r} is no schedule{nearest(name, MODES)}")
    if timeline is not None and not timeline.parent.is_dir():
        raise UsageError(f"--timeline {str(timeline)!r} cannot be written: its folder is not there; make it first")
    plan, priced = make_plan(load_config(recipe, overrides)), load_costs(costs)
    names = [name for name in MODES if not schedule or name in schedule]
    timelines: list[Timeline] = []

    def record(*given: Any) -> Timeline:
        timelines.append(Timeline(*given))
        return timelines[-1]

    found = compare(plan, priced, names, record if timeline is not None else None)
    if timeline is not None:
        title = f"{plan.config.name}: {priced.steps * plan.config.rollout.tasks_per_step} tasks, {parts(priced)}"
        write(timeline, draw(timelines, found.figures, title))
    if as_json:
        typer.echo(json.dumps(found.figures, indent=2))
        return
    work = found.work
    console = Console()
    console.print(table(found.figures))
    bound = next(iter(found.figures.values()))
    console.print(
        f"{priced.steps * plan.config.rollout.tasks_per_step} tasks, {sum(work.completions.values()):,} completions, "
        f"{sum(work.tokens.values()):,} tokens; {parts(priced)}; no schedule is quicker than "
        f"{bound['lower_bound_s']:,.1f} s ({bound['lower_bound']['part']})",
        highlight=False,
    )
    if timeline is not None:
        console.print(f"timeline: {timeline}", highlight=False, soft_wrap=True)


def parts(costs: Any) -> str:
    engines, learners = costs.engines.count, costs.learners.count
    words = f"{engines} engine{'s' * (engines > 1)} of {costs.engines.slots} slots"
    return f"{words}, {learners} learner{'s' * (learners > 1)}"


def table(figures: Mapping[str, Mapping[str, Any]]) -> Table:
    """A column a schedule."""
    made = Table(box=None, pad_edge=False)
    for column in ("", *figures):
        made.add_column(column, justify="left" if not column else "right")
    for name, show in ROWS:
        made.add_row(name, *[show(one) for one in figures.values()])
    return made


def steady(figures: Mapping[str, Any], key: str, form: str) -> str:
    middle = figures["steady"]
    return optional(middle[key], form) if middle is not None else "-"


def optional(value: float | None, form: str) -> str:
    return format(value, form) if value is not None else "-"


ROWS: Sequence[tuple[str, Any]] = (
    ("makespan, s", lambda one: f"{one['makespan_s']:,.1f}"),
    ("over the lower bound", lambda one: optional(one["over_bound"], ".3f")),
    ("over it, steady state", lambda one: steady(one, "over_bound", ".3f")),
    ("first update, s", lambda one: optional(one["first_update_s"], ",.1f")),
    ("updates", lambda one: f"{one['updates']:,}"),
    ("completions an update", lambda one: f"{one['completions_per_tick']:,.0f}"),
    ("tokens a second", lambda one: f"{one['tokens_per_s']:,.0f}"),
    ("engines idle", lambda one: f"{one['idle_share']['engines']:.1%}"),
    ("slots empty", lambda one: f"{one['empty_slots_share']:.1%}"),
    ("learners idle", lambda one: f"{one['idle_share']['learners']:.1%}"),
    ("graders idle", lambda one: f"{one['idle_share']['graders']:.1%}"),
    ("staleness, most", lambda one: f"{one['staleness_max']}"),
    ("staleness, mean", lambda one: f"{one['staleness_mean']:.2f}"),
)


def write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"--timeline {str(path)!r} cannot be written ({error.strerror}); name a file in a folder"
        ) from None
