"""Chain sums, and what an imperfect team writes about them: the demonstrations of `make_tiny_model.py`."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

import reasoning_gym

from rolecall.tasks.splits import Split, SplitRule

FAMILY = "chain_sum"
SHORT = {"min_terms": 2, "max_terms": 3, "min_digits": 1, "max_digits": 1, "allow_negation": False}
PARAMS = {"min_terms": 4, "max_terms": 4, "min_digits": 1, "max_digits": 1, "allow_negation": False}

_TERM = re.compile(r"[+-]?\d+")


@dataclass(frozen=True, kw_only=True, slots=True)
class Sum:
    """A task, e.g. question "7-9+3": its running totals are (-2, 1), and the last one is the answer."""

    question: str

    @property
    def terms(self) -> list[str]:
        return _TERM.findall(self.question)

    @property
    def totals(self) -> list[int]:
        return list(accumulate(int(term) for term in self.terms))[1:]

    @property
    def answer(self) -> str:
        return str(self.totals[-1])


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """A solution that somebody gave and the report that somebody wrote on it."""

    task: Sum
    solution: str
    report: str


def write_report(task: Sum, solution: str, careful: bool) -> str:
    """A report without a mistake: "7-9=-2+3=1?4 Verdict: wrong" from a careful Verifier, else the verdict alone."""
    verdict = "Verdict: correct" if solution == task.answer else "Verdict: wrong"
    if not careful:
        return verdict
    steps = "".join(f"{term}={total}" for term, total in zip(task.terms[1:], task.totals, strict=True))
    return f"{task.terms[0]}{steps}?{solution} {verdict}"


def near_miss(task: Sum, rng: random.Random) -> str:
    """A wrong solution of the kinds that a weak Solver gives: a little off, or with the wrong sign."""
    answer = task.totals[-1]
    while True:
        kind = rng.random()
        if kind < 0.5:
            value = answer + rng.choice((-3, -2, -1, 1, 2, 3))
        elif kind < 0.9:
            value = answer + rng.randint(-10, 10)
        else:
            value = -answer
        if value != answer:
            return str(value)


class TaskStream:
    """Sums of one split, without end and in a fixed order."""

    def __init__(self, split: Split, seed: int, size: int = 10_000_000, short: bool = False) -> None:
        self.source = reasoning_gym.create_dataset(FAMILY, seed=seed, size=size, **(SHORT if short else PARAMS))
        self.tasks = self._sums(split, SplitRule())

    def _sums(self, split: Split, rule: SplitRule) -> Iterator[Sum]:
        for entry in self.source:
            question = entry["metadata"]["expression"].replace(" ", "")
            if rule.split(question) == split:
                yield Sum(question=question)

    def take(self, num_tasks: int) -> list[Sum]:
        return [next(self.tasks) for _ in range(num_tasks)]
