"""What a user runs on a reward or an algorithm of their own: each fault is found, each built-in passes."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace

import pytest

from rolecall.algorithms import ALGORITHMS, Algorithm, make_algorithm
from rolecall.credit import RunningMean
from rolecall.records import Reward
from rolecall.rewards import AgentSpecific, Format, Mixed, TeamOutcome
from rolecall.testing_credit import check_algorithm, check_reward


def each(value):
    return lambda graded: {turn.id: value(graded, turn) for turn in graded.episode.turns}


@pytest.mark.parametrize(
    "reward", [TeamOutcome(), AgentSpecific(), Format(), Mixed(weights={"team": 1.0, "correct": 0.5})]
)
def test_the_rewards_of_the_package_have_no_complaints(reward):
    assert check_reward(reward) == []


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_the_algorithms_of_the_package_have_no_complaints(name):
    assert check_algorithm(make_algorithm(name)) == []


COUNTER = itertools.count()


@pytest.mark.parametrize(
    ("reward", "complaint"),
    [
        (lambda graded: None, "returned NoneType; wanted a mapping"),
        (lambda graded: {}, "gives nothing for turn 'a/0/0'; wanted one for every turn"),
        (lambda graded: {**TeamOutcome()(graded), "x": Reward(parts={"p": 1.0}, total=1.0)}, "names turn 'x'"),
        (each(lambda graded, turn: 1.0), "is 1.0; wanted a `Reward`"),
        (each(lambda graded, turn: Reward(parts={"p": 1.0}, total=float("nan"))), "wanted finite numbers"),
        (each(lambda graded, turn: Reward(parts={}, total=1.0)), "without parts"),
        (each(lambda graded, turn: Reward(parts={"p": 1.0}, total=float(next(COUNTER)))), "changed when asked again"),
        (
            each(lambda graded, turn: Reward(parts={"p": 1.0}, total=graded.team.score)),
            "`team` is False; a broadcast outcome must be named",
        ),
        (
            each(lambda graded, turn: Reward(parts={"p": 1.0}, total=graded.team.score or 0.0, team=True)),
            "when the grader failed; wanted total=None",
        ),
    ],
)
def test_each_fault_of_a_reward_is_found_in_words(reward, complaint):
    complaints = check_reward(reward)
    assert any(complaint in line for line in complaints), complaints


def test_an_estimator_that_pays_constant_peers_is_found():
    algorithm = Algorithm(name="mine", estimator=lambda rewards_G: rewards_G - 0.3)
    assert any("wanted exactly 0" in line for line in check_algorithm(algorithm))


@dataclass(frozen=True, kw_only=True, slots=True)
class First:
    """Looks at where a reward stands among its peers, which carries no meaning, and at how often it was called."""

    calls: list[int] = field(default_factory=list)

    def __call__(self, rewards_G):
        self.calls.append(1)
        return (rewards_G - rewards_G.mean()) * len(self.calls)


def test_an_estimator_that_remembers_what_it_saw_is_found():
    complaints = check_algorithm(Algorithm(name="mine", estimator=First()))
    assert any("order of the episodes" in line for line in complaints)
    assert any("restored state" in line for line in complaints)


class Forgetful(Algorithm):
    """Trains turns without a reward, and leaves others out."""

    def advantages(self, graded, state=None):
        result = super().advantages(graded, state or {})
        first, second, *rest = result.units
        return replace(result, units=(first, replace(second, turn_ids=first.turn_ids), *rest), state={"now": object()})


def test_turns_in_two_units_or_in_none_and_a_state_that_is_no_json_are_found():
    complaints = check_algorithm(Forgetful(name="forgetful", estimator=RunningMean()))
    assert any("wanted each turn once" in line for line in complaints)
    assert any("is in no unit" in line for line in complaints)
    assert any("cannot be checkpointed" in line for line in complaints)
