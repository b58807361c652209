"""How alike copies, plans and texts are, by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from learner_helpers import make_turn
from rolecall.dynamics.behaviour import behaviour_metrics, role_estimates
from rolecall.dynamics.likeness import likeness, mean_distance, repeated_texts
from rolecall.records import (
    Claim,
    ClaimKind,
    Episode,
    Grade,
    GradedEpisode,
    GradeStatus,
    Outcome,
    OutcomeClass,
    Task,
    Turn,
    Verdict,
)


def episode(*turns: Turn, task: str = "t", number: int = 0) -> Episode:
    return Episode(
        id=f"{task}/{number}",
        task=Task(id=task, question="", answer=None),
        index=number,
        turns=turns,
        outcome=Outcome(answer=None),
        outcome_class=OutcomeClass.OK,
    )


def plan(*strategies: Sequence[int]) -> Episode:
    """An orchestrator, and a worker for each strategy: the prompt is the strategy, the completion too."""
    workers = [
        replace(make_turn(f"w{i}", strategy, strategy, role="worker", copy=i), about="o")
        for i, strategy in enumerate(strategies)
    ]
    return episode(make_turn("o", [1], [2], role="orchestrator"), *workers)


def found(one: Episode) -> dict[tuple[str, str], float]:
    return {(role, name): value for role, name, value in likeness(one)}


def test_the_distance_of_copies_is_that_of_their_neighbouring_tokens_by_hand() -> None:
    copies = [
        make_turn("a", [1], [1, 2, 3], role="voter", copy=0),
        make_turn("b", [1], [1, 2, 4], role="voter", copy=1),
        make_turn("c", [1], [1, 2, 3], role="voter", copy=2),
    ]
    # 12, 23 against 12, 24: one of three in common; the first and the last are the same
    assert found(episode(*copies)) == {("voter", "distance"): pytest.approx(2 * (2 / 3) / 3)}
    single = [make_turn(str(i), [1], [i], role="voter", copy=i) for i in range(2)]
    assert found(episode(*single))["voter", "distance"] == 1.0
    empty = [make_turn(str(i), [1], [], role="voter", copy=i) for i in range(2)]
    assert found(episode(*empty))["voter", "distance"] == 0.0
    assert mean_distance([frozenset("ab"), frozenset("ab")]) == 0.0


def test_plans_are_told_apart_by_the_prompts_that_the_copies_were_given() -> None:
    assert found(plan([5, 6], [7, 8], [9, 9]))["orchestrator", "different_plans"] == 1.0
    assert found(plan([5, 6], [5, 6], [9, 9]))["orchestrator", "different_plans"] == 0.5
    assert found(plan([5, 6], [5, 6], [5, 6]))["orchestrator", "different_plans"] == 0.0
    assert found(plan([5, 6])) == {}  # one worker is beside nobody


def test_copies_that_nobody_planned_for_or_that_go_on_from_their_own_turn_have_no_plan() -> None:
    voters = [make_turn(str(i), [1], [3, 4], role="voter", copy=i) for i in range(2)]
    assert set(found(episode(*voters))) == {("voter", "distance")}
    first = [make_turn(f"a{i}", [1], [3, 4], role="debater", copy=i) for i in range(2)]
    second = [replace(make_turn(f"b{i}", [1], [5], role="debater", copy=i, call=1), about=f"a{i}") for i in range(2)]
    assert {name for _, name in found(episode(*first, *second))} == {"distance"}


def test_a_text_counts_as_repeated_when_it_was_given_for_another_task() -> None:
    def spoken(task: str, text: str | None, number: int = 0) -> Episode:
        return episode(replace(make_turn("o", [1], [2], role="orchestrator"), text=text), task=task, number=number)

    assert repeated_texts([spoken("a", "same"), spoken("b", "same"), spoken("b", "own"), spoken("c", None)]) == {
        "orchestrator": pytest.approx(2 / 3)
    }
    assert repeated_texts([spoken("a", "same"), spoken("a", "same", 1)]) == {}  # peers of one task may agree


def graded(one: Episode, right: Sequence[str] = ()) -> GradedEpisode:
    answers = {
        turn.id: Grade(status=GradeStatus.RIGHT if turn.id in right else GradeStatus.WRONG, score=0.0)
        for turn in one.turns
        if turn.claim is not None and turn.claim.kind is ClaimKind.ANSWER
    }
    return GradedEpisode(episode=one, team=Grade(status=GradeStatus.WRONG, score=0.0), answers=answers)


def claims(role: str, value: str, *, about: str | None = None, kind: ClaimKind = ClaimKind.ANSWER) -> Turn:
    return replace(make_turn(role, [1], [2], role=role), claim=Claim(kind=kind, value=value), about=about)


def repair(task: str, before: str, after: str, verdict: Verdict, *right: str) -> GradedEpisode:
    turns = (
        claims("solver", before),
        claims("verifier", verdict, about="solver", kind=ClaimKind.VERDICT),
        claims("corrector", after, about="verifier"),
    )
    return graded(episode(*turns, task=task), right)


def test_copied_wrong_answers_are_counted_apart_from_copied_right_ones() -> None:
    metrics = behaviour_metrics(
        [
            repair("a", "1", "1", Verdict.WRONG),
            repair("b", "1", "2", Verdict.WRONG, "corrector"),
            repair("c", "4", "4", Verdict.WRONG, "solver", "corrector"),
        ]
    )
    assert metrics["behaviour/corrector/copied_input"] == pytest.approx(2 / 3)
    assert metrics["behaviour/corrector/copied_wrong"] == 0.5
    assert metrics["behaviour/corrector/num_copied_wrong"] == 1.0
    assert metrics["behaviour/corrector/num_wrong_given"] == 2.0


def test_a_constant_verdict_is_not_informed_and_a_true_one_is() -> None:
    def informed(verdicts: Sequence[Verdict]) -> float:
        truth = ("solver",), (), ("solver",), ()
        episodes = [
            repair(str(i), "1", "1", verdict, *right)
            for i, (verdict, right) in enumerate(zip(verdicts, truth, strict=True))
        ]
        return behaviour_metrics(episodes)["behaviour/verifier/informedness"]

    correct, wrong = Verdict.CORRECT, Verdict.WRONG
    assert informed((correct,) * 4) == informed((wrong,) * 4) == 0.0
    assert informed((correct, wrong, correct, wrong)) == 1.0
    assert informed((wrong, correct, wrong, correct)) == -1.0
    assert informed((correct, wrong, wrong, wrong)) == 0.5


def test_likeness_is_among_the_rates_of_a_step_with_its_intervals() -> None:
    episodes = [
        graded(plan([5, 6], [5, 6])),
        graded(replace(plan([5, 6], [7, 8]), task=Task(id="u", question="", answer=None))),
    ]
    assert behaviour_metrics(episodes)["behaviour/orchestrator/different_plans"] == 0.5
    assert behaviour_metrics(episodes)["behaviour/worker/distance"] == 0.5
    assert role_estimates(episodes)["worker"]["distance"].n == 2
