"""From a workflow that is run to advantages: the parts meet on real episodes, with a scripted engine."""

from __future__ import annotations

import pytest

from rolecall.algorithms import make_algorithm
from rolecall.engines.scripted import ScriptedEngine
from rolecall.errors import EngineError
from rolecall.grading.episodes import grade_episodes
from rolecall.records import OutcomeClass, Sampling, Task
from rolecall.rollout.collector import Collector, CollectorSettings
from rolecall.rollout.render import PlainRenderer
from rolecall.rollout.transcript import RoleSettings
from rolecall.testing_credit import RIGHT, WRONG
from rolecall.workflows.solve_verify_correct import SolveVerifyCorrect

TASK = Task(id="sum", question="6 * 7", answer="42")


class ExactPool:
    """Grades by equality, in this process."""

    def grade(self, pairs):
        return [RIGHT if answer == task.answer else WRONG for answer, task in pairs]


class Script:
    """The replies of each role, by the number of calls that the role has had."""

    def __init__(self, **replies):
        self.replies = {role: iter(texts) for role, texts in replies.items()}

    def __call__(self, request):
        reply = next(self.replies[request.key.role])
        return EngineError("the engine lost this request") if reply is None else reply


def run(script, n, **settings):
    workflow = SolveVerifyCorrect(max_rounds=1)
    sampling = Sampling(max_tokens=64)
    roles = {
        role: RoleSettings(policy="shared", sampling=sampling, renderer=PlainRenderer()) for role in workflow.roles
    }
    # one episode at a time, so that the script's replies go to the episodes in their order
    collector = Collector(workflow, roles, ScriptedEngine(script), CollectorSettings(max_concurrent=1, **settings))
    try:
        collected = collector.collect(make_algorithm("dr_mas", {"n": n}).sampler.plans([TASK]))
    finally:
        collector.close()
    return grade_episodes(collected.trained, ExactPool())


def by_call(result, graded):
    advantages = result.advantages
    return [[round(advantages[turn.id], 3) for turn in one.episode.turns] for one in graded]


def test_each_role_of_the_loop_is_paid_for_its_own_truth():
    script = Script(
        solver=[r"\boxed{42}", r"\boxed{41}", r"\boxed{41}"],
        verifier=["Verdict: correct", "Verdict: wrong", "I cannot tell"],
        corrector=[r"\boxed{42}", "I give up"],
    )
    graded = run(script, 3)
    result = make_algorithm("agent_grpo", {"estimator": "mean"}).advantages(graded)
    rewards = [[one.rewards[turn.id].total for turn in one.episode.turns] for one in result.scored]
    assert rewards == [[1.0, 1.0], [0.0, 1.0, 1.0], [0.0, 0.0, 0.0]]
    # verdicts about wrong answers: 1 and 0; the one about the right answer is alone
    assert by_call(result, graded) == [[0.667, 0.0], [-0.333, 0.5, 0.5], [-0.333, -0.5, -0.5]]
    assert result.counts.alone == 1
    assert result.metrics["reward/verifier/unparsed"] == pytest.approx(1 / 3)
    assert result.metrics["reward/corrector/unparsed"] == 0.5


def test_the_teams_outcome_reaches_every_turn():
    script = Script(
        solver=[r"\boxed{42}", r"\boxed{41}"],
        verifier=["Verdict: correct", "Verdict: wrong"],
        corrector=[r"\boxed{40}"],
    )
    graded = run(script, 2)
    result = make_algorithm("mas_grpo", {"n": 2, "estimator": "mean"}).advantages(graded)
    assert by_call(result, graded) == [[0.5, 0.5], [-0.5, -0.5, -0.5]]


def test_the_calls_before_a_corrector_that_fails_count_with_zero():
    script = Script(
        solver=[r"\boxed{42}", r"\boxed{41}"],
        verifier=["Verdict: correct", "Verdict: wrong"],
        corrector=[None],
    )
    graded = run(script, 2)
    assert [one.episode.outcome_class for one in graded] == [OutcomeClass.OK, OutcomeClass.ERROR]
    result = make_algorithm("agent_grpo").advantages(graded)
    assert [reward.total for reward in result.scored[1].rewards.values()] == [0.0, 0.0]
    assert result.metrics["reward/verifier/failed"] == 0.5
    assert result.metrics["reward/solver/correct"] == 0.5


def test_the_calls_before_a_corrector_that_fails_are_not_trained_when_failures_are_dropped():
    script = Script(
        solver=[r"\boxed{42}", r"\boxed{41}"],
        verifier=["Verdict: correct", "Verdict: wrong"],
        corrector=[None],
    )
    graded = run(script, 2, on_failure="drop")
    assert [one.episode.index for one in graded] == [0]
    assert make_algorithm("agent_grpo").advantages(graded).counts.alone == 2
