"""The rubric of the study's second variant of voting: every cell of its table, and what cannot be judged."""

from __future__ import annotations

import pytest

from rolecall.records import ClaimKind, OutcomeClass, Stop
from rolecall.registry import load_named
from rolecall.rewards import REWARDS, VotingRubric
from rolecall.testing import check_reward
from rolecall.testing_credit import GRADER_FAILED, RIGHT, WRONG, Said, made_episode, solution


def voter(right: bool | None, copy: int = 0, **more: object) -> Said:
    return solution(right, "voter", copy=copy, **more)


def choice(number: str | None, **more: object) -> Said:
    return Said(role="aggregator", value=number, kind=ClaimKind.CHOICE, about=0, **more)  # type: ignore[arg-type]


UNREAD = {"value": None, "grade": None}


@pytest.mark.parametrize(
    ("said", "team", "total"),
    [
        (voter(True), RIGHT, 1.0),
        (voter(True), WRONG, 0.5),
        (voter(False), RIGHT, -0.5),
        (voter(False), WRONG, -1.0),
        (voter(False, **UNREAD), RIGHT, 0.5),
        (voter(False, **UNREAD), WRONG, 0.0),
    ],
)
def test_a_voter_is_paid_for_its_answer_and_the_teams_and_pays_for_a_wrong_one(said, team, total):
    given = VotingRubric()(made_episode(said, voter(True, 1), choice("1"), team=team))["t/0/0"]
    assert given.total == total
    assert ("unparsed" in given.parts) == (said.value is None)
    assert not given.team  # the number is not the team's


@pytest.mark.parametrize(
    ("voters", "number", "total"),
    [
        ((True, False, False), "1", 1.0),
        ((True, False, False), "2", -1.0),
        ((False, False, True), "3", 1.0),
        ((False, False, True), None, -1.0),
        ((False, False, False), "1", 0.0),
        ((False, False, False), None, 0.0),
        ((True, True, True), "2", 1.0),
    ],
)
def test_an_aggregator_gains_or_loses_only_where_some_candidate_was_right(voters, number, total):
    said = [*(voter(right, copy) for copy, right in enumerate(voters)), choice(number)]
    given = VotingRubric()(made_episode(*said))["t/0/3"]
    assert given.parts["correct"] == given.total == total
    assert ("unparsed" in given.parts) == (number is None)


def test_what_a_failed_grader_left_open_is_not_rewarded():
    broken = VotingRubric()(made_episode(voter(None), voter(True, 1), choice("2"), team=RIGHT))
    assert [one.total for one in broken.values()] == [None, 1.0, None]
    assert VotingRubric()(made_episode(voter(True), team=GRADER_FAILED))["t/0/0"].parts == {"ungraded": 1.0}


def test_failed_episodes_and_truncated_turns_earn_nothing_and_other_claims_have_no_reward():
    failed = VotingRubric()(made_episode(voter(True), outcome_class=OutcomeClass.INVALID))["t/0/0"]
    assert (failed.total, failed.parts) == (0.0, {"correct": 0.0, "failed": 1.0})
    cut = VotingRubric()(made_episode(voter(True, stop=Stop.LENGTH), team=RIGHT))["t/0/0"]
    assert (cut.total, cut.parts) == (0.0, {"correct": 0.0, "truncated": 1.0})
    plan = VotingRubric()(made_episode(Said(role="planner", kind=None)))["t/0/0"]
    assert (plan.total, plan.parts) == (None, {"unjudged": 1.0})


def test_it_has_a_name_and_weights_and_keeps_the_contract_of_a_reward():
    assert load_named("voting_rubric", REWARDS, "reward", {"wrong": 0.0}) == VotingRubric(wrong=0.0)
    assert VotingRubric(wrong=0.0)(made_episode(voter(False), team=RIGHT))["t/0/0"].total == 0.5
    episodes = [
        made_episode(voter(True), voter(False, 1), choice("1"), task="a", team=RIGHT),
        made_episode(voter(True), voter(False, 1), choice("2"), task="a", index=1),
    ]
    assert check_reward(VotingRubric(), episodes) == []
