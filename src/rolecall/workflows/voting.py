"""Voters answer side by side; an aggregator picks one of their answers, or a majority does without a model.

Voting follows the workflow study (arXiv 2605.24202): the aggregator sees the problem and every candidate and puts the
number of the best into a box. What the last box holds counts; without a box the only number in range does (the study
takes any of several); else the first candidate stands in, which is counted as `fallback`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import ClassVar

from rolecall.errors import ConfigError
from rolecall.records import Claim, ClaimKind, Outcome, Task
from rolecall.workflows.base import Agent, Reply, Team, Workflow
from rolecall.workflows.parse import check_answer_format, extract_answer, last_boxed
from rolecall.workflows.prompting import PromptSet, load_prompts

VOTER_HOLES = {"voter": frozenset({"task"})}
HOLES = {**VOTER_HOLES, "aggregator": frozenset({"task", "candidates", "num_candidates"})}
MAX_DIGITS = 9
"""A longer number is in no range; Python refuses to read thousands of digits."""
NO_TEXT = "(This candidate left no readable solution.)"


@dataclass(frozen=True, kw_only=True)
class Voting(Workflow):
    """`num_voters` copies of one role answer one prompt; the aggregator's choice is the answer.

    The choice names a candidate by its number, from 1, in the order of the copies; the aggregator's turn is `about` the
    first of them. With `separate` the voters are no copies but roles of their own, `voterA`, `voterB` and so on, so
    that each can have a policy of its own (the study's second variant).

    >>> Voting(separate=True).roles
    ('voterA', 'voterB', 'voterC', 'aggregator')
    """

    roles: ClassVar[tuple[str, ...]] = ("voter", "aggregator")

    num_voters: int = 3
    separate: bool = False
    prompts: str = "default"
    answer_format: str = "boxed"

    def __post_init__(self) -> None:
        check_copies("num_voters", self.num_voters, least=2)
        check_answer_format(self.answer_format)
        self.prompt_set()
        if self.separate:
            if self.num_voters > len(ascii_uppercase):
                raise ConfigError(f"num_voters is {self.num_voters}; wanted at most 26 where each is a role of its own")
            object.__setattr__(self, "roles", (*self.voters, "aggregator"))

    @property
    def voters(self) -> tuple[str, ...]:
        """The roles of the voters."""
        return tuple(f"voter{one}" for one in ascii_uppercase[: self.num_voters]) if self.separate else ("voter",)

    def prompt_set(self) -> PromptSet:
        return load_prompts(self.prompts, HOLES)

    def claim(self, role: str, text: str | None, truncated: bool) -> Claim:
        if role == "aggregator":
            choice = None if truncated else parse_choice(text, self.num_voters)
            return Claim(kind=ClaimKind.CHOICE, value=None if choice is None else str(choice))
        return Claim(kind=ClaimKind.ANSWER, value=extract_answer(text, self.answer_format))

    def max_calls(self) -> Mapping[str, int]:
        return dict.fromkeys(self.voters, 1 if self.separate else self.num_voters) | {"aggregator": 1}

    async def run(self, task: Task, team: Team) -> Outcome:
        agents = [team[role] for role in self.voters] if self.separate else team.copies("voter", self.num_voters)
        votes = await ask_voters(self.prompt_set(), task, agents)
        if not votes:
            return Outcome(answer=None, figures={"num_candidates": 0.0, "fallback": 0.0, "chosen": -1.0})
        messages = self.prompt_set()["aggregator"].messages(
            task=task.question, candidates=listed(votes), num_candidates=str(len(votes))
        )
        ruling = await team["aggregator"].reply(messages, about=votes[0])
        value = ruling.claim.value if ruling.claim is not None else None
        choice = int(value) if value is not None and int(value) <= len(votes) else None
        chosen = votes[choice - 1 if choice is not None else 0]
        figures = {
            "num_candidates": float(len(votes)),
            "num_different": float(len({answer_of(vote) for vote in votes})),
            "fallback": float(choice is None),
            "chosen": float(votes.index(chosen)),
        }
        return Outcome(answer=answer_of(chosen), figures=figures)


@dataclass(frozen=True, kw_only=True)
class MajorityVote(Workflow):
    """`num_voters` copies answer, and the most frequent answer wins, the earliest of equals: self-consistency (Wang et
    al., arXiv 2203.11171), the control of `Voting` that needs no aggregator."""

    roles: ClassVar[tuple[str, ...]] = ("voter",)

    num_voters: int = 3
    prompts: str = "default"
    answer_format: str = "boxed"

    def __post_init__(self) -> None:
        check_copies("num_voters", self.num_voters, least=1)
        check_answer_format(self.answer_format)
        self.prompt_set()

    def prompt_set(self) -> PromptSet:
        return load_prompts(self.prompts, VOTER_HOLES)

    def claim(self, role: str, text: str | None, truncated: bool) -> Claim:
        return Claim(kind=ClaimKind.ANSWER, value=extract_answer(text, self.answer_format))

    def max_calls(self) -> Mapping[str, int]:
        return {"voter": self.num_voters}

    async def run(self, task: Task, team: Team) -> Outcome:
        votes = await ask_voters(self.prompt_set(), task, team.copies("voter", self.num_voters))
        return majority_outcome(votes)


async def ask_voters(prompts: PromptSet, task: Task, voters: Iterable[Agent]) -> list[Reply]:
    """The replies of all voters that are there, in their order."""
    messages = prompts["voter"].messages(task=task.question)
    replies = await asyncio.gather(*[voter.reply(messages) for voter in voters])
    return [reply for reply in replies if not reply.absent]


def majority_outcome(replies: Sequence[Reply]) -> Outcome:
    """The most frequent answer among those that could be read, the earliest of equals."""
    answers = [answer for reply in replies if (answer := answer_of(reply)) is not None]
    counts = {answer: sum(same(answer, other) for other in answers) for answer in dict.fromkeys(answers)}
    best = max(counts, key=lambda answer: counts[answer], default=None)
    figures = {
        "num_candidates": float(len(replies)),
        "num_different": float(len(counts)),
        "votes": float(counts[best]) if best is not None else 0.0,
    }
    return Outcome(answer=best, figures=figures)


def same(answer: str, other: str) -> bool:
    """Whether two answers are one vote: equal but for blanks and case. A workflow calls no grader."""
    return "".join(answer.split()).casefold() == "".join(other.split()).casefold()


def answer_of(reply: Reply) -> str | None:
    return reply.claim.value if reply.claim is not None else None


def listed(replies: Sequence[Reply]) -> str:
    """The candidates under their numbers."""
    return "\n\n".join(f"### Candidate {number}\n{reply.text or NO_TEXT}" for number, reply in enumerate(replies, 1))


def parse_choice(text: str | None, num_candidates: int) -> int | None:
    r"""The number in the last box; without a box, the only number in range that the text holds.

    >>> parse_choice(r"Both agree, \boxed{2}", 3), parse_choice("I take 3.", 3), parse_choice("1 or 2?", 3)
    (2, 3, None)
    """
    if text is None:
        return None
    boxed = last_boxed(text)
    found = [boxed] if boxed is not None else re.findall(r"(?<![\w.])\d++(?![\w.]*\w)", text)
    short = [one for one in found if one.strip().isdecimal() and len(one) <= MAX_DIGITS]
    numbers = {int(one) for one in short if 1 <= int(one) <= num_candidates}
    return numbers.pop() if len(numbers) == 1 else None


def check_copies(name: str, value: int, least: int) -> None:
    if value < least:
        raise ConfigError(f"{name} is {value}; wanted {least} or more")
