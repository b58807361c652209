"""Behaviour rates by role, by hand; every rate over its own denominator, and absent where it has none."""

from __future__ import annotations

import pytest

from learner_helpers import make_turn
from rolecall.dynamics.behaviour import behaviour_metrics, role_estimates
from rolecall.records import (
    Claim,
    ClaimKind,
    Episode,
    Grade,
    GradedEpisode,
    GradeStatus,
    Outcome,
    OutcomeClass,
    Stop,
    Task,
    Turn,
    Verdict,
)


def turn(turn_id: str, role: str, value: str | None, *, about: str | None = None, length: int = 2) -> Turn:
    from dataclasses import replace

    kind = ClaimKind.VERDICT if role == "verifier" else ClaimKind.ANSWER
    made = make_turn(turn_id, [1], list(range(length)), role=role)
    return replace(made, claim=Claim(kind=kind, value=value), about=about)


def graded(number: int, *turns: Turn, right: tuple[str, ...] = (), failed: tuple[str, ...] = ()) -> GradedEpisode:
    answers = {}
    for one in turns:
        if one.role != "verifier":
            status = GradeStatus.FAILED if one.id in failed else GradeStatus.WRONG
            status = GradeStatus.RIGHT if one.id in right else status
            answers[one.id] = Grade(status=status, score=None if one.id in failed else float(one.id in right))
    episode = Episode(
        id=str(number),
        task=Task(id=f"task{number}", question="", answer=None),
        index=0,
        turns=turns,
        outcome=Outcome(answer=None),
        outcome_class=OutcomeClass.OK,
    )
    return GradedEpisode(episode=episode, team=Grade(status=GradeStatus.WRONG, score=0.0), answers=answers)


def test_verdict_rates_are_over_all_verdicts_and_truth_rates_over_those_that_can_be_judged() -> None:
    episodes = [
        graded(1, turn("s", "solver", "4"), turn("v", "verifier", Verdict.CORRECT, about="s"), right=("s",)),
        graded(2, turn("s", "solver", "4"), turn("v", "verifier", Verdict.WRONG, about="s"), right=("s",)),
        graded(3, turn("s", "solver", "5"), turn("v", "verifier", Verdict.WRONG, about="s")),
        graded(4, turn("s", "solver", "5"), turn("v", "verifier", Verdict.UNPARSED, about="s")),
        graded(5, turn("s", "solver", "5"), turn("v", "verifier", Verdict.CORRECT, about="s"), failed=("s",)),
    ]
    metrics = behaviour_metrics(episodes)
    names = ("says_correct", "says_wrong", "unparsed", "judged_right", "false_alarm", "recall", "accuracy", "truncated")
    found = {name: metrics[f"behaviour/verifier/{name}"] for name in names}
    assert found == pytest.approx(
        {
            "says_correct": 2 / 5,
            "says_wrong": 2 / 5,
            "unparsed": 1 / 5,
            "judged_right": 2 / 4,  # the fifth could not be graded
            "false_alarm": 1 / 2,
            "recall": 1 / 2,
            "accuracy": 2 / 4,
            "truncated": 0.0,
        }
    )
    assert metrics["behaviour/solver/accuracy"] == pytest.approx(2 / 4)
    assert metrics["behaviour/verifier/num_turns"] == 5.0
    assert metrics["behaviour/verifier/num_right_judged"] == 2.0
    assert metrics["behaviour/verifier/num_false_alarms"] == 1.0
    assert "behaviour/solver/num_right_judged" not in metrics
    assert role_estimates(episodes)["verifier"]["recall"].n == 2


def test_a_correctors_rates_go_back_to_the_answer_it_repairs() -> None:
    def chain(number: int, first: str, last: str, *right: str) -> GradedEpisode:
        turns = (
            turn("s", "solver", first),
            turn("v", "verifier", Verdict.WRONG, about="s"),
            turn("c", "corrector", last, about="v", length=6),
        )
        return graded(number, *turns, right=right)

    metrics = behaviour_metrics([chain(1, "1", "2", "c"), chain(2, "1", "1"), chain(3, "4", "4", "s", "c")])
    assert metrics["behaviour/corrector/repaired"] == pytest.approx(1 / 2)
    assert metrics["behaviour/corrector/kept_right"] == 1.0
    assert metrics["behaviour/corrector/copied_input"] == pytest.approx(2 / 3)
    assert (metrics["behaviour/corrector/num_wrong_given"], metrics["behaviour/corrector/num_right_given"]) == (2, 1)
    assert metrics["behaviour/corrector/length"] == 6.0
    assert "behaviour/solver/repaired" not in metrics


def test_truncated_turns_are_counted_and_rates_without_trials_are_absent() -> None:
    from dataclasses import replace

    cut = turn("s", "solver", None)
    cut = replace(cut, completion=replace(cut.completion, stop=Stop.LENGTH))
    metrics = behaviour_metrics([graded(1, cut, turn("v", "verifier", Verdict.CORRECT))])
    assert metrics["behaviour/solver/truncated"] == 1.0
    assert metrics["behaviour/solver/unparsed"] == 1.0
    assert "behaviour/verifier/judged_right" not in metrics  # it is about no turn
    assert behaviour_metrics([]) == {}
