"""From a tick's candidates to what is trained: who is compared with whom, and what no spread comes to.

Acceptance check 2 of the method: advantages sum to 0 in each group of one input, groups of other agents or inputs are
never mixed, and a group without spread gives a loss of 0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import pytest
from pipeline_builders import by_candidate, engine_of, source, steps, turn_of

from learner_helpers import identical, learner_of, model_spec, snapshot
from rolecall.algorithms.base import CreditResult
from rolecall.algorithms.make import make_algorithm
from rolecall.algorithms.named import marsrl
from rolecall.engines.base import Request
from rolecall.errors import RolecallError
from rolecall.learner.config import LearnerConfig
from rolecall.learner.samples import build_samples
from rolecall.pipeline.schedule import Schedule
from rolecall.records import GradedEpisode, Sampling
from rolecall.rollout.agentic import AgenticGroups

SMALL = AgenticGroups(n=4, k=2, stages=5)


@pytest.fixture(scope="module")
def ticks() -> list[GradedEpisode]:
    """One tick in steady state: three tasks at each of five stages; the solver of every third task is always wrong."""

    def third_never(request: Request) -> str:
        hard = int(str(request.task.answer)) % 3 == 0
        return "-1" if hard and request.key.role == "solver" else by_candidate(request, flags=2)

    with source(engine_of(third_never), sampler=SMALL, tasks_per_step=3) as made:
        return list(steps(made, 6)[-1].graded)


@pytest.fixture(scope="module")
def credit(ticks: list[GradedEpisode]) -> CreditResult:
    return marsrl(n=4).advantages(ticks)


def groups_of(result: CreditResult) -> dict[str, list]:
    found = defaultdict(list)
    for unit in result.units:
        found[unit.peers].append(unit)
    return found


def test_advantages_sum_to_0_in_each_group_of_one_input(credit):
    groups = groups_of(credit)
    assert len(groups) == 3 * (1 + 2 + 2 + 2 + 2)
    assert any(unit.advantage > 0 for units in groups.values() for unit in units)
    for units in groups.values():
        assert len(units) == 4
        assert abs(sum(unit.advantage for unit in units)) < 1e-9
        assert not any(unit.alone for unit in units)


def test_two_right_of_four_have_an_advantage_of_plus_and_minus_1(credit):
    """Rewards 0, 1, 0, 1: mean 1/2, deviation 1/2 (of all four), so (1 - 1/2) / 1/2 = 1, but for the epsilon."""
    spread = [units for units in groups_of(credit).values() if {unit.reward for unit in units} == {0.0, 1.0}]
    assert len(spread) > 10
    halves = [units for units in spread if sum(unit.reward for unit in units) == 2]
    estimator = marsrl().estimator
    scale = 1.0 if estimator.ddof == 0 else (3 / 4) ** 0.5
    for units in halves:
        for unit in units:
            assert unit.advantage == pytest.approx((2 * unit.reward - 1) * scale, rel=1e-3)


def test_groups_of_other_agents_calls_inputs_and_tasks_are_never_mixed(ticks, credit):
    turns = {turn_of(one).id: one for one in ticks}
    for units in groups_of(credit).values():
        members = [turns[turn_id] for unit in units for turn_id in unit.turn_ids]
        assert len({turn_of(one).key for one in members}) == 1
        assert len({turn_of(one).prompt_ids for one in members}) == 1
        assert len({one.episode.task.id for one in members}) == 1
        assert len({tuple(turn.id for turn in one.episode.context) for one in members}) == 1
        assert sorted(turn_of(one).candidate for one in members) == [0, 1, 2, 3]


def test_inputs_that_read_alike_on_two_paths_are_two_groups(ticks, credit):
    """Two wrong solutions "-1" of one task, each with its own reports: the same prompt, and other paths."""
    by_prompt = defaultdict(set)
    for one in ticks:
        by_prompt[one.episode.task.id, turn_of(one).key, turn_of(one).prompt_ids].add(turn_of(one).peers)
    assert max(len(peers) for peers in by_prompt.values()) == 2


def test_a_group_without_spread_has_advantages_of_exactly_0(credit):
    flat = [units for units in groups_of(credit).values() if len({unit.reward for unit in units}) == 1]
    assert flat
    assert {unit.advantage for units in flat for unit in units} == {0.0}


def test_turns_of_a_group_that_the_reward_mixes_up_are_refused(ticks):
    from dataclasses import replace

    one, other = (next(each for each in ticks if turn_of(each).role == role) for role in ("solver", "verifier"))
    turn = replace(turn_of(other), peers=turn_of(one).peers)
    mixed = replace(other, episode=replace(other.episode, turns=(turn,)))
    with pytest.raises(RolecallError, match="compares the candidates of one call"):
        marsrl(n=4).advantages([one, mixed])


def test_groups_without_spread_make_no_step_and_change_no_other(ticks, credit, tiny_model: Callable[..., str]):
    """Dynamic sampling: they are neither in the loss nor in its denominator."""
    folder, sampling = tiny_model(), dict.fromkeys(("solver", "verifier", "corrector"), Sampling())
    turns = {turn_of(one).id: turn_of(one) for one in ticks}
    flat = {unit.id for units in groups_of(credit).values() if len({u.reward for u in units}) == 1 for unit in units}

    def after(units: Sequence) -> tuple[dict, dict]:
        learner = learner_of(model_spec("shared", folder), LearnerConfig(lr=1e-3), marsrl(n=4).loss)
        samples = build_samples(units, turns, sampling=sampling)
        report = learner.update(samples, 1)
        return snapshot(learner), dict(report.metrics)

    fresh = snapshot(learner_of(model_spec("shared", folder)))
    none, _ = after([unit for unit in credit.units if unit.id in flat])
    assert identical(none, fresh)
    every, _ = after(credit.units)
    rest, _ = after([unit for unit in credit.units if unit.id not in flat])
    assert not identical(every, fresh)
    worst = max(float((every[name] - rest[name]).abs().max()) for name in every)
    assert worst < 1e-6


def test_a_broadcast_outcome_is_compared_within_the_groups_too():
    """The arm of the paper's argument: every turn gets the mean outcome below it, peers are those of one input."""
    algorithm = make_algorithm("marsrl", {"n": 4, "reward": {"name": "team_outcome"}})
    assert algorithm.broadcasts
    engine = engine_of(lambda request: by_candidate(request, flags=2))
    with source(engine, sampler=SMALL, schedule=Schedule(), tasks_per_step=2, back_up=True) as made:
        graded = made.collect(1).graded
    result = algorithm.advantages(graded)
    for units in groups_of(result).values():
        assert abs(sum(unit.advantage for unit in units)) < 1e-9
    solver = {turn_of(one).candidate: one.team.score for one in graded if turn_of(one).role == "solver"}
    assert 0 < solver[0] < 1
    assert all(reward.team for one in result.scored for reward in one.rewards.values())
