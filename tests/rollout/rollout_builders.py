"""Small workflows and settings for the tests of the rollout."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from rolecall.engines.base import Request
from rolecall.engines.scripted import Answer, ScriptedEngine
from rolecall.errors import CallTimeout
from rolecall.records import Claim, ClaimKind, Message, Outcome, Sampling, Task
from rolecall.rollout.render import PlainRenderer
from rolecall.rollout.transcript import RoleSettings, Transcript
from rolecall.workflows.base import Team, Workflow


def task(number: int = 0) -> Task:
    return Task(id=f"task{number}", question=f"question {number}", answer=str(number))


def transcript(number: int = 0, **fields: Any) -> Transcript:
    return Transcript(task=task(number), **fields)


def say(*texts: str) -> list[Message]:
    return [{"role": "user", "content": text} for text in texts]


def roles_for(workflow: Workflow, sampling: Sampling | None = None, **settings: Any) -> dict[str, RoleSettings]:
    """Every role has a policy of its own name."""
    sampling = sampling if sampling is not None else Sampling()
    return {
        role: RoleSettings(policy=role, sampling=sampling, renderer=PlainRenderer(), **settings)
        for role in workflow.roles
    }


def by_seed(request: Request) -> str:
    """A reply that depends on the call's seed and nothing else, so that every call says something of its own."""
    return f"{request.key.role} says {random.Random(request.seed).randrange(10**9)}"


def slow(seed: int, longest_s: float = 0.01) -> Callable[[Request], float]:
    rng = random.Random(seed)
    return lambda request: rng.random() * longest_s


def refusing() -> ScriptedEngine:
    """An engine that must not be asked."""

    def fail(request: Request) -> Answer:
        raise AssertionError(f"{request.key} reached the engine")

    return ScriptedEngine(fail)


@dataclass(frozen=True, kw_only=True)
class Chain(Workflow):
    """One role after the other; each sees what the one before it said."""

    roles: ClassVar[tuple[str, ...]] = ("first", "second", "third")

    async def run(self, task: Task, team: Team) -> Outcome:
        said: str = task.question
        for role in self.roles:
            reply = await team[role].reply(say(said))
            said = reply.text or ""
        return Outcome(answer=said)

    def claim(self, role: str, text: str | None, truncated: bool) -> Claim:
        return Claim(kind=ClaimKind.ANSWER, value=text)


@dataclass(frozen=True, kw_only=True)
class Vote(Workflow):
    """Voters side by side, each asked twice; then a chair who sees all of their words."""

    roles: ClassVar[tuple[str, ...]] = ("voter", "chair")

    voters: int = 3

    async def run(self, task: Task, team: Team) -> Outcome:
        async def voter(copy: int) -> str:
            agent = team["voter", copy]
            draft = await agent.reply(say(task.question))
            if draft.absent:
                return "-"
            luck = await team.effect(f"look up {copy}", lambda: f"fact {copy}")
            final = await agent.reply(say(task.question, draft.text or "", luck), about=draft)
            return final.text or ""

        votes = await asyncio.gather(*[voter(copy) for copy in range(self.voters)])
        chair = await team["chair"].reply(say(task.question, *votes, str(team.rng.random())))
        return Outcome(answer=chair.text, figures={"votes": float(len(votes))})


@dataclass(frozen=True, kw_only=True)
class Patient(Workflow):
    """Asks a slow role; when its deadline passes, asks a quick one."""

    roles: ClassVar[tuple[str, ...]] = ("slow", "quick")

    async def run(self, task: Task, team: Team) -> Outcome:
        try:
            reply = await team["slow"].reply(say(task.question))
        except CallTimeout:
            reply = await team["quick"].reply(say(task.question, "too late"))
        return Outcome(answer=reply.text)


def workflow_of(run: Callable[[Task, Team], Any], *role_names: str) -> Workflow:
    """A workflow from a function."""
    names = role_names or ("solver",)

    @dataclass(frozen=True, kw_only=True)
    class FromFunction(Workflow):
        roles: ClassVar[tuple[str, ...]] = names

        def run(self, task: Task, team: Team) -> Any:  # type: ignore[override]
            return run(task, team)

    return FromFunction()


def replies(table: Mapping[str, Answer]) -> Callable[[Request], Answer]:
    return lambda request: table[request.key.role]
