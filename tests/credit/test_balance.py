"""Verdicts balanced between the classes: numbers by hand, what is left alone, and why rewards cannot do it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolecall.algorithms import make_algorithm
from rolecall.config import make_config
from rolecall.credit.balance import balance, class_weights, truths
from rolecall.credit.estimators import mean_std
from rolecall.credit.units import Scored
from rolecall.errors import ConfigError
from rolecall.records import CreditUnit, GradeStatus
from rolecall.rewards import AgentSpecific
from rolecall.testing_credit import Said, check_algorithm, made_episode, report, solution

RIGHT, WRONG = GradeStatus.RIGHT, GradeStatus.WRONG
EXACT = {"estimator": {"name": "mean_std", "ddof": 0, "epsilon": 0.0}}


def step():
    """One task: two verdicts about right answers (rewards 1, 0), four about wrong ones (1, 0, 0, 0)."""
    verdicts = [(True, "correct"), (True, "wrong"), (False, "wrong")] + [(False, "correct")] * 2 + [(False, "unparsed")]
    return [made_episode(solution(right), report(said), index=i) for i, (right, said) in enumerate(verdicts)]


def advantages(role_position: int, **settings):
    result = make_algorithm("agent_grpo", {**EXACT, **settings}).advantages(step())
    return [result.advantages[f"t/{index}/{role_position}"] for index in range(6)], result.metrics


def test_each_verdicts_advantage_is_weighed_by_its_class():
    """n = 6: w_right = 6 / 4 = 1.5 and w_wrong = 6 / 8 = 0.75; advantages before: 1, -1 and sqrt(3), -1/sqrt(3) x 3."""
    plain, metrics = advantages(1)
    root = 3**0.5
    assert plain == pytest.approx([1.0, -1.0, root, -1 / root, -1 / root, -1 / root])
    assert not any("verdict" in key for key in metrics)
    weighed, metrics = advantages(1, balance_verdicts=True)
    assert weighed == pytest.approx([1.5, -1.5, 0.75 * root, *[-0.75 / root] * 3])
    assert (metrics["credit/verdicts_right"], metrics["credit/verdicts_wrong"]) == (2.0, 4.0)
    assert (metrics["credit/verdict_weight_right"], metrics["credit/verdict_weight_wrong"]) == (1.5, 0.75)
    assert metrics["credit/verifier/advantage_mass"] == pytest.approx(2 * 1.5 + 2 * 0.75 * root)


def test_answers_are_left_as_they_are():
    assert advantages(0, balance_verdicts=True)[0] == advantages(0)[0]


def test_the_cap_bounds_the_weight_of_a_rare_class():
    """One verdict about a right answer among twenty: 20 / 2 = 10 is cut to 4, or to the cap given."""
    assert class_weights({RIGHT: 1, WRONG: 19}, 4.0) == {RIGHT: 4.0, WRONG: pytest.approx(20 / 38)}
    assert class_weights({RIGHT: 1, WRONG: 19}, 12.0)[RIGHT] == 10.0
    assert advantages(1, balance_verdicts=True, balance_cap=1)[0][:2] == pytest.approx([1.0, -1.0])


def test_a_class_on_its_own_weighs_half_and_the_other_has_no_weight():
    assert class_weights({RIGHT: 0, WRONG: 7}, 4.0) == {WRONG: 0.5}
    assert class_weights({RIGHT: 0, WRONG: 0}, 4.0) == {}


@settings(deadline=None)
@given(st.integers(1, 200), st.integers(1, 200))
def test_below_the_cap_both_classes_count_alike_and_add_up_to_all_units(right, wrong):
    weights = class_weights({RIGHT: right, WRONG: wrong}, 1e9)
    assert weights[RIGHT] * right == pytest.approx(weights[WRONG] * wrong)
    assert weights[RIGHT] * right + weights[WRONG] * wrong == pytest.approx(right + wrong)


def test_only_verdicts_about_answers_that_were_graded_are_counted():
    graded = [
        made_episode(solution(True), report("wrong"), solution(False, "corrector", about=1), report("wrong", about=2)),
        made_episode(solution(None), report("correct"), index=1),  # its grader failed
        made_episode(Said(role="planner", kind=None), report("correct"), index=2),  # judges no answer
        made_episode(solution(False), report(None), index=3),  # about a wrong answer, unreadable
    ]
    reward = AgentSpecific()
    found = truths(Scored(graded=one, rewards=reward(one)) for one in graded)
    assert found == {"t/0/1": RIGHT, "t/0/3": WRONG, "t/3/1": WRONG}


def test_a_unit_that_was_not_credited_counts_in_no_class():
    unit = CreditUnit(
        id="u", role="v", policy="p", task_id="t", episode_id="e", turn_ids=("u",), peers="", reward=1.0, advantage=2.0
    )
    other = replace(unit, id="o", turn_ids=("o",))
    weighed, metrics = balance([unit, other], {"u": RIGHT, "gone": WRONG}, 4.0)
    assert [one.advantage for one in weighed] == [1.0, 2.0]
    assert metrics == {"credit/verdicts_right": 1.0, "credit/verdicts_wrong": 0.0, "credit/verdict_weight_right": 0.5}


def test_a_factor_on_the_rewards_of_a_class_is_undone_by_the_deviation_of_its_peers():
    rewards = np.array([1.0, 0.0, 0.0, 1.0, 0.0])
    assert mean_std(5.0 * rewards, epsilon=0.0) == pytest.approx(mean_std(rewards, epsilon=0.0))


def test_the_balance_is_reached_from_a_configuration_and_checked():
    config = make_config(
        {
            "workflow": {"name": "solve_verify_correct"},
            "tasks": {"name": "jsonl", "path": "x"},
            "algorithm": {"name": "agent_grpo", "balance_verdicts": True, "balance_cap": 3},
        }
    )
    made = make_algorithm(config.algorithm.name, config.algorithm.params)
    assert (made.balance_verdicts, made.balance_cap) == (True, 3.0)
    assert check_algorithm(made) == []
    assert not make_algorithm("agent_grpo").balance_verdicts
    for wrong, message in (
        ({"balance_verdicts": "yes"}, "'balance_verdicts': 'yes' is str, wanted bool"),
        ({"balance_cap": 0.5}, "balance_cap is 0.5; wanted a finite number, 1 or more"),
        ({"balance_verdict": True}, "did you mean 'balance_verdicts'"),
    ):
        with pytest.raises(ConfigError, match=message):
            make_algorithm("agent_grpo", wrong)
    with pytest.raises(ConfigError, match="a unit is the whole episode; use unit = 'turn'"):
        make_algorithm("mas_grpo", {"balance_verdicts": True})
