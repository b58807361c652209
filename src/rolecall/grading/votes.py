"""Which answers a vote counts as one: those that their grader takes for the same, as far as their form says so."""

from __future__ import annotations

from collections.abc import Hashable

from rolecall.grading.math import is_words
from rolecall.grading.normalise import normalise, plain_number
from rolecall.records import Task

Vote = tuple[Hashable, bool]


def vote(answer: str | None, task: Task, *, right: bool) -> Vote | None:
    """What stands for an answer in a majority, None for no answer. Under the grader `math` numbers are equal by value
    (`1/2`, `0.5`), words whatever their case, all else by its normalised form without white space; under any other
    grader by words. Of two answers that are one, both are right or both are wrong.

    >>> task = Task(id="t", question="?", answer="0.5")
    >>> vote("0.25", task, right=False) == vote("$1/4$", task, right=False)
    True
    """
    if answer is None:
        return None
    return (_by_value(answer) if task.grader == "math" else _words(answer)), right


def _by_value(answer: str) -> Hashable:
    text = normalise(answer)
    number = plain_number(text)
    if number is not None:
        return number.value, number.percent
    return _words(text) if is_words(text) else "".join(text.split())


def _words(text: str) -> str:
    return " ".join(text.casefold().split())
