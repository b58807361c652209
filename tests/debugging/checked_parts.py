"""What a user might bring to `rolecall check`: good parts, and parts each with one fault."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from rolecall.algorithms import Algorithm
from rolecall.credit import LeaveOneOut
from rolecall.engines.base import Reply, Request
from rolecall.engines.scripted import ScriptedEngine
from rolecall.records import Claim, ClaimKind, GradedEpisode, Outcome, Reward, Task
from rolecall.rewards import AgentSpecific
from rolecall.rollout.samplers import IndependentEpisodes
from rolecall.testing import any_reply
from rolecall.workflows import Team, Workflow


@dataclass(frozen=True, kw_only=True)
class Asks(Workflow):
    """Nothing is wrong with this one."""

    roles: ClassVar[tuple[str, ...]] = ("solver",)

    times: int = 1

    async def run(self, task: Task, team: Team) -> Outcome:
        replies = [await team["solver"].reply([{"role": "user", "content": task.question}]) for _ in range(self.times)]
        return Outcome(answer=replies[-1].text)


@dataclass(frozen=True, kw_only=True)
class Lucky(Asks):
    """Draws random numbers of its own."""

    async def run(self, task: Task, team: Team) -> Outcome:
        await team["solver"].reply([{"role": "user", "content": f"{task.question} {random.random()}"}])
        return Outcome(answer="1")


@dataclass(frozen=True, kw_only=True)
class BadClaim(Asks):
    """Its claim fails on a reply without text."""

    def claim(self, role: str, text: str | None, truncated: bool) -> Claim:
        return Claim(kind=ClaimKind.ANSWER, value=text.strip())  # type: ignore[union-attr]


@dataclass(frozen=True, kw_only=True)
class Hoards(Asks):
    """An effect gives what cannot be stored."""

    async def run(self, task: Task, team: Team) -> Outcome:
        await team.effect("look up", lambda: {1, 2})
        return await Asks.run(self, task, team)


@dataclass(kw_only=True)
class Loose:
    """No frozen dataclass, and no Workflow."""

    roles: ClassVar[tuple[str, ...]] = ("solver",)

    async def run(self, task: Task, team: Team) -> Outcome:
        return Outcome(answer="1")


class Forgot(Asks):
    """A knob of a class without the decorator: no recipe can set it."""

    patience: int = 3


@dataclass(frozen=True, kw_only=True)
class Generous:
    """A good reward."""

    bonus: float = 0.5

    def __call__(self, graded: GradedEpisode) -> dict[str, Reward]:
        given = AgentSpecific()(graded)
        return {
            turn: one
            if one.total is None
            else replace(one, parts={**one.parts, "bonus": self.bonus}, total=one.total + self.bonus)
            for turn, one in given.items()
        }


@dataclass(frozen=True, kw_only=True)
class OddTokens:
    """How many of a turn's token ids are odd: any two completions differ in it soon enough."""

    def __call__(self, graded: GradedEpisode) -> dict[str, Reward]:
        odd = {turn.id: float(sum(i % 2 for i in turn.completion.token_ids)) for turn in graded.episode.turns}
        return {turn: Reward(parts={"odd": number}, total=number) for turn, number in odd.items()}


def odd(n: int = 2) -> Algorithm:
    return Algorithm(name="odd", reward=OddTokens(), sampler=IndependentEpisodes(n=n))


@dataclass(frozen=True, kw_only=True)
class Forgetful:
    """Gives nothing for any turn."""

    def __call__(self, graded: GradedEpisode) -> dict[str, Reward]:
        return {}


@dataclass(frozen=True, kw_only=True)
class Crashes:
    """Looks for a turn that is not there."""

    def __call__(self, graded: GradedEpisode) -> dict[str, Reward]:
        return {"x": Reward(parts={}, total=len(graded.episode.turns[99].messages))}


def leave_one_out(n: int = 4) -> Algorithm:
    """A good algorithm."""
    return Algorithm(name="leave_one_out", reward=Generous(), estimator=LeaveOneOut())


@dataclass(frozen=True, kw_only=True)
class Biased:
    """Advantages that are not 0 where all rewards are equal."""

    def __call__(self, rewards: Sequence[float]) -> list[float]:
        return [1.0 for _ in rewards]


def biased() -> Algorithm:
    return Algorithm(name="biased", estimator=Biased())


def unmarked(n=4):  # type: ignore[no-untyped-def]
    """Nothing says what it returns."""
    return leave_one_out(n)


def good_engine() -> ScriptedEngine:
    return ScriptedEngine(any_reply, policies={"policy": 0})


class FallsBack(ScriptedEngine):
    """Answers for policies that it has not."""

    def __init__(self) -> None:
        super().__init__(any_reply)


class NoScores:
    """Half an engine."""

    async def generate(self, requests: Sequence[Request]) -> list[Reply]:
        return []

    async def load(self, policy: str, version: int, weights: object) -> None:
        pass


A_NUMBER = 7
