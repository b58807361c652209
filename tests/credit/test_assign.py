"""From units to advantages: uneven peers, constant peers, units alone, the running mean by role."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecall.credit import ESTIMATORS, LeaveOneOut, Mean, MeanStd, RunningMean, assign
from rolecall.errors import ConfigError, RolecallError
from rolecall.records import CreditUnit


def unit(peers, reward, number=0, *, role="solver", episode=None):
    episode_id = f"{peers}/{number}" if episode is None else episode
    unit_id = f"{episode_id}/{role}/{number}"
    return CreditUnit(
        id=unit_id,
        role=role,
        policy="shared",
        task_id=peers,
        episode_id=episode_id,
        turn_ids=(unit_id,),
        peers=peers,
        reward=reward,
    )


def units(**rewards):
    return [unit(peers, reward, number) for peers, own in rewards.items() for number, reward in enumerate(own)]


def by_peers(assigned):
    found = {}
    for one in assigned.units:
        found.setdefault(one.peers, []).append(one.advantage)
    return found


def test_uneven_peers_are_each_compared_among_themselves_and_a_constant_group_is_exactly_zero():
    assigned = assign(units(a=[1, 0, 0, 1], b=[1, 1, 1], c=[0, 0, 0, 1]), MeanStd(epsilon=0.0))
    root = 3**0.5 / 2  # a: mean 1/2, deviation sqrt(1/3), so (1/2) / sqrt(1/3)
    found = by_peers(assigned)
    assert found["a"] == pytest.approx([root, -root, -root, root])
    assert found["b"] == [0.0, 0.0, 0.0]
    assert found["c"] == [-0.5, -0.5, -0.5, 1.5]
    assert (assigned.counts.groups, assigned.counts.constant_groups, assigned.counts.alone) == (3, 1, 0)


@pytest.mark.parametrize(("alone", "advantage"), [("zero", 0.0), ("raw", 0.7), ("running_mean", 0.7 - 0.4)])
def test_a_unit_without_peers_follows_the_declared_rule_and_is_counted(alone, advantage):
    step = [*units(a=[1, 0]), unit("lonely", 0.7, role="verifier")]
    assigned = assign(step, MeanStd(), alone, baselines={"verifier": 0.4})
    lonely = assigned.units[-1]
    assert lonely.peers == "lonely"
    assert lonely.alone
    assert lonely.advantage == pytest.approx(advantage)
    assert (assigned.counts.alone, assigned.counts.groups) == (1, 1)
    assert not any(one.alone for one in assigned.units[:-1])


def test_turns_of_one_single_rollout_are_not_peers_of_each_other():
    same = [unit("a", reward, number, episode="e") for number, reward in enumerate([1, 0, 0])]
    assigned = assign(same, MeanStd())
    assert [one.advantage for one in assigned.units] == [0.0, 0.0, 0.0]
    assert (assigned.counts.alone, assigned.counts.groups) == (3, 0)
    two = assign([*same, unit("a", 1.0, 9, episode="f")], Mean())
    assert [one.advantage for one in two.units] == [0.5, -0.5, -0.5, 0.5]
    assert two.counts.alone == 0


def test_samples_of_one_prompt_are_peers_wherever_they_were_drawn():
    same = [unit("a", reward, number, episode="e") for number, reward in enumerate([1, 0, 0])]
    assigned = assign(same, LeaveOneOut(), within_episode=True)
    assert [one.advantage for one in assigned.units] == [1.0, -0.5, -0.5]


def test_the_running_mean_is_kept_by_role_and_goes_from_step_to_step():
    first = assign([unit("a", 1.0), unit("a", 0.5, role="verifier")], RunningMean())
    assert {one.role: one.advantage for one in first.units} == {"solver": 1.0, "verifier": 0.5}
    assert first.baselines == pytest.approx({"solver": 0.05, "verifier": 0.025})
    second = assign([unit("b", 1.0)], RunningMean(), baselines=first.baselines)
    assert [one.advantage for one in second.units] == pytest.approx([0.95])
    assert second.baselines == pytest.approx({"solver": 0.0975, "verifier": 0.025})
    assert second.counts.alone == 0


def test_the_running_mean_for_units_alone_follows_every_unit_of_the_role():
    # ids in order: a/0 (reward 1), a/1 (reward 0), z/0 (reward 1): before z the mean is .95 * .05 = .0475
    assigned = assign([unit("z", 1.0), *units(a=[1, 0])], Mean(), "running_mean")
    assert {one.peers: one.advantage for one in assigned.units if one.alone} == {"z": pytest.approx(1 - 0.0475)}


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
@given(rewards=st.lists(st.sampled_from([0.0, 1.0, 0.3]), min_size=1, max_size=8), random=st.randoms())
def test_advantages_and_baselines_do_not_depend_on_the_order_of_the_units(name, rewards, random):
    step = [*units(a=rewards, b=rewards[::-1]), unit("lonely", 1.0, role="verifier")]
    shuffled = list(step)
    random.shuffle(shuffled)
    estimator = ESTIMATORS[name]()
    assert assign(shuffled, estimator, "running_mean") == assign(step, estimator, "running_mean")


@given(rewards=st.lists(st.sampled_from([0.0, 1.0, 0.3]), min_size=2, max_size=8))
def test_other_peers_in_the_step_change_nothing(rewards):
    together = assign(units(a=rewards, b=[5.0, -5.0, 0.0]), MeanStd())
    by_itself = assign(units(a=rewards), MeanStd())
    assert [one for one in together.units if one.peers == "a"] == list(by_itself.units)


def test_rewards_and_everything_else_of_a_unit_stay_as_they_were():
    step = units(a=[1, 0])
    assigned = assign(step, MeanStd())
    assert [replace(one, advantage=0.0) for one in assigned.units] == step


def test_an_estimator_that_gives_no_finite_number_is_stopped_with_the_numbers():
    with pytest.raises(RolecallError, match=r"gave \[nan, nan\] for the rewards \[1, 0\] of peers a; wanted 2 finite"):
        assign(units(a=[1, 0]), lambda rewards_G: rewards_G * np.nan)
    with pytest.raises(RolecallError, match="wanted 2 finite"):
        assign(units(a=[1, 0]), lambda rewards_G: rewards_G[:1])


def test_an_unknown_rule_for_units_alone_names_the_known_ones():
    with pytest.raises(
        ConfigError, match=r"alone is 'rawe'; wanted one of zero, raw, running_mean; did you mean 'raw'"
    ):
        assign([], MeanStd(), "rawe")


def test_no_units_give_no_advantages_and_no_error():
    assert assign([], MeanStd()).units == ()
