"""Leakage: roles are told apart by how they spoke at the start, and one's format is found in another's output."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

from learner_helpers import make_turn
from rolecall.dynamics.leakage import (
    REFERENCE_STEPS,
    Leakage,
    RoleClassifier,
    features,
    format_metrics,
    forms,
)
from rolecall.dynamics.monitor import DynamicsMonitor
from rolecall.dynamics.settings import DynamicsSettings
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
)
from rolecall.workflows.base import Workflow
from rolecall.workflows.evaluator_optimizer import EvaluatorOptimizer
from rolecall.workflows.orchestrator_workers import OrchestratorWorkers
from rolecall.workflows.solve_verify_correct import SolveVerifyCorrect
from rolecall.workflows.voting import MajorityVote, Voting

SMALL = DynamicsSettings(leakage_reference=20, leakage_turns=20, probe_every_steps=0)


def said(role: str, *texts: str | None) -> list[Turn]:
    return [replace(make_turn(f"{role}{i}", [1], [2, 3], role=role, copy=i), text=text) for i, text in enumerate(texts)]


def solving(draw: random.Random, number: int) -> list[str]:
    return [
        f"So we add {draw.randrange(99)} and {draw.randrange(99)}, which is {draw.randrange(99)}."
        for _ in range(number)
    ]


def judging(draw: random.Random, number: int) -> list[str]:
    return [f"I checked line {draw.randrange(9)}. Verdict: {draw.choice(('Correct', 'Wrong'))}" for _ in range(number)]


def step(seed: int, *, leaking: float = 0.0) -> dict[str, list[Turn]]:
    """Twenty turns of each of two roles; a share of the verifier's solve instead of judging."""
    draw, count = random.Random(seed), round(20 * leaking)
    verifier = solving(draw, count) + judging(draw, 20 - count)
    return {"solver": said("solver", *solving(draw, 20)), "verifier": said("verifier", *verifier)}


def test_numbers_and_case_do_not_count_and_order_does() -> None:
    assert features("Take 12, not 7.") == features("take 3, not 4.")
    assert features("a b c") != features("c b a")
    assert features("") == frozenset()


def test_the_classifier_weighs_what_is_there_and_what_is_not_by_hand() -> None:
    one = RoleClassifier()
    for role, text in (("a", "yes"), ("a", "yes"), ("a", "no"), ("b", "no")):
        one.add(role, text)
    # q: yes (2.5/4 + .5/2) / 2 = 7/16, no (1.5/4 + 1.5/2) / 2 = 9/16
    # p: yes a 39/64, b 7/32; no a 25/64, b 25/32
    scores = {
        "yes": (39 / 64 * 39 / 64, 7 / 32 * 7 / 32),  # yes is there, no is not
        "no": (25 / 64 * 25 / 64, 25 / 32 * 25 / 32),
        "neither": (25 / 64 * 39 / 64, 25 / 32 * 7 / 32),
    }
    odds = one._fitted()
    for text, (a, b) in scores.items():
        found = [one._without[role] + sum(odds[role].get(f, 0.0) for f in features(text)) for role in ("a", "b")]
        assert found == pytest.approx([math.log(a), math.log(b)]), text
        assert one.role_of(text) == ("a" if a > b else "b"), text
    assert RoleClassifier().role_of("yes") is None


def test_short_texts_are_told_from_long_ones_that_hold_all_their_words() -> None:
    """A voter that gives an answer, and an aggregator that weighs candidates first and then gives one, too."""
    one = RoleClassifier()
    for number in range(30):
        one.add("voter", rf"\boxed{{{number}}}")
        one.add("aggregator", rf"head {number} left: {number} pairs \boxed{{{number}}}")
    assert one.role_of(r"\boxed{7}") == "voter"
    assert one.role_of(r"head 3 left: 3 \boxed{7}") == "aggregator"


def test_a_role_with_few_texts_is_not_favoured_by_what_it_leaves_open() -> None:
    one = RoleClassifier()
    for number in range(200):
        one.add("often", f"common words here {'rare' if number % 20 == 0 else ''}")
    one.add("seldom", "something else")
    assert one.role_of("common words here rare") == "often"
    assert one.role_of("common words here and much that was never heard before") == "often"
    assert one.role_of("something else") == "seldom"


def test_roles_are_told_apart_from_the_step_after_the_reference_on_and_leaking_is_seen() -> None:
    leakage = Leakage(SMALL)
    assert leakage.update(step(1)) == {}  # the reference: twenty texts of each
    assert leakage.closed
    figures = leakage.update(step(2))
    assert figures["behaviour/role_accuracy"] == 1.0
    assert figures["behaviour/verifier/told_apart"] == 1.0
    assert figures["behaviour/verifier/told_apart_lost"] == 0.0
    assert figures["behaviour/verifier/taken_for/solver"] == 0.0
    leaked = leakage.update(step(3, leaking=0.6))
    assert leaked["behaviour/verifier/told_apart"] == pytest.approx(0.4)
    assert leaked["behaviour/verifier/taken_for/solver"] == pytest.approx(0.6)
    assert leaked["behaviour/verifier/told_apart_lost"] == pytest.approx(0.7 - 0.4)  # start: mean of 1 and 0.4 so far
    assert leaked["behaviour/solver/told_apart"] == 1.0
    assert leaked["behaviour/role_accuracy"] == pytest.approx(0.7)


def test_the_classifier_is_never_fitted_again() -> None:
    leakage = Leakage(SMALL)
    leakage.update(step(1))
    before = leakage.state()["counts"]
    for seed in range(2, 9):
        figures = leakage.update(step(seed, leaking=1.0))
    assert leakage.state()["counts"] == before
    assert figures["behaviour/verifier/told_apart"] == 0.0
    assert figures["behaviour/verifier/told_apart_lost"] == 0.0  # it was so in the first measured steps already


def test_the_reference_closes_for_a_role_that_is_seldom_called_and_leaves_out_one_that_comes_later() -> None:
    leakage = Leakage(SMALL)
    for seed in range(REFERENCE_STEPS):
        assert not leakage.closed
        assert leakage.update({**step(seed), "corrector": said("corrector", "Fixed it: 3")}) == {}
    assert leakage.closed
    assert leakage.classifier.texts == {"corrector": REFERENCE_STEPS, "solver": 20, "verifier": 20}
    figures = leakage.update({**step(9), "late": said("late", "hello")})
    assert "behaviour/late/told_apart" not in figures
    assert "behaviour/corrector/told_apart" not in figures  # not called in this step
    assert figures["behaviour/solver/taken_for/corrector"] == 0.0
    assert leakage.classifier.texts == {"corrector": REFERENCE_STEPS, "solver": 20, "verifier": 20}  # and stays closed


def test_steps_in_which_nobody_speaks_and_one_role_alone_give_nothing() -> None:
    leakage = Leakage(SMALL)
    assert leakage.update({"solver": said("solver", None)}) == {}
    assert leakage.steps == 0
    for seed in range(3):
        assert leakage.update({"solver": step(seed)["solver"]}) == {}
    off = Leakage(DynamicsSettings(leakage_turns=0))
    assert [off.update(step(seed)) for seed in range(3)] == [{}, {}, {}]


@pytest.mark.parametrize("kill", [1, 2, 4])
def test_a_resumed_run_goes_on_with_the_same_figures(kill: int) -> None:
    def episodes(number: int) -> list[GradedEpisode]:
        turns = [turn for one in step(number, leaking=0.05 * number).values() for turn in one]
        return [graded(str(number), turns)]

    def monitor() -> DynamicsMonitor:
        return DynamicsMonitor({}, {}, SMALL, workflow=SolveVerifyCorrect())

    whole, parts = monitor(), monitor()
    for number in range(1, 7):
        found = []
        for one in (whole, parts):
            one.before_update(number, episodes(number))
            metrics = one.after_update(number)
            found.append({key: value for key, value in metrics.items() if not key.startswith("time/")})
        assert found[0] == found[1]
        if number == kill:
            state = json.loads(json.dumps(parts.state()))
            parts = monitor()
            parts.restore(state)
    assert found[0]["behaviour/verifier/taken_for/solver"] == pytest.approx(0.3)
    assert "behaviour/verifier/format/solver" in found[0]


def graded(number: str, turns: Sequence[Turn]) -> GradedEpisode:
    episode = Episode(
        id=number,
        task=Task(id=number, question="", answer=None),
        index=0,
        turns=tuple(turns),
        outcome=Outcome(answer=None),
        outcome_class=OutcomeClass.OK,
    )
    return GradedEpisode(episode=episode, team=Grade(status=GradeStatus.WRONG, score=0.0))


def test_roles_of_one_kind_of_claim_share_a_form_and_what_reads_any_text_is_none() -> None:
    assert forms(Voting()) == {"voter": "answer", "aggregator": "choice"}
    assert forms(OrchestratorWorkers()) == {"orchestrator": "orchestrator", "worker": "answer", "synthesizer": "answer"}
    assert forms(SolveVerifyCorrect(answer_format="text")) == {"verifier": "verdict"}
    assert forms(MajorityVote()) == {"voter": "answer"}


def test_formats_are_found_in_the_outputs_of_other_roles() -> None:
    turns = {
        "generator": said("generator", r"It is \boxed{7}.", "Verdict: correct", "no idea", r"\boxed{2} Verdict: wrong"),
        "evaluator": said("evaluator", "Verdict: correct", r"I get \boxed{7}", None),
    }
    figures = format_metrics(turns, EvaluatorOptimizer())
    assert figures == {
        "behaviour/generator/format/evaluator": 0.5,
        "behaviour/generator/confused": 0.25,  # the second; the last is in both forms
        "behaviour/evaluator/format/generator": 0.5,
        "behaviour/evaluator/confused": 0.5,
    }


def test_a_worker_that_plans_and_an_orchestrator_that_answers_are_confused() -> None:
    turns = {
        "orchestrator": said("orchestrator", "STRATEGY 1: count", r"\boxed{4}"),
        "worker": said("worker", "STRATEGY 1: count", r"\boxed{4}", r"\boxed{5}", r"\boxed{6}"),
        "synthesizer": said("synthesizer", r"\boxed{4}"),
    }
    figures = format_metrics(turns, OrchestratorWorkers())
    assert figures["behaviour/orchestrator/confused"] == 0.5
    assert figures["behaviour/worker/confused"] == 0.25
    assert figures["behaviour/worker/format/orchestrator"] == 0.25
    assert "behaviour/worker/format/synthesizer" not in figures  # the same form
    assert figures["behaviour/synthesizer/confused"] == 0.0


@dataclass(frozen=True, kw_only=True)
class Shouting(Workflow):
    """A workflow of a user's own, in which one role has a form and makes no claims."""

    roles: ClassVar[tuple[str, ...]] = ("crier", "writer", "guest")

    def claim(self, role: str, text: str | None, truncated: bool) -> Claim | None:
        if role != "writer":
            return None
        return Claim(kind=ClaimKind.ANSWER, value="x" if text and text.islower() and " " not in text else None)

    def in_form(self, role: str, text: str) -> bool | None:
        return text.isupper() if role == "crier" else super().in_form(role, text)


def test_a_workflow_of_ones_own_may_say_what_a_roles_form_is() -> None:
    assert forms(Shouting()) == {"crier": "crier", "writer": "answer"}
    figures = format_metrics({"writer": said("writer", "HEY", "so"), "guest": said("guest", "HO")}, Shouting())
    assert figures == {
        "behaviour/writer/format/crier": 0.5,
        "behaviour/writer/confused": 0.5,
        "behaviour/guest/format/crier": 1.0,
        "behaviour/guest/format/writer": 0.0,
    }
