"""Debaters answer, read each other, and answer again; the majority of their last answers counts (Du et al., arXiv
2305.14325)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from rolecall.records import Claim, ClaimKind, Message, Outcome, Task
from rolecall.workflows.base import Reply, Team, Workflow
from rolecall.workflows.parse import check_answer_format, extract_answer
from rolecall.workflows.prompting import PromptSet, load_prompts
from rolecall.workflows.voting import answer_of, check_copies, listed, majority_outcome, same

HOLES = {"debater": frozenset({"task"}), "revise": frozenset({"others"})}


@dataclass(frozen=True, kw_only=True)
class Debate(Workflow):
    """`num_debaters` copies over `rounds` rounds, the opening one included; each keeps its own history."""

    roles: ClassVar[tuple[str, ...]] = ("debater",)

    num_debaters: int = 3
    rounds: int = 2
    prompts: str = "default"
    answer_format: str = "boxed"

    def __post_init__(self) -> None:
        check_copies("num_debaters", self.num_debaters, least=2)
        check_copies("rounds", self.rounds, least=1)
        check_answer_format(self.answer_format)
        self.prompt_set()

    def prompt_set(self) -> PromptSet:
        return load_prompts(self.prompts, HOLES)

    def claim(self, role: str, text: str | None, truncated: bool) -> Claim:
        return Claim(kind=ClaimKind.ANSWER, value=extract_answer(text, self.answer_format))

    def max_calls(self) -> Mapping[str, int]:
        return {"debater": self.num_debaters * self.rounds}

    async def run(self, task: Task, team: Team) -> Outcome:
        prompts, debaters = self.prompt_set(), team.copies("debater", self.num_debaters)
        histories: list[list[Message]] = [prompts["debater"].messages(task=task.question) for _ in debaters]
        replies: list[Reply] = list(
            await asyncio.gather(*[agent.reply(tuple(h)) for agent, h in zip(debaters, histories, strict=True)])
        )
        changed = 0
        for _ in range(self.rounds - 1):
            for place, history in enumerate(histories):
                others = [reply for at, reply in enumerate(replies) if at != place and not reply.absent]
                history.append({"role": "assistant", "content": replies[place].text or ""})
                history += prompts["revise"].messages(others=listed(others))
            before = replies
            replies = list(
                await asyncio.gather(
                    *[
                        agent.reply(tuple(history), about=None if old.absent else old)
                        for agent, history, old in zip(debaters, histories, before, strict=True)
                    ]
                )
            )
            changed += sum(
                not same(answer_of(old) or "", answer_of(new) or "") for old, new in zip(before, replies, strict=True)
            )
        found = majority_outcome([reply for reply in replies if not reply.absent])
        return Outcome(answer=found.answer, figures={**found.figures, "changed": float(changed)})
