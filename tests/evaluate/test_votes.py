"""Which answers a majority counts as one: those that the grader takes for the same."""

from __future__ import annotations

import pytest

from rolecall.evaluate import summarise
from rolecall.grading.votes import vote
from rolecall.records import ClaimKind, Task
from rolecall.testing_credit import RIGHT, WRONG, Said, made_episode

MATH = Task(id="t", question="?", answer="42")
TEXT = Task(id="t", question="?", answer="42", grader="text")


@pytest.mark.parametrize(
    ("task", "one", "other", "same"),
    [
        (MATH, "1/2", "0.5", True),
        (MATH, r"\boxed{\frac{1}{2}}", "$0.50$", True),
        (MATH, "1,000", "1000.", True),
        (MATH, "x + 1", "x+1", True),
        (MATH, "Monday", "monday", True),
        (MATH, "x", "X", False),  # two unknowns
        (MATH, "50%", "50", False),
        (MATH, "1/2", "1/3", False),
        (TEXT, "New  York", "new york", True),
        (TEXT, "1/2", "0.5", False),
    ],
)
def test_answers_are_one_where_their_grader_takes_them_for_one(task: Task, one: str, other: str, same: bool) -> None:
    assert (vote(one, task, right=False) == vote(other, task, right=False)) is same


def test_no_answer_has_no_vote_and_right_and_wrong_are_never_one() -> None:
    assert vote(None, MATH, right=False) is None
    assert vote("42", MATH, right=True) != vote("42", MATH, right=False)


def test_a_majority_of_one_value_in_several_forms_wins_over_one_form_that_is_more_frequent() -> None:
    """By their text 3 has two votes and every form of 42 one; by value 42 has three of five."""
    forms = [("42", RIGHT), ("42.0", RIGHT), (r"\boxed{42}", RIGHT), ("3", WRONG), ("3", WRONG)]
    episodes = [
        made_episode(Said(role="solver", kind=ClaimKind.ANSWER, value=value, grade=grade), index=i, team=grade)
        for i, (value, grade) in enumerate(forms)
    ]
    found = summarise(episodes)
    assert found.k == 5
    assert found.majority_at_k.mean == 1.0
