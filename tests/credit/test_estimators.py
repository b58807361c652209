"""Advantage estimators against numbers worked out by hand."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecall.credit.estimators import LeaveOneOut, Mean, MeanStd, RunningMean, center, leave_one_out, mean_std
from rolecall.errors import ConfigError

NAN = math.nan
PEER_ESTIMATORS = [MeanStd(), MeanStd(ddof=0), Mean(), LeaveOneOut()]


def array(*rewards):
    return np.array(rewards, dtype=np.float64)


def test_mean_std_divides_by_the_deviation_with_the_stated_ddof():
    # r = 1 0 0 0: mean 1/4, squares 9/16 + 3/16 = 3/4; ddof 1: sqrt(1/4) = 1/2; ddof 0: sqrt(3/16) = sqrt(3)/4
    assert mean_std(array(1, 0, 0, 0), ddof=1, epsilon=0).tolist() == [1.5, -0.5, -0.5, -0.5]
    root = math.sqrt(3)
    assert mean_std(array(1, 0, 0, 0), ddof=0, epsilon=0) == pytest.approx([root, -1 / root, -1 / root, -1 / root])


def test_mean_std_adds_epsilon_to_the_deviation_and_not_to_the_variance():
    # deviation 1/2 with ddof 1; epsilon 1/2 makes the divisor 1
    assert mean_std(array(1, 0, 0, 0), ddof=1, epsilon=0.5).tolist() == [0.75, -0.25, -0.25, -0.25]


def test_zero_or_one_and_plus_or_minus_one_rewards_have_the_same_advantages():
    zero_one, signed = array(1, 0, 1, 0, 0), array(1, -1, 1, -1, -1)
    assert mean_std(zero_one, epsilon=0) == pytest.approx(mean_std(signed, epsilon=0))


def test_center_is_the_difference_to_the_mean():
    assert center(array(1, 0, 0, 1, 0.5)).tolist() == [0.5, -0.5, -0.5, 0.5, 0.0]


@pytest.mark.parametrize(
    ("rewards", "advantages"),
    [
        ((1, 0), (1, -1)),
        ((1, 0, 0), (1, -0.5, -0.5)),
        ((1, 0.5, 0), (0.75, 0, -0.75)),
        ((1, 1, 0), (0.5, 0.5, -1)),
        ((1, 0, 0, 1), (2 / 3, -2 / 3, -2 / 3, 2 / 3)),
    ],
)
def test_leave_one_out_is_the_difference_to_the_mean_of_the_others(rewards, advantages):
    assert leave_one_out(array(*rewards)) == pytest.approx(advantages)


def test_the_running_mean_meets_each_reward_before_it_moves():
    # b: 0, then .95 * 0 + .05 * 1 = .05, then .95 * .05 = .0475, then .95 * .0475 + .05 = .095125
    advantages, baseline = RunningMean(decay=0.95).step([1.0, 0.0, 1.0], None)
    assert advantages == pytest.approx([1.0, -0.05, 0.9525])
    assert baseline == pytest.approx(0.095125)


def test_the_running_mean_goes_on_from_where_it_was_and_can_start_warm():
    assert RunningMean(initial=0.5).step([1.0], None)[0].tolist() == [0.5]
    whole, after = RunningMean().step([1.0, 0.0, 1.0], None)
    first, middle = RunningMean().step([1.0], None)
    rest, end = RunningMean().step([0.0, 1.0], middle)
    assert [*first, *rest] == whole.tolist()
    assert end == after


@pytest.mark.parametrize("estimator", PEER_ESTIMATORS)
@pytest.mark.parametrize("reward", [0.0, 1.0, 0.1, -1.09, 1 / 3])
@pytest.mark.parametrize("num_peers", [1, 2, 3, 7])
def test_equal_rewards_give_exactly_zero_whatever_a_mean_rounds_to(estimator, reward, num_peers):
    assert estimator(np.full(num_peers, reward)).tolist() == [0.0] * num_peers


@pytest.mark.parametrize("estimator", PEER_ESTIMATORS)
def test_one_reward_out_of_eight_is_finite_and_zero(estimator):
    assert estimator(array(NAN, NAN, NAN, 1.0, NAN, NAN, NAN, NAN)).tolist() == [0.0] * 8
    assert estimator(array(NAN, NAN)).tolist() == [0.0, 0.0]


def test_peers_without_a_reward_take_no_part_in_the_mean_of_the_others():
    assert center(array(1, NAN, 0, 0, NAN)) == pytest.approx([2 / 3, 0, -1 / 3, -1 / 3, 0])
    assert mean_std(array(1, NAN, 0, 0, 0), epsilon=0).tolist() == [1.5, 0.0, -0.5, -0.5, -0.5]


REWARDS = st.lists(st.floats(-10, 10).map(lambda reward: round(reward, 3)), min_size=2, max_size=9)


@given(REWARDS, st.randoms(use_true_random=False), st.sampled_from(PEER_ESTIMATORS))
def test_an_advantage_belongs_to_its_reward_wherever_that_stands_among_the_peers(rewards, random, estimator):
    order = list(range(len(rewards)))
    random.shuffle(order)
    straight, shuffled = estimator(array(*rewards)), estimator(array(*(rewards[i] for i in order)))
    assert shuffled == pytest.approx([straight[i] for i in order], abs=1e-9)


@given(REWARDS, st.sampled_from(PEER_ESTIMATORS))
def test_advantages_of_peers_sum_to_zero_and_a_higher_reward_never_has_the_lower_advantage(rewards, estimator):
    advantages = estimator(array(*rewards))
    assert abs(advantages.sum()) < 1e-8 * max(1.0, np.abs(advantages).max())
    by_reward = [advantage for _, advantage in sorted(zip(rewards, advantages, strict=True))]
    assert all(low <= high + 1e-12 for low, high in pairwise(by_reward))


def test_wrong_knobs_of_estimators_are_errors_with_the_value_wanted():
    with pytest.raises(ConfigError, match="ddof is 2; wanted 0"):
        MeanStd(ddof=2)
    with pytest.raises(ConfigError, match="epsilon is -1"):
        MeanStd(epsilon=-1.0)
    with pytest.raises(ConfigError, match=r"decay is 1.0; wanted a number in \[0, 1\)"):
        RunningMean(decay=1.0)
    with pytest.raises(ConfigError, match="initial is nan"):
        RunningMean(initial=NAN)
