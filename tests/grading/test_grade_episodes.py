"""Grades of episodes: the final answer, each turn that claims one, each distinct answer graded once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from rolecall.evaluate import summarise
from rolecall.grading import GraderPool, grade_episodes, grade_episodes_async
from rolecall.records import (
    Claim,
    ClaimKind,
    Completion,
    Episode,
    GradeStatus,
    Key,
    Outcome,
    OutcomeClass,
    Stop,
    Task,
    Turn,
)


@pytest.fixture
def pool() -> Iterator[GraderPool]:
    with GraderPool() as pool:
        yield pool


def make_task(answer: str) -> Task:
    return Task(id=f"t:{answer}", question="What is it?", answer=answer)


def make_turn(turn_id: str, claim: Claim | None) -> Turn:
    return Turn(
        id=turn_id,
        key=Key("solver", 0, 0),
        policy="p",
        messages=(),
        prompt_ids=(1,),
        completion=Completion(token_ids=(2,), logprobs=(-0.1,), versions=(0,), stop=Stop.EOS),
        text="",
        claim=claim,
    )


def make_episode(task: Task, answer: str | None, claims: dict[str, Claim | None]) -> Episode:
    return Episode(
        id=f"e:{task.id}",
        task=task,
        index=0,
        turns=tuple(make_turn(turn_id, claim) for turn_id, claim in claims.items()),
        outcome=Outcome(answer=answer),
        outcome_class=OutcomeClass.OK,
    )


def test_an_episode_gets_a_grade_for_its_answer_and_for_each_turn_that_claims_one(pool: GraderPool) -> None:
    right, wrong, none = (Claim(kind=ClaimKind.ANSWER, value=value) for value in ("5", "6", None))
    verdict = Claim(kind=ClaimKind.VERDICT, value="correct")
    claims = {"a": right, "b": verdict, "c": wrong, "d": none, "e": None}
    episode = make_episode(make_task("5"), "6", claims)
    lost = Episode(id="lost", task=make_task("5"), index=1, turns=(), outcome=None, outcome_class=OutcomeClass.ERROR)
    asked = pool.stats.asked
    graded, without = grade_episodes([episode, lost], pool)
    assert pool.stats.asked == asked + 3  # "5", "6" and no answer, once each
    assert graded.episode is episode
    assert graded.team.status is GradeStatus.WRONG
    assert {turn: grade.right for turn, grade in graded.answers.items()} == {"a": True, "c": False, "d": False}
    assert graded.answers["d"].detail == without.team.detail == "no answer"
    assert asyncio.run(grade_episodes_async([episode, lost], pool)) == [graded, without]


def test_two_tasks_with_the_same_text_and_other_answers_are_graded_apart(pool: GraderPool) -> None:
    tasks = [Task(id=f"t:{n}", question="Same text", answer=str(n)) for n in (5, 6)]
    graded = grade_episodes([make_episode(task, "5", {}) for task in tasks], pool)
    assert [g.team.right for g in graded] == [True, False]


def test_an_episode_that_was_declared_invalid_is_not_right_whatever_it_answered(pool: GraderPool) -> None:
    good = make_episode(make_task("5"), "5", {"a": Claim(kind=ClaimKind.ANSWER, value="5")})
    invalid = replace(
        good, id="x", index=1, outcome=Outcome(answer="5", valid=False), outcome_class=OutcomeClass.INVALID
    )
    graded = grade_episodes([good, invalid], pool)
    assert [g.team.right for g in graded] == [True, False]
    assert graded[1].answers["a"].right  # the turn's own claim is another matter
    figures = summarise(graded)
    assert figures.team.mean == 0.5
    assert figures.majority_at_k.mean == 1.0  # an invalid episode has no vote
