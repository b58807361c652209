"""Equal compute: how many tokens a single agent may generate, and how many of its answers a team's tokens pay for."""

from __future__ import annotations

from rolecall.errors import UsageError
from rolecall.matrix.folder import MatrixFolder, read_json
from rolecall.matrix.spec import Cell
from rolecall.report.read import mapping


def token_budget(folder: MatrixFolder, cell: Cell) -> int | None:
    """The tokens that the cell of `tokens_of` has generated in training; None for a cell that is no control."""
    if cell.tokens_of is None:
        return None
    tokens = generated(folder, cell.tokens_of)
    if not tokens:
        raise UsageError(f"control {cell.name}: cell {cell.tokens_of} has generated no tokens; it needs a whole run")
    return tokens


def generated(folder: MatrixFolder, name: str) -> int | None:
    """The tokens that a cell's whole run has generated; None without one."""
    tokens = mapping(folder.summary(name).get("tokens")).get("generated")
    return tokens if isinstance(tokens, int) and tokens > 0 else None


def short_of_tokens(folder: MatrixFolder, name: str, team: str) -> str:
    """In words, why a control whose run has come to its end is none: its steps ended before the tokens of its team were
    generated. "" where it has as many, where the cliff guard stopped it, or where nothing is known."""
    summary, budget, own = folder.summary(name), generated(folder, team), generated(folder, name)
    if budget is None or own is None or own >= budget or mapping(summary.get("cliff")).get("stopped"):
        return ""
    return (
        f"ended after {summary.get('steps')} steps with {own:,} of the {budget:,} tokens of {team}: give the control's "
        "set more steps, and run the matrix again"
    )


def evaluation_name(team: str) -> str:
    """Under which name a control's run folder keeps its majority at a team's tokens."""
    return f"majority-of-{team}"


def num_answers(folder: MatrixFolder, control: str, team: str) -> int:
    """How many answers of the control the tokens of one of the team's test episodes pay for, at least one: the mean
    tokens of both after training, the whole part of their ratio."""
    one, many = (tokens_per_task(folder, name) for name in (control, team))
    return max(1, int(many / one)) if one > 0 else 1


def stands(folder: MatrixFolder, control: str, team: str) -> bool:
    """Whether the control's majority at a team's tokens is there, with the weights that are its best now and as many
    answers as the team's tokens pay for now: a run that has gone on puts it out of date."""
    found = read_json(folder.run(control) / "evaluations" / f"{evaluation_name(team)}.json") or {}
    step = str(found.get("checkpoint", "")).removeprefix("step-").partition(".")[0]
    best = folder.summary(control).get("best_step")
    return found.get("samples") == num_answers(folder, control, team) and step.isdecimal() and int(step) == best


def tokens_per_task(folder: MatrixFolder, name: str) -> float:
    """Mean tokens generated for a test task by the trained weights; 0.0 before there is such a test."""
    found = mapping((read_json(folder.run(name) / "evaluation_after.json") or {}).get("sampled"))
    tasks, tokens = mapping(found.get("team")).get("num_tasks"), found.get("tokens")
    return float(tokens) / tasks if isinstance(tasks, int) and isinstance(tokens, int) and tasks > 0 else 0.0
