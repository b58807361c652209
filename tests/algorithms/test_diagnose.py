"""A step that teaches nothing says why."""

from __future__ import annotations

from rolecall.algorithms import diagnose, make_algorithm
from rolecall.records import OutcomeClass, Stop
from rolecall.testing_credit import GRADER_FAILED, RIGHT, WRONG, Said, made_episode, made_step, report, solution


def words(name, step, **overrides):
    result = make_algorithm(name, overrides).advantages(step)
    return diagnose(result, step)


def test_a_step_that_teaches_something_has_no_diagnosis():
    for name in ("mas_grpo", "dr_mas", "workflow_grpo", "rae", "agent_grpo"):
        assert words(name, made_step()) == []


def test_zero_spread_is_named_with_the_number_of_sets_and_their_value():
    hard = [made_episode(solution(False), task=task, index=i) for task in ("a", "b") for i in range(3)]
    (line,) = words("dr_mas", hard)
    assert "2 of 2 sets of peers have zero spread (2 at 0)" in line
    assert "too hard" in line
    easy = [made_episode(solution(True), index=i, team=RIGHT) for i in range(3)]
    assert "too easy" in words("dr_mas", easy)[0]
    both = hard + [made_episode(solution(True), task="c", index=i, team=RIGHT) for i in range(3)]
    assert "(2 at 0, 1 at 1)" in words("dr_mas", both)[0]


def test_a_parser_that_reads_nothing_is_named_with_its_share():
    step = [made_episode(Said(role="solver", value=None), index=i) for i in range(4)]
    lines = words("agent_grpo", step)
    assert any("4 of 4 turns of 'solver' are unparsed" in line and "parser" in line for line in lines)


def test_a_parser_that_reads_nothing_is_named_under_a_broadcast_reward_too():
    step = [made_episode(Said(role="solver", value=None), report("wrong"), index=i) for i in range(4)]
    lines = words("mas_grpo", step)
    assert any("4 of 8 claims could not be parsed ('solver' 4)" in line for line in lines)


def test_failed_graders_are_named():
    step = [made_episode(solution(None), index=i, team=GRADER_FAILED) for i in range(4)]
    lines = words("mas_grpo", step)
    assert any("no turn has a reward" in line for line in lines)
    assert any("4 of 4 turns of 'solver' are ungraded" in line for line in lines)


def test_truncation_is_named_with_the_setting_to_raise():
    step = [made_episode(Said(role="solver", value=None, stop=Stop.LENGTH), index=i) for i in range(4)]
    lines = words("agent_grpo", step)
    assert any("4 of 4 turns of 'solver' are truncated" in line and "max_tokens" in line for line in lines)


def test_failed_episodes_are_named():
    step = [made_episode(solution(True), index=i, outcome_class=OutcomeClass.ERROR) for i in range(4)]
    assert any("4 of 4 turns of 'solver' are failed" in line for line in words("mas_grpo", step))


def test_units_without_peers_are_named():
    step = [made_episode(solution(True), task=task, team=RIGHT) for task in "abc"]
    assert any("3 of 3 units have no peers" in line for line in words("mas_grpo", step))


def test_each_policy_is_looked_at_by_itself():
    step = [
        made_episode(solution(i == 0, policy="s"), report("correct" if i == 0 else "wrong", policy="v"), index=i)
        for i in range(4)
    ]
    lines = words("agent_grpo", step, peers="task_role")
    assert len(lines) == 1
    assert lines[0].startswith(
        "policy 'v', no advantage differs from 0: 1 of 1 sets of peers have zero spread (1 at 1)"
    )


def test_policies_that_are_not_trained_can_be_left_out():
    step = [made_episode(solution(False), index=i) for i in range(3)]
    result = make_algorithm("dr_mas").advantages(step)
    assert len(diagnose(result, step, ["shared"])) == 1
    assert diagnose(result, step, ["other"]) == []


def test_a_step_without_episodes_or_turns_says_so():
    assert "no episodes" in words("mas_grpo", [])[0]
    empty = [made_episode(index=i, team=WRONG, outcome_class=OutcomeClass.TIMEOUT) for i in range(2)]
    assert "2 timeout" in words("mas_grpo", empty)[0]
