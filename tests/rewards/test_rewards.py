"""Rewards: the truth table of agent-specific rewards, the broadcast outcome by its name, failures, mixtures."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from rolecall.errors import ConfigError, GraderError, WorkflowError
from rolecall.records import ClaimKind, Grade, GradeStatus, OutcomeClass, Reward, Stop
from rolecall.registry import load_named
from rolecall.rewards import REWARDS, AgentSpecific, Format, Mixed, TeamOutcome
from rolecall.rewards.base import marked, zero
from rolecall.testing_credit import GRADER_FAILED, RIGHT, Said, made_episode, report, solution


def totals(reward, episode):
    return [given.total for given in reward(episode).values()]


@pytest.mark.parametrize(
    ("verdict", "right", "reward"),
    [
        ("correct", True, 1.0),
        ("correct", False, 0.0),
        ("wrong", True, 0.0),
        ("wrong", False, 1.0),
        ("unparsed", True, 0.0),
        ("unparsed", False, 0.0),
        (None, True, 0.0),
        (None, False, 0.0),
    ],
)
def test_a_verifier_is_paid_for_a_verdict_that_equals_the_truth_about_the_turn_it_judges(verdict, right, reward):
    given = AgentSpecific()(made_episode(solution(right), report(verdict)))
    assert given["t/0/1"].total == reward
    assert given["t/0/1"].parts["correct"] == reward
    assert ("unparsed" in given["t/0/1"].parts) == (verdict in ("unparsed", None))


@pytest.mark.parametrize("input_right", [True, False])
@pytest.mark.parametrize("right", [True, False])
def test_a_corrector_is_paid_for_its_own_answer_whatever_its_input_was(input_right, right):
    episode = made_episode(solution(input_right), report("wrong"), solution(right, "corrector", about=1))
    assert totals(AgentSpecific(), episode)[2] == float(right)


def test_no_reward_flows_from_later_turns_to_earlier_ones():
    alone = made_episode(solution(False), report("correct"))
    repaired = made_episode(solution(False), report("correct"), solution(True, "corrector", about=1), team=RIGHT)
    assert totals(AgentSpecific(), alone) == totals(AgentSpecific(), repaired)[:2] == [0.0, 0.0]


def test_the_second_verifier_is_judged_by_the_corrected_answer_and_not_by_the_first_one():
    corrected = solution(True, "corrector", about=1)
    episode = made_episode(solution(False), report("wrong"), corrected, report("correct", about=2))
    assert totals(AgentSpecific(), episode) == [0.0, 1.0, 1.0, 1.0]


def test_the_kind_of_a_turn_is_read_from_its_claim_and_not_from_its_role():
    swapped = made_episode(solution(True, "verifier"), report("wrong", role="solver"))
    assert totals(AgentSpecific(), swapped) == [1.0, 0.0]


def test_a_truncated_turn_earns_nothing_even_when_its_words_are_right():
    episode = made_episode(solution(True, stop=Stop.LENGTH), report("correct", stop=Stop.LENGTH))
    given = AgentSpecific()(episode)
    assert [reward.total for reward in given.values()] == [0.0, 0.0]
    assert all(reward.parts == {"correct": 0.0, "truncated": 1.0} for reward in given.values())


def chain(first, verdict, second, verdict_again, third, **more):
    """Solver, verifier, corrector, verifier, corrector, each about the turn before it."""
    return [
        solution(first, **more),
        report(verdict, about=0, **more),
        solution(second, "corrector", about=1, **more),
        report(verdict_again, about=2, **more),
        solution(third, "corrector", about=3, **more),
    ]


VERDICT_TABLE = {
    ("correct", True): 1.0,
    ("correct", False): 0.0,
    ("wrong", True): 0.0,
    ("wrong", False): 1.0,
    (None, True): 0.0,
    (None, False): 0.0,
}
"""R_V by verdict and by whether the judged answer is right (MarsRL, arXiv 2511.11373, section 3.1)."""


def test_section_9_check_1_the_truth_table_of_every_role_and_nothing_flows_upstream():
    """All 72 chains of five turns: the solver and each corrector earn their own answer, whatever they were given; each
    verifier earns the table on the answer in front of it; and no turn's reward depends on a later one, or on the team's
    outcome."""
    answers, verdicts = (True, False), ("correct", "wrong", None)
    for first, verdict, second, again, third in product(answers, verdicts, answers, verdicts, answers):
        said = chain(first, verdict, second, again, third)
        wanted = [
            float(first),
            VERDICT_TABLE[verdict, first],
            float(second),
            VERDICT_TABLE[again, second],
            float(third),
        ]
        for size, team in product(range(1, 6), (RIGHT, GRADER_FAILED)):
            assert totals(AgentSpecific(), made_episode(*said[:size], team=team)) == wanted[:size]


@pytest.mark.parametrize("position", range(5), ids=["solver", "verifier", "corrector", "verifier 2", "corrector 2"])
def test_an_overlong_turn_of_any_role_counts_as_wrong_and_leaves_the_others_as_they_are(position):
    """Every turn would earn 1, and 0.1 for its format: the one that is cut off earns 0 of both."""
    said = chain(False, "wrong", True, "correct", True)
    whole, small = AgentSpecific(), Mixed(weights={"correct": 1.0, "format": 0.1})
    said[position] = replace(said[position], stop=Stop.LENGTH)
    wanted = [0.0, 1.0, 1.0, 1.0, 1.0]
    wanted[position] = 0.0
    assert totals(whole, made_episode(*said)) == wanted
    given = whole(made_episode(*said))[f"t/0/{position}"]
    assert given.parts == {"correct": 0.0, "truncated": 1.0}
    by_format = [value + (0.0 if place == position else 0.1) for place, value in enumerate(wanted)]
    assert totals(small, made_episode(*said)) == pytest.approx(by_format)


def test_a_small_reward_for_format_tells_readable_turns_from_others():
    """`correct` plus 0.1 of `format`: right 1.1, wrong and readable 0.1, unreadable 0."""
    small = Mixed(weights={"correct": 1.0, "format": 0.1})
    assert totals(small, made_episode(solution(False), report("wrong"))) == pytest.approx([0.1, 1.1])
    assert totals(small, made_episode(solution(True), report(None))) == pytest.approx([1.1, 0.0])
    given = small(made_episode(solution(True), report(None)))["t/0/1"]
    assert given.parts == {"correct": 0.0, "format": 0.0, "unparsed": 1.0}


def test_a_failed_grader_gives_no_reward_and_never_zero():
    episode = made_episode(solution(None), report("correct"), team=GRADER_FAILED)
    for reward in (AgentSpecific(), TeamOutcome()):
        given = reward(episode)
        assert [one.total for one in given.values()] == [None, None]
        assert all(one.parts == {"ungraded": 1.0} for one in given.values())


def test_an_answer_that_could_not_be_parsed_is_wrong_and_a_verdict_about_it_can_be_right():
    episode = made_episode(Said(role="solver", value=None), report("wrong"))
    given = AgentSpecific()(episode)
    assert given["t/0/0"].parts == {"correct": 0.0, "unparsed": 1.0}
    assert given["t/0/1"].total == 1.0


def test_an_answer_without_a_grade_is_an_error_that_names_the_turn():
    with pytest.raises(GraderError, match=r"t/0/0.*'42'.*no grade"):
        AgentSpecific()(made_episode(Said(role="solver", value="42")))


def test_a_verdict_about_a_turn_without_an_answer_has_no_reward_and_is_marked():
    plan = Said(role="planner", value=None, kind=None)
    given = AgentSpecific()(made_episode(plan, report("correct")))
    assert [one.total for one in given.values()] == [None, None]
    assert all(one.parts == {"unjudged": 1.0} for one in given.values())
    assert AgentSpecific()(made_episode(replace(report("correct"), about=None)))["t/0/0"].total is None


def test_a_loosely_parsed_verdict_is_an_error_and_not_a_guess():
    with pytest.raises(WorkflowError, match=r"'Incorrect'.*correct, wrong, unparsed"):
        AgentSpecific()(made_episode(solution(True), report("Incorrect")))


def test_a_choice_is_paid_when_the_chosen_turn_is_right():
    voters = [solution(False, "voter", copy=0), solution(True, "voter", copy=1)]
    for chosen, reward in (("t/0/0", 0.0), ("t/0/1", 1.0), ("nobody", None), (None, 0.0)):
        choice = Said(role="aggregator", kind=ClaimKind.CHOICE, value=chosen)
        assert AgentSpecific()(made_episode(*voters, choice))["t/0/2"].total == reward


def test_the_broadcast_outcome_is_named_as_the_teams_and_own_rewards_are_not():
    episode = made_episode(solution(False), report("wrong"), solution(True, "corrector", about=1), team=RIGHT)
    team, own = TeamOutcome()(episode), AgentSpecific()(episode)
    assert [(one.parts, one.total, one.team) for one in team.values()] == [({"team": 1.0}, 1.0, True)] * 3
    assert [one.total for one in own.values()] == [0.0, 1.0, 1.0]
    assert not any(one.team for one in own.values())


def test_a_partial_score_of_the_team_is_kept():
    episode = made_episode(solution(False), team=Grade(status=GradeStatus.WRONG, score=0.75))
    assert totals(TeamOutcome(), episode) == [0.75]


@pytest.mark.parametrize("kind", [OutcomeClass.INVALID, OutcomeClass.ERROR, OutcomeClass.TIMEOUT])
def test_the_turns_before_a_failure_get_zero_and_say_failed(kind):
    episode = made_episode(solution(True), report("correct"), team=RIGHT, outcome_class=kind)
    for reward, part in ((TeamOutcome(), "team"), (AgentSpecific(), "correct"), (Format(), "format")):
        assert all(one.total == 0.0 and one.parts == {part: 0.0, "failed": 1.0} for one in reward(episode).values())


def test_the_turns_before_a_failure_keep_what_they_earned_when_asked():
    episode = made_episode(solution(True), report("wrong"), outcome_class=OutcomeClass.ERROR)
    assert totals(AgentSpecific(on_failure="keep"), episode) == [1.0, 0.0]


def test_a_reward_is_zeroed_whatever_it_was_and_keeps_the_marks_of_a_0():
    unparsed = marked("correct", "unparsed", 0.0)
    given = {"a": Reward(parts={"correct": 1.0}, total=1.0), "b": marked("correct", "unjudged", None), "c": unparsed}
    failed = Reward(parts={"failed": 1.0}, total=0.0)
    assert zero(given) == {"a": failed, "b": failed, "c": unparsed}
    assert zero({"a": Reward(parts={"team": 1.0}, total=1.0, team=True)})["a"].team


def test_a_truncated_episode_counts_as_wrong_unless_its_grade_is_asked_for():
    episode = made_episode(solution(True), team=RIGHT, outcome_class=OutcomeClass.TRUNCATED)
    assert TeamOutcome()(episode)["t/0/0"].parts == {"team": 0.0, "truncated": 1.0}
    assert totals(TeamOutcome(truncated="graded"), episode) == [1.0]


def test_a_mixed_reward_is_the_weighted_sum_of_its_parts_by_role():
    episode = made_episode(solution(False), report("wrong"), solution(True, "corrector", about=1), team=RIGHT)
    mixed = Mixed(weights={"team": 0.5, "correct": 0.25}, by_role={"verifier": {"correct": 2.0, "format": 0.125}})
    given = mixed(episode)
    assert [one.total for one in given.values()] == [0.5, 2.125, 0.75]
    assert given["t/0/0"].parts == {"team": 1.0, "correct": 0.0}
    assert given["t/0/1"].parts == {"correct": 1.0, "format": 1.0}
    assert not any(one.team for one in given.values())


def test_a_mixed_reward_of_nothing_but_the_outcome_is_named_as_the_teams():
    mixed = Mixed(weights={"correct": 1.0}, by_role={"solver": {"team": 1.0, "correct": 0.0}})
    given = mixed(made_episode(solution(False), report("wrong"), team=RIGHT))
    assert (given["t/0/0"].team, given["t/0/1"].team) == (True, False)
    assert given["t/0/0"].parts == {"team": 1.0, "correct": 0.0}


def test_a_mixed_reward_with_a_missing_part_is_no_reward_rather_than_part_of_a_sum():
    plan = Said(role="planner", value=None, kind=None)
    both = Mixed(weights={"team": 1.0, "correct": 1.0})
    assert totals(both, made_episode(plan, solution(True), team=RIGHT)) == [None, 2.0]
    shown = Mixed(weights={"team": 1.0, "correct": 0.0})
    assert totals(shown, made_episode(plan, solution(True), team=RIGHT)) == [1.0, 1.0]


def test_a_reward_of_the_users_own_is_a_part_under_its_name():
    mixed = Mixed(weights={"team": 1.0, "shape": 0.5}, extra={"shape": Format()})
    assert totals(mixed, made_episode(solution(True), team=RIGHT)) == [1.5]


def test_wrong_settings_of_rewards_name_the_nearest_right_one():
    with pytest.raises(ConfigError, match=r"'corect'; did you mean 'correct'"):
        Mixed(weights={"corect": 1.0})
    with pytest.raises(ConfigError, match=r"by_role.solver.team is nan"):
        Mixed(weights={"team": 1.0}, by_role={"solver": {"team": float("nan")}})
    with pytest.raises(ConfigError, match="other than 0"):
        Mixed(weights={"team": 0.0})
    with pytest.raises(ConfigError, match="taken"):
        Mixed(weights={"team": 1.0}, extra={"team": Format()})
    with pytest.raises(ConfigError, match="did you mean 'graded'"):
        TeamOutcome(truncated="grade")
    with pytest.raises(ConfigError, match="did you mean 'keep'"):
        AgentSpecific(on_failure="keeps")


def test_rewards_are_built_from_names_and_tables_as_a_configuration_gives_them():
    assert load_named("team_outcome", REWARDS, "reward", {}) == TeamOutcome()
    mixed = load_named("mixed", REWARDS, "reward", {"weights": {"team": 1}, "by_role": {"verifier": {"correct": 1}}})
    assert mixed == Mixed(weights={"team": 1.0}, by_role={"verifier": {"correct": 1.0}})
