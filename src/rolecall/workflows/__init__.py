"""Workflows: the programs in which roles work on a task. One file each; `base.py` says what a workflow is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rolecall.errors import ConfigError
from rolecall.registry import load_named
from rolecall.workflows.base import Absent, Agent, Reply, Team, Workflow
from rolecall.workflows.single_agent import SingleAgent
from rolecall.workflows.solve_verify_correct import SolveVerifyCorrect

WORKFLOWS: dict[str, type[Workflow]] = {
    "single_agent": SingleAgent,
    "solve_verify_correct": SolveVerifyCorrect,
}

__all__ = ["WORKFLOWS", "Absent", "Agent", "Reply", "Team", "Workflow", "load_workflow"]


def load_workflow(name: str, params: Mapping[str, Any] | None = None) -> Workflow:
    """The workflow of a short name or `module:Name`, with its knobs set; a class that is no workflow is an error."""
    workflow: object = load_named(name, WORKFLOWS, "workflow", params)
    if not isinstance(workflow, Workflow):
        raise ConfigError(f"{name!r} is a {type(workflow).__name__}; wanted a subclass of rolecall.workflows.Workflow")
    if not workflow.roles:
        raise ConfigError(f'workflow {name!r} names no roles; give it e.g. roles = ("solver",)')
    return workflow
