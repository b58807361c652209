"""Which candidates go on: the paper's three rules, what happens where a class has too few, and what is counted.

Section numbers are those of MarsRL (arXiv 2511.11373), 3.2.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecall.pipeline.picks import Pick, pick

RIGHT, WRONG, UNKNOWN = 1.0, 0.0, None
scores_of = st.lists(st.sampled_from([RIGHT, WRONG, UNKNOWN]), max_size=16)
rules = st.sampled_from(["adaptive", "balanced", "random"])
preferences = st.sampled_from(["low", "high", None])


def classes(scores: list[float | None], found: Pick) -> Counter[float | None]:
    return Counter(scores[place] for place in found.chosen)


@pytest.mark.parametrize(
    ("scores", "rule", "prefer", "wanted", "shortfall"),
    [
        # adaptive: a verifier gets wrong solutions, a corrector right reports, first
        ([1, 0, 1, 0, 1, 1, 1, 1], "adaptive", "low", {0: 2}, 0),
        ([1, 0, 1, 0, 1, 1, 1, 1], "adaptive", "high", {1: 2}, 0),
        ([1, 0, 1, 1, 1, 1, 1, 1], "adaptive", "low", {0: 1, 1: 1}, 1),
        ([1, 1, 1, 1, 1, 1, 1, 1], "adaptive", "low", {1: 2}, 2),
        ([0, 0, 0, 0], "adaptive", "high", {0: 2}, 2),
        # balanced: one of each
        ([1, 0, 0, 0, 0, 0, 0, 0], "balanced", "low", {0: 1, 1: 1}, 0),
        ([0, 0, 0, 0], "balanced", "low", {0: 2}, 1),
        ([1, 1, 1, 1], "balanced", "high", {1: 2}, 1),
        # a candidate that nobody could score comes last, and counts as a fill
        ([None, None, 0], "adaptive", "low", {0: 1, None: 1}, 1),
        ([None, 1, None], "balanced", "low", {1: 1, None: 1}, 1),
        ([None, None, None], "adaptive", "high", {None: 2}, 2),
        # fewer than k: all of them, and nothing is filled that is not there
        ([0], "adaptive", "low", {0: 1}, 0),
        ([1], "adaptive", "low", {1: 1}, 1),
        ([0], "balanced", "low", {0: 1}, 0),
        ([], "adaptive", "low", {}, 0),
        ([1, 0], "random", "low", {0: 1, 1: 1}, 0),
    ],
)
def test_two_of_a_stage_are_picked_as_the_paper_says(scores, rule, prefer, wanted, shortfall):
    for seed in range(20):
        found = pick(scores, 2, rule, prefer, random.Random(seed))
        assert classes(scores, found) == Counter(wanted), seed
        assert found.shortfall == shortfall


@pytest.mark.parametrize(("prefer", "wanted"), [("low", {0: 2, 1: 1}), ("high", {0: 1, 1: 2})])
def test_balanced_gives_the_odd_one_to_the_preferred_class(prefer, wanted):
    scores = [0.0, 1.0] * 4
    for seed in range(20):
        assert classes(scores, pick(scores, 3, "balanced", prefer, random.Random(seed))) == Counter(wanted)


def test_balanced_without_a_preference_gives_the_odd_one_to_either():
    scores = [0.0, 1.0] * 4
    found = {pick(scores, 1, "balanced", None, random.Random(seed)).chosen[0] % 2 for seed in range(40)}
    assert found == {0, 1}


def test_random_and_adaptive_without_a_preference_ignore_the_scores():
    """Each of 8 candidates in 2 of 8 draws: 4,000 draws give 1,000 each, give or take 4 standard deviations (27)."""
    for rule, prefer in (("random", "low"), ("adaptive", None)):
        seen = Counter[int]()
        for seed in range(4000):
            seen.update(pick([1, 0, 0, 0, None, 0, 0, 0], 2, rule, prefer, random.Random(seed)).chosen)
        assert all(abs(count - 1000) < 4 * 27.4 for count in seen.values()), seen
        assert len(seen) == 8


def test_ties_within_a_class_are_broken_uniformly():
    seen = Counter[int]()
    for seed in range(3000):
        seen.update(pick([0, 1, 0, 1, 0, 1], 1, "adaptive", "low", random.Random(seed)).chosen)
    assert set(seen) == {0, 2, 4}
    assert all(abs(count - 1000) < 4 * 25.8 for count in seen.values()), seen


def test_a_partial_score_belongs_to_the_class_that_it_is_nearer_to():
    assert pick([0.49, 0.5], 1, "adaptive", "low", random.Random(0)).chosen == (0,)
    assert pick([0.49, 0.5], 1, "adaptive", "high", random.Random(0)).chosen == (1,)


@given(scores_of, st.integers(1, 6), rules, preferences, st.integers(0, 2**32))
def test_always_k_or_all_each_once_and_the_preferred_first(scores, k, rule, prefer, seed):
    found = pick(scores, k, rule, prefer, random.Random(seed))
    assert len(found.chosen) == min(k, len(scores))
    assert list(found.chosen) == sorted(set(found.chosen))
    assert all(0 <= place < len(scores) for place in found.chosen)
    assert 0 <= found.shortfall <= len(found.chosen)
    assert found == pick(scores, k, rule, prefer, random.Random(seed))
    if rule == "random" or (rule == "adaptive" and prefer is None):
        assert found.shortfall == 0
        return
    chosen, there = classes(scores, found), Counter(scores)
    if rule == "adaptive":
        first, second = (WRONG, RIGHT) if prefer == "low" else (RIGHT, WRONG)
        assert chosen[first] == min(k, there[first])
        assert chosen[second] == min(k - chosen[first], there[second])
        assert found.shortfall == len(found.chosen) - chosen[first]
    else:
        if min(there[WRONG], there[RIGHT]) >= (k + 1) // 2:
            assert abs(chosen[WRONG] - chosen[RIGHT]) <= k % 2
            assert found.shortfall == 0
        assert chosen[UNKNOWN] == max(0, len(found.chosen) - there[WRONG] - there[RIGHT])
