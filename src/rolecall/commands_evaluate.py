"""`rolecall evaluate`: a checkpoint, or the reasoning system, on held-out tasks or on a file of tasks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from rolecall.errors import UsageError

Overrides = Annotated[
    list[str], typer.Option("--set", metavar="KEY=VALUE", help="Override a setting, e.g. --set sampling.top_p=0.95")
]
WHO = "a model (folder, hub id, builtin:tiny), a run folder[@best|last|base|STEP], MODEL@URL, or a TOML table {...}"


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(evaluate)


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run folder")],
    samples: Annotated[int, typer.Option("--samples", "-n", min=1, help="Episodes a task (the k of avg@k)")] = 1,
    k: Annotated[int | None, typer.Option("--k", min=1, help="k of pass@k and majority@k [default: all]")] = None,
    split: Annotated[str, typer.Option("--split", help="test or validation")] = "test",
    checkpoint: Annotated[str, typer.Option("--checkpoint", help="best, last, base or a step")] = "best",
    greedy: Annotated[bool, typer.Option("--greedy", help="Temperature 0, one episode a task")] = False,
    system: Annotated[
        bool, typer.Option("--system", help="The accept/reject loop, and the Solver alone on the same samples")
    ] = False,
    solver: Annotated[
        str | None, typer.Option("--solver", metavar="WHO", help=f"Who plays the solver instead: {WHO}")
    ] = None,
    roles: Annotated[
        list[str], typer.Option("--role", metavar="ROLE=WHO", help="The same for any role; may be given again")
    ] = [],  # noqa: B006 - typer reads the default
    api_key_env: Annotated[
        str | None, typer.Option("--api-key-env", metavar="NAME", help="The variable with the key for MODEL@URL")
    ] = None,
    tasks: Annotated[
        Path | None, typer.Option("--tasks", metavar="FILE.jsonl", help="Evaluate on this file instead of a split")
    ] = None,
    question: Annotated[
        str | None, typer.Option("--question", metavar="FIELD", help="Its field for the question [default: found]")
    ] = None,
    answer: Annotated[
        str | None, typer.Option("--answer", metavar="FIELD", help="Its field for the answer [default: found]")
    ] = None,
    answer_pattern: Annotated[
        str | None, typer.Option("--answer-pattern", help="The answer inside its field: a pattern with one group")
    ] = None,
    save: Annotated[
        str | None, typer.Option("--save", metavar="NAME", help="Keep episodes and figures as evaluations/NAME.*")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON")] = False,
    overrides: Overrides = [],  # noqa: B006 - typer reads the default
) -> None:
    """Evaluate a checkpoint of a run: the team and each role, avg@k, pass@k, majority@k with intervals."""
    from rolecall.evaluate_run import TaskFile, Wanted, evaluate_run

    named = {"--question": question, "--answer": answer, "--answer-pattern": answer_pattern}
    if tasks is None and (unread := [name for name, value in named.items() if value is not None]):
        raise UsageError(f"{unread[0]} is about a file of tasks; give one with --tasks FILE.jsonl")
    file = TaskFile(path=tasks, question=question, answer=answer, answer_pattern=answer_pattern) if tasks else None
    wanted = Wanted(
        samples=samples,
        k=k,
        split=split,
        tasks=file,
        checkpoint=checkpoint,
        greedy=greedy,
        system=system,
        roles=who_plays(solver, roles),
        api_key_env=api_key_env,
        save=save,
    )
    figures = evaluate_run(run, wanted, overrides=overrides)
    if as_json:
        typer.echo(json.dumps(figures, indent=2))
    else:
        print_evaluation(figures, Console())


def who_plays(solver: str | None, roles: Sequence[str]) -> dict[str, str]:
    """Who plays which role, from `--solver` and `--role`."""
    found = {} if solver is None else {"solver": solver}
    for item in roles:
        role, _, who = item.partition("=")
        if not role or not who:
            raise UsageError(f"--role {item!r} is not of the form ROLE=WHO, such as verifier=runs/other")
        if role in found:
            raise UsageError(f"--role {item!r} is the second to play the {role}; name one")
        found[role] = who
    return found


def print_evaluation(figures: Mapping[str, Any], console: Console) -> None:
    """The figures in a table, and what to know of them below."""
    console.print(f"{tasks_words(figures)}; {served_words(figures['served_by'])}", highlight=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    for column in ("figure", "mean and 95 % interval", "n"):
        table.add_column(column)
    rows = system_rows(figures) if "system" in figures else team_rows(figures)
    for role, rates in figures["roles"].items():
        rows += [(f"{role}: {name.replace('_', ' ')}", estimate) for name, estimate in rates.items()]
    for name, estimate in rows:
        if estimate:
            table.add_row(name, interval_words(estimate), str(estimate["n"]))
    console.print(table)
    if "system" in figures:
        console.print("\n".join(spent_words(figures)), highlight=False, soft_wrap=True)
    outcomes = ", ".join(f"{kind} {count}" for kind, count in figures["outcomes"].items() if count)
    console.print(f"outcomes: {outcomes}; grader failures: {figures['grader_failures']}", highlight=False)
    for note in notes(figures):
        console.print(note, highlight=False, markup=False, soft_wrap=True)


def tasks_words(figures: Mapping[str, Any]) -> str:
    """How many tasks, and where from."""
    tasks = figures["tasks"]
    return f"{tasks['number']} tasks of " + (tasks["file"] if "file" in tasks else f"the {figures['split']} split")


def served_words(served: Mapping[str, str]) -> str:
    """Who plays which role."""
    if len(set(served.values())) == 1:
        return f"every role: {next(iter(served.values()))}"
    return ", ".join(f"{role}: {who}" for role, who in served.items())


def team_rows(figures: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Rows of an evaluation of the workflow as it is."""
    rows = [(f"team, avg@{figures['samples']}", figures.get("team"))]
    rows += [(f"{name}@{figures['k']}", figures.get(f"{name}_at_k")) for name in ("pass", "majority")]
    rows += [("first answer alone", figures.get("first_answer")), ("team minus first answer", figures.get("margin"))]
    return rows


def system_rows(figures: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Rows of the reasoning system beside the Solver alone."""
    n, k = figures["samples"], figures["k"]
    rows: list[tuple[str, Any]] = []
    for side, name in (("solver", "Solver alone"), ("system", "System")):
        found = figures[side]
        rows += [(f"{name}, avg@{n}", found.get("avg"))]
        if k > 1:
            rows += [(f"{name}, {kind}@{k}", found.get(f"{kind}_at_k")) for kind in ("pass", "majority")]
    rows += [("System minus Solver", figures.get("difference"))]
    rows += [(f"{name} by the System", figures.get(name)) for name in ("gained", "lost")]
    rows += [(f"ends {end.replace('_', ' ')}", rate) for end, rate in figures["ends"].items() if rate["mean"]]
    rows += [(f"accuracy of {end} answers", rate) for end, rate in figures["accuracy_by_end"].items()]
    rows += [(f"first report: {name.replace('_', ' ')}", rate) for name, rate in figures["first_verdict"].items()]
    return rows


def spent_words(figures: Mapping[str, Any]) -> list[str]:
    """Tokens and rounds in words."""
    tokens, rounds = figures["tokens"], figures["rounds"]
    by_role = ", ".join(f"{role} {count:,}" for role, count in tokens["generated"].items() if role != "all")
    ratio = tokens["system_over_solver"]
    times = f", {ratio:.2f} times the Solver alone ({tokens['solver_alone']:,})" if ratio is not None else ""
    lines = [f"tokens generated: {tokens['generated']['all']:,} ({by_role}){times}"]
    calls = ", ".join(f"{role} {mean:.2f}" for role, mean in figures["calls_per_episode"].items())
    lines.append(f"reports an episode: {rounds['mean']:.2f}, at most {rounds['max']}; calls an episode: {calls}")
    if tokens["uncounted_replies"]:
        lines.append(f"{tokens['uncounted_replies']} replies came without a count of tokens and are not in these sums")
    return lines


def notes(figures: Mapping[str, Any]) -> list[str]:
    """What a reader must know before believing the figures."""
    found = []
    if figures["first_failure"]:
        failed = sum(figures["outcomes"].get(kind, 0) for kind in ("invalid", "error", "timeout"))
        found.append(f"{failed} episodes failed and count as wrong; the first at {figures['first_failure']}")
    if figures["outcomes"].get("timeout"):
        found.append("timeouts: raise --set rollout.episode_timeout_s=... (seconds an episode may take)")
    if repeated := figures["tasks"].get("in_training_split"):
        found.append(f"{repeated} of the tasks are in the run's training split: no held-out figure")
    for policy, counts in figures["requests"].items():
        if counts["retries"]:
            found.append(f"{policy}: {counts['retries']} of {counts['attempts']} requests were made again")
    return found


def interval_words(estimate: Mapping[str, float] | None) -> str:
    """`0.488 [0.444, 0.532]`, or a dash when there is no figure."""
    if not estimate:
        return "-"
    mean, low, high = (round(estimate[name], 3) + 0.0 for name in ("mean", "low", "high"))  # + 0.0: no "-0.000"
    return f"{mean:.3f} [{low:.3f}, {high:.3f}]"
