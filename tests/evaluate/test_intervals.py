"""Intervals and k-sample figures, against numbers worked out by hand."""

import json
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecall.intervals import majority_at_k, paired_difference, pass_at_k, proportion, wilson


def test_wilson_of_five_in_ten_is_the_textbook_interval():
    estimate = wilson(5, 10)
    assert estimate.low == pytest.approx(0.2366, abs=1e-4)
    assert estimate.high == pytest.approx(0.7634, abs=1e-4)


def test_one_sample_a_task_gives_the_wilson_interval():
    clustered = proportion([[1.0], [0.0], [1.0], [0.0], [1.0], [0.0], [1.0], [0.0], [1.0], [0.0]])
    plain = wilson(5, 10)
    assert (clustered.low, clustered.high) == pytest.approx((plain.low, plain.high))


def test_samples_that_always_agree_count_as_one_per_task():
    once = proportion([[1.0]] * 6 + [[0.0]] * 6)
    repeated = proportion([[1.0] * 8] * 6 + [[0.0] * 8] * 6)
    assert (repeated.low, repeated.high) == pytest.approx((once.low, once.high))
    assert repeated.n == 96
    assert repeated.num_tasks == 12


def test_an_all_right_set_still_has_an_interval():
    estimate = proportion([[1.0, 1.0]] * 50)
    assert estimate.mean == 1.0
    assert 0.9 < estimate.low < 1.0
    assert estimate.high == 1.0


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_an_interval_holds_its_mean_at_both_ends(value):
    for tasks in range(1, 60):
        for samples in (1, 2, 3):
            for estimate in (proportion([[value] * samples] * tasks), wilson(value * tasks, tasks)):
                assert estimate.low <= estimate.mean <= estimate.high


def test_ragged_clusters_are_covered_as_often_as_the_interval_says():
    draw, covered = random.Random(0), 0
    for _ in range(500):
        tasks = [[float(draw.random() < 0.5)] * draw.choice((1, 1, 1, 30)) for _ in range(60)]
        estimate = proportion(tasks)
        covered += estimate.low <= 0.5 <= estimate.high
    assert 0.91 < covered / 500 < 0.99


def test_no_samples_give_nan_and_zero():
    assert math.isnan(proportion([[], []]).mean)
    assert proportion([]).n == 0


def test_a_paired_difference_by_hand():
    # task sums 1, 0, 1, 0 of one pair each: mean .5, spread 4 * .25 = 1, half = 1.96 * sqrt(4/3) / 4
    estimate = paired_difference([[1.0], [0.0], [1.0], [0.0]])
    assert estimate.mean == 0.5
    assert 0.5 - estimate.low == pytest.approx(1.959964 * math.sqrt(4 / 3) / 4, abs=1e-6)
    assert estimate.high == 1.0  # a difference of two rates is at most 1


def test_a_difference_on_one_task_says_nothing_and_is_still_a_number():
    estimate = paired_difference([[1.0, 0.0]])
    assert (estimate.mean, estimate.low, estimate.high) == (0.5, -1.0, 1.0)
    assert json.loads(json.dumps(estimate.to_dict(), allow_nan=False))["n"] == 2


def test_pass_at_k_by_hand():
    assert pass_at_k(1, 4, 1) == 0.25
    assert pass_at_k(1, 4, 2) == pytest.approx(0.5)  # 1 - C(3,2)/C(4,2) = 1 - 3/6
    assert pass_at_k(4, 4, 4) == 1.0
    with pytest.raises(ValueError, match="k=5"):
        pass_at_k(1, 4, 5)


def test_majority_shares_ties_and_ignores_missing_answers():
    assert majority_at_k(["7", "7", "8"], [True, True, False], 3) == 1.0
    assert majority_at_k(["7", "8"], [True, False], 2) == 0.5
    assert majority_at_k([None, None, "8"], [False, False, False], 3) == 0.0
    assert majority_at_k([None], [False], 1) == 0.0


@given(st.lists(st.lists(st.sampled_from([0.0, 1.0]), max_size=5), max_size=20))
def test_the_interval_holds_the_mean_and_stays_in_the_unit_range(clusters):
    estimate = proportion(clusters)
    if estimate.n:
        assert 0.0 <= estimate.low <= estimate.mean + 1e-12
        assert estimate.mean - 1e-12 <= estimate.high <= 1.0
