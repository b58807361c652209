"""Equal compute: how many tokens a single agent may generate, and how many of its answers a team's tokens pay for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rolecall.errors import UsageError
from rolecall.matrix.folder import MatrixFolder, read_json
from rolecall.matrix.spec import Cell


def token_budget(folder: MatrixFolder, cell: Cell) -> int | None:
    """The tokens that the cell of `tokens_of` has generated in training; None for a cell that is no control."""
    if cell.tokens_of is None:
        return None
    tokens = folder.summary(cell.tokens_of).get("tokens", {}).get("generated")
    if not isinstance(tokens, int) or tokens < 1:
        raise UsageError(f"control {cell.name}: cell {cell.tokens_of} has generated no tokens; it needs a whole run")
    return tokens


def evaluation_name(team: str) -> str:
    """Under which name a control's run folder keeps its majority at a team's tokens."""
    return f"majority-of-{team}"


def num_answers(folder: MatrixFolder, control: str, team: str) -> int:
    """How many answers of the control the tokens of one of the team's test episodes pay for, at least one: the mean
    tokens of both after training, the whole part of their ratio."""
    one, many = (tokens_per_task(folder, name) for name in (control, team))
    return max(1, int(many / one)) if one > 0 else 1


def tokens_per_task(folder: MatrixFolder, name: str) -> float:
    """Mean tokens generated for a test task by the trained weights; 0.0 before there is such a test."""
    found: Mapping[str, Any] = (read_json(folder.run(name) / "evaluation_after.json") or {}).get("sampled", {})
    tasks = found.get("team", {}).get("num_tasks", 0)
    return float(found.get("tokens", 0)) / tasks if tasks else 0.0
