"""The tasks of the tiny model and the transcripts that a perfect team would write on them.

Equations `factor*x+term=right`, as `simple_equations` of reasoning-gym draws them with two terms, max_value=20 and
only "+"; the letter is always x.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from rolecall.tasks.splits import Split, SplitRule

LARGEST = 20  # of every number in the equation but the right side


@dataclass(frozen=True, kw_only=True, slots=True)
class Equation:
    """The task `factor*x+term=right`, e.g. Equation(factor=13, x=14, term=2) is "13*x+2=184" with the answer "14"."""

    factor: int
    x: int
    term: int

    @property
    def right(self) -> int:
        return self.factor * self.x + self.term

    @property
    def question(self) -> str:
        left = f"{self.factor}*x" if self.factor > 1 else "x"
        return f"{left}+{self.term}={self.right}"

    @property
    def answer(self) -> str:
        return str(self.x)


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """A solution that somebody gave and the report that somebody wrote on it."""

    task: Equation
    solution: str
    report: str


def write_report(task: Equation, solution: str) -> str:
    """The report of a perfect Verifier, e.g. "117+2=119 off 65 Verdict: wrong" for x=9 in 13*x+2=184."""
    product = task.factor * int(solution)
    total = product + task.term
    word = "correct" if solution == task.answer else "wrong"
    return f"{product}+{task.term}={total} off {task.right - total} Verdict: {word}"


def near_miss(task: Equation, rng: random.Random) -> str:
    """A wrong solution of the kinds that a weak Solver gives: mostly a little off."""
    while True:
        kind = rng.random()
        if kind < 0.45:
            value = task.x + rng.choice((-3, -2, -1, 1, 2, 3))
        elif kind < 0.65:
            value = task.x + rng.choice((-10, 10)) + rng.choice((-1, 0, 0, 1))
        elif kind < 0.85:
            value = task.x + rng.randint(-9, 9)
        else:
            value = rng.randint(1, LARGEST)
        if value != task.x and 1 <= value <= LARGEST + 5:
            return str(value)


def equations(split: Split) -> list[Equation]:
    """Every equation of the family that belongs to `split`; reasoning-gym draws them uniformly."""
    rule, numbers = SplitRule(), range(1, LARGEST + 1)
    drawn = (Equation(factor=a, x=x, term=b) for a in numbers for x in numbers for b in numbers)
    return [task for task in drawn if rule.split(task.question) == split]
