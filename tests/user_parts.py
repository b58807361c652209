"""What a user might bring: rewards, workflows and algorithms under `module:Name`, good ones and bad ones."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar

from rolecall.algorithms import Algorithm, Loss
from rolecall.credit import Grouping, MeanStd
from rolecall.records import GradedEpisode, Outcome, Reward, Task
from rolecall.workflows import Team, Workflow


@dataclass(frozen=True, kw_only=True)
class Letters:
    """The share of sampled tokens that are the byte of `letter`."""

    letter: str = "a"

    def __call__(self, graded: GradedEpisode) -> dict[str, Reward]:
        rewards = {}
        for turn in graded.episode.turns:
            ids = turn.completion.token_ids
            share = sum(token == WANTED for token in ids) / max(1, len(ids))
            rewards[turn.id] = Reward(parts={"letters": share}, total=share)
        return rewards


WANTED = 100


def letters(n: int = 8) -> Algorithm:
    return Algorithm(
        name="letters",
        reward=Letters(),
        grouping=Grouping(unit="turn", peers="task_role"),
        estimator=MeanStd(),
        loss=Loss(ratio="one", clipped=False),
    )


@dataclass(frozen=True, kw_only=True)
class Generous:
    """Pays every turn by the first token that it sampled, and knows nothing of failures."""

    def __call__(self, graded: GradedEpisode) -> dict[str, Reward]:
        paid = {turn.id: 1.0 + turn.completion.token_ids[0] % 2 for turn in graded.episode.turns}
        return {turn: Reward(parts={"paid": total}, total=total) for turn, total in paid.items()}


@dataclass(frozen=True, kw_only=True)
class Ask(Workflow):
    """Base of the bad ones: asks once."""

    roles: ClassVar[tuple[str, ...]] = ("solver",)

    async def ask(self, task: Task, team: Team) -> str | None:
        return (await team["solver"].reply([{"role": "user", "content": task.question}])).text


@dataclass(frozen=True, kw_only=True)
class Raises(Ask):
    async def run(self, task: Task, team: Team) -> Outcome:
        await self.ask(task, team)
        raise KeyError("the user's own mistake")


@dataclass(frozen=True, kw_only=True)
class ReturnsNothing(Ask):
    async def run(self, task: Task, team: Team) -> Outcome:
        await self.ask(task, team)
        return None  # type: ignore[return-value]


@dataclass(frozen=True, kw_only=True)
class NeverEnds(Ask):
    async def run(self, task: Task, team: Team) -> Outcome:
        while True:
            await self.ask(task, team)


@dataclass(frozen=True, kw_only=True)
class Blocks(Ask):
    async def run(self, task: Task, team: Team) -> Outcome:
        await self.ask(task, team)
        time.sleep(60)
        return Outcome(answer="0")
