"""Workflows: the programs in which roles work on a task. One file each; `base.py` says what a workflow is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rolecall.errors import ConfigError
from rolecall.registry import load_named
from rolecall.workflows.base import Absent, Agent, Reply, Team, Workflow
from rolecall.workflows.debate import Debate
from rolecall.workflows.evaluator_optimizer import EvaluatorOptimizer
from rolecall.workflows.orchestrator_workers import OrchestratorWorkers
from rolecall.workflows.play_game import PlayGame
from rolecall.workflows.python_tool import PythonTool
from rolecall.workflows.single_agent import SingleAgent
from rolecall.workflows.solve_verify_correct import SolveVerifyCorrect
from rolecall.workflows.think_solve import ThinkSolve
from rolecall.workflows.voting import MajorityVote, Voting

WORKFLOWS: dict[str, type[Workflow]] = {
    "play_game": PlayGame,
    "python_tool": PythonTool,
    "single_agent": SingleAgent,
    "solve_verify_correct": SolveVerifyCorrect,
    "voting": Voting,
    "majority_vote": MajorityVote,
    "evaluator_optimizer": EvaluatorOptimizer,
    "orchestrator_workers": OrchestratorWorkers,
    "debate": Debate,
    "think_solve": ThinkSolve,
}

__all__ = ["WORKFLOWS", "Absent", "Agent", "Reply", "Team", "Workflow", "check_roles", "load_workflow"]


def load_workflow(name: str, params: Mapping[str, Any] | None = None) -> Workflow:
    """The workflow of a short name or `module:Name`, with its knobs set; a class that is no workflow is an error."""
    workflow: object = load_named(name, WORKFLOWS, "workflow", params)
    if not isinstance(workflow, Workflow):
        raise ConfigError(f"{name!r} is a {type(workflow).__name__}; wanted a subclass of rolecall.workflows.Workflow")
    check_roles(name, workflow.roles)
    return workflow


def check_roles(name: str, roles: object) -> None:
    """`ConfigError` unless `roles` are distinct names; `roles = ("solver")`, which is a text, is the usual slip."""
    wanted = 'wanted a tuple of names such as ("solver",)'
    if not isinstance(roles, tuple | list):
        raise ConfigError(f"workflow {name!r}: roles is {roles!r} ({type(roles).__name__}); {wanted}")
    if not roles:
        raise ConfigError(f"workflow {name!r} names no roles; {wanted}")
    for number, role in enumerate(roles):
        if not isinstance(role, str) or not role.strip() or not role.isprintable():
            raise ConfigError(f"workflow {name!r}: role {number} is {role!r}; {wanted}")
        if role in roles[:number]:
            raise ConfigError(f"workflow {name!r} names the role {role!r} twice; name it once and ask copies of it")
