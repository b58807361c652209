"""Figures of the reasoning system from scripted episodes, each number worked out by hand.

Three tasks, two samples each, `passes=2`, `max_errors=2`, `max_iterations=3`, `max_solves=2`; S is a solution, V a
report, C a correction; + is right or "correct", - wrong:

    a/0  S+ V+ V+             accepted, right
    a/1  S- V- C+ V+ V+       accepted, right: gained
    b/0  S+ V- C- V- C- V-    two failures in a row: nobody passed, so the earliest is taken: right
    b/1  S, S cut off         no candidate
    c/0  S+ and the verifier fails at its engine: wrong, lost
    c/1  S- V+ V+             accepted, wrong
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import replace

import pytest

from rolecall.engines.base import Request
from rolecall.engines.scripted import Answer, Scripted, ScriptedEngine
from rolecall.errors import EngineError
from rolecall.evaluate_system import SystemEvaluation, ending, summarise_system
from rolecall.grading.episodes import grade_episodes
from rolecall.grading.pool import GraderPool
from rolecall.intervals import Z95, Estimate
from rolecall.records import Completion, EndpointReply, Grade, GradedEpisode, GradeStatus, Sampling, Stop, Task
from rolecall.rollout.collector import Collector
from rolecall.rollout.render import PlainRenderer
from rolecall.rollout.samplers import IndependentEpisodes
from rolecall.rollout.transcript import RoleSettings
from rolecall.workflows.solve_verify_correct import SolveVerifyCorrect

TASKS = [Task(id=name, question=name, answer="4") for name in "abc"]
RIGHT, WRONG = r"\boxed{4}", r"\boxed{3}"  # 9 bytes and an end token: 10 tokens
PASS, FAIL = "Verdict: correct", "Verdict: wrong"  # 17 and 15 tokens
CUT = Scripted(text=WRONG, cut_off=True)  # 9 tokens
BROKEN = EngineError("out of order")
SCRIPTS: dict[str, dict[str, list[Answer]]] = {
    "a/0": {"solver": [RIGHT], "verifier": [PASS, PASS]},
    "a/1": {"solver": [WRONG], "verifier": [FAIL, PASS, PASS], "corrector": [RIGHT]},
    "b/0": {"solver": [RIGHT], "verifier": [FAIL, FAIL, FAIL], "corrector": [WRONG, WRONG]},
    "b/1": {"solver": [CUT, CUT]},
    "c/0": {"solver": [RIGHT], "verifier": [BROKEN]},
    "c/1": {"solver": [WRONG], "verifier": [PASS, PASS]},
}


def play(scripts: dict[str, dict[str, list[Answer]]], samples: int = 2) -> list[GradedEpisode]:
    """Graded episodes, each with what its roles say, call by call."""
    workflow = SolveVerifyCorrect(mode="system", passes=2, max_errors=2, max_iterations=3, max_solves=2)
    settings = RoleSettings(policy="p", sampling=Sampling(), renderer=PlainRenderer())
    tasks = [task for task in TASKS if f"{task.id}/0" in scripts]
    graded: list[GradedEpisode] = []
    with GraderPool() as graders:
        for plan in IndependentEpisodes(n=samples).plans(tasks):
            script = scripts[f"{plan.task.id}/{plan.index}"]
            engine = ScriptedEngine(functools.partial(say, script))
            collector = Collector(workflow, dict.fromkeys(workflow.roles, settings), engine)
            graded += grade_episodes(collector.collect([plan]).episodes, graders)
            collector.close()
    return graded


def say(script: dict[str, list[Answer]], request: Request) -> Answer:
    return script[request.key.role][request.key.call]


@pytest.fixture(scope="module")
def episodes() -> list[GradedEpisode]:
    return play(SCRIPTS)


@pytest.fixture(scope="module")
def found(episodes: list[GradedEpisode]) -> SystemEvaluation:
    return summarise_system(episodes)


def means(estimates: Mapping[str, Estimate]) -> dict[str, tuple[float, int]]:
    return {name: (pytest.approx(one.mean), one.n) for name, one in estimates.items()}


def test_each_episode_takes_the_course_that_the_others_figures_stand_on(episodes: list[GradedEpisode]) -> None:
    courses = {
        f"{g.episode.task.id}/{g.episode.index}": "".join(turn.role[0].upper() for turn in g.episode.turns)
        for g in episodes
    }
    assert courses == {"a/0": "SVV", "a/1": "SVCVV", "b/0": "SVCVCV", "b/1": "SS", "c/0": "S", "c/1": "SVV"}
    assert [ending(g) for g in episodes] == ["accepted", "accepted", "fallback", "no_candidate", "failed", "accepted"]


def test_solver_and_system_are_measured_on_the_same_samples(found: SystemEvaluation) -> None:
    assert found.k == 2
    assert means({"solver": found.solver.avg, "system": found.system.avg}) == {"solver": (0.5, 6), "system": (0.5, 6)}
    assert found.solver.pass_at_k.mean == 1.0  # one of two is right in every task
    assert found.system.pass_at_k.mean == pytest.approx(2 / 3)
    assert found.solver.majority_at_k.mean == 0.5  # 4 against 3 in every task
    assert found.system.majority_at_k.mean == pytest.approx(2 / 3)  # 4 and 4; 4 alone; 3 alone


def test_the_difference_is_paired_and_its_interval_is_clustered_by_task(found: SystemEvaluation) -> None:
    difference = found.difference
    half = Z95 * math.sqrt(3 / 2 * (1**2 + 0**2 + (-1) ** 2)) / 6  # sums by task +1, 0, -1 about their mean 0
    assert (difference.mean, difference.n, difference.num_tasks) == (0.0, 6, 3)
    assert (difference.low, difference.high) == (pytest.approx(-half), pytest.approx(half))
    assert (found.gained.mean, found.lost.mean) == (pytest.approx(1 / 6), pytest.approx(1 / 6))


def test_rates_of_the_ends_add_up_and_accuracy_is_told_by_end(found: SystemEvaluation) -> None:
    assert means(found.ends) == {
        "accepted": (3 / 6, 6),
        "fallback": (1 / 6, 6),
        "no_candidate": (1 / 6, 6),
        "failed": (1 / 6, 6),
    }
    assert means(found.accuracy) == {"accepted": (2 / 3, 3), "fallback": (1.0, 1)}


def test_error_detection_is_that_of_first_reports_and_of_all_reports(found: SystemEvaluation) -> None:
    assert means(found.first_verdict) == {"recall": (1 / 2, 2), "false_alarm": (1 / 2, 2)}
    verifier = means(found.roles["verifier"])
    assert verifier["recall"] == (3 / 5, 5)  # of a/1 1, of b/0 2; c/1 misses twice
    assert verifier["false_alarm"] == (1 / 5, 5)  # of b/0 1; a/0 and a/1 pass twice each


def test_tokens_are_those_of_every_role_and_of_first_solutions(found: SystemEvaluation) -> None:
    tokens = found.to_dict()["tokens"]
    solver, verifier, corrector = 5 * 10 + 2 * 9, 6 * 17 + 4 * 15, 3 * 10
    assert tokens["generated"] == {
        "solver": solver,
        "verifier": verifier,
        "corrector": corrector,
        "all": solver + verifier + corrector,
    }
    assert tokens["solver_alone"] == 5 * 10 + 9  # the second try of b/1 is the system's
    assert tokens["system_over_solver"] == pytest.approx((solver + verifier + corrector) / 59)
    assert tokens["per_episode"]["verifier"] == verifier / 6
    assert tokens["uncounted_replies"] == 0


def test_rounds_and_calls_are_counted_over_all_episodes(found: SystemEvaluation) -> None:
    data = found.to_dict()
    assert data["rounds"] == {
        "mean": pytest.approx(10 / 6),
        "max": 3,
        "episodes_by_rounds": {"0": 2, "2": 2, "3": 2},
    }
    assert data["calls_per_episode"] == {"solver": 7 / 6, "verifier": pytest.approx(10 / 6), "corrector": 0.5}
    assert data["outcomes"]["error"] == 1
    assert sum(data["outcomes"].values()) == 6


def test_an_endpoints_own_counts_are_taken_and_replies_without_one_are_told() -> None:
    def wrote(text: str, num_tokens: int | None) -> Completion:
        reply = EndpointReply(text=text, reasoning="long", num_tokens=num_tokens, num_prompt_tokens=5)
        return Completion(token_ids=(), logprobs=(), versions=(), stop=Stop.EOS, endpoint=reply)

    script = {"solver": [wrote(RIGHT, 400)], "verifier": [wrote(PASS, 70), wrote(PASS, None)]}
    tokens = summarise_system(play({"a/0": script}, samples=1)).to_dict()["tokens"]
    assert tokens["generated"] == {"solver": 400, "verifier": 70, "all": 470}
    assert tokens["prompt"] == {"solver": 5, "verifier": 10, "all": 15}
    assert (tokens["solver_alone"], tokens["uncounted_replies"]) == (400, 1)


def test_an_episode_that_could_not_be_graded_is_left_out_of_both_sides(episodes: list[GradedEpisode]) -> None:
    failed = Grade(status=GradeStatus.FAILED, score=None)
    one = episodes[0]  # a/0, right on both sides
    others = episodes[1:]
    for broken in (replace(one, team=failed), replace(one, answers=dict.fromkeys(one.answers, failed))):
        found = summarise_system([broken, *others])
        assert found.grader_failures == 1
        assert (found.solver.avg.n, found.system.avg.n, found.difference.n) == (5, 5, 5)
        assert found.solver.avg.mean == pytest.approx(2 / 5)
        assert found.ends["accepted"].n == 6
        assert found.accuracy["accepted"].n == 2


def test_episodes_of_one_end_leave_the_other_figures_out() -> None:
    data = summarise_system(play({"b/0": SCRIPTS["b/1"]}, samples=1)).to_dict()
    assert "accuracy_by_end" in data
    assert data["accuracy_by_end"] == {}
    assert data["first_verdict"] == {}
    assert data["ends"]["no_candidate"]["mean"] == 1.0
    assert data["rounds"]["mean"] == 0.0
