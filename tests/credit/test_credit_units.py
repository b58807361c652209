"""Credit units: which turns share a reward, which units are peers, and what must never be compared."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from rolecall.credit import Grouping, Scored, build_units
from rolecall.credit.units import split_by_role
from rolecall.errors import ConfigError, RolecallError
from rolecall.records import Reward
from rolecall.rewards import AgentSpecific, TeamOutcome
from rolecall.testing_credit import RIGHT, Said, made_episode, report, solution


def scored(*episodes, reward=None):
    return [Scored(graded=one, rewards=(reward or AgentSpecific())(one)) for one in episodes]


def paid(episode, *totals):
    ids = [turn.id for turn in episode.episode.turns]
    rewards = {id_: Reward(parts={"own": total or 0.0}, total=total) for id_, total in zip(ids, totals, strict=True)}
    return Scored(graded=episode, rewards=rewards)


def peers(step, **grouping):
    """Turn ids by peers key, and the keys decoded."""
    found = {}
    for unit in build_units(step, Grouping(**grouping)).units:
        found.setdefault(tuple(json.loads(unit.peers)), []).extend(unit.turn_ids)
    return found


def loop(index=0, task="t", **more):
    """solver, verifier, corrector, verifier."""
    return made_episode(
        solution(False), report("wrong"), solution(True, "corrector", about=1), report("correct", about=2),
        task=task, index=index, **more,
    )  # fmt: skip


def votes(index=0, task="t"):
    return made_episode(*(solution(copy == 1, "voter", copy=copy) for copy in range(3)), task=task, index=index)


def test_a_turn_unit_is_one_turn_with_its_own_reward():
    units = build_units(scored(loop()), Grouping(unit="turn")).units
    assert [(unit.turn_ids, unit.role, unit.reward) for unit in units] == [
        (("t/0/0",), "solver", 0.0),
        (("t/0/1",), "verifier", 1.0),
        (("t/0/2",), "corrector", 1.0),
        (("t/0/3",), "verifier", 1.0),
    ]


@pytest.mark.parametrize(("reduce", "reward"), [("mean", 0.75), ("last", 0.5), ("sum", 1.5)])
def test_a_trajectory_unit_is_the_turns_of_one_role_and_copy_with_the_declared_reward(reduce, reward):
    step = [paid(loop(), 0.0, 1.0, 1.0, 0.5)]
    units = build_units(step, Grouping(unit="trajectory", peers="task_role", reduce=reduce)).units
    verifier = next(unit for unit in units if unit.role == "verifier")
    assert verifier.turn_ids == ("t/0/1", "t/0/3")
    assert verifier.reward == reward
    assert len(units) == 3


def test_the_mean_of_a_broadcast_reward_is_that_very_number():
    step = [paid(made_episode(*[solution(True)] * 3), 0.1, 0.1, 0.1)]
    assert build_units(step, Grouping(unit="trajectory")).units[0].reward == 0.1


def test_copies_have_trajectories_of_their_own():
    units = build_units(scored(votes()), Grouping(unit="trajectory")).units
    assert [unit.turn_ids for unit in units] == [("t/0/0",), ("t/0/1",), ("t/0/2",)]


def test_an_episode_unit_holds_all_turns_and_is_split_by_role_and_policy_with_one_advantage():
    episode = made_episode(solution(True), report("correct", policy="judge"), solution(True), team=RIGHT)
    (whole,) = build_units(scored(episode, reward=TeamOutcome()), Grouping(unit="episode", peers="task")).units
    assert whole.turn_ids == ("t/0/0", "t/0/1", "t/0/2")
    turns = {turn.id: turn for turn in episode.episode.turns}
    parts = split_by_role([replace(whole, advantage=0.25)], turns)
    assert [(part.role, part.policy, part.turn_ids, part.advantage) for part in parts] == [
        ("solver", "shared", ("t/0/0", "t/0/2"), 0.25),
        ("verifier", "judge", ("t/0/1",), 0.25),
    ]
    assert len({part.id for part in parts}) == 2


def test_turns_and_units_without_a_reward_are_left_out_and_counted():
    step = [paid(loop(), None, 1.0, 0.0, None)]
    built = build_units(step, Grouping(unit="trajectory"))
    assert [(unit.role, unit.turn_ids) for unit in built.units] == [
        ("corrector", ("t/0/2",)),
        ("verifier", ("t/0/1",)),
    ]
    assert (built.unrewarded_turns, built.unrewarded_units) == (2, 1)


def test_an_episode_without_a_turn_is_counted():
    assert build_units(scored(made_episode(index=1), loop()), Grouping()).empty_episodes == 1


def test_peers_by_role_hold_every_turn_of_the_role_on_the_task():
    found = peers(scored(loop(0), loop(1)), peers="task_role")
    assert found["t", "verifier"] == ["t/0/1", "t/0/3", "t/1/1", "t/1/3"]
    assert found["t", "solver"] == ["t/0/0", "t/1/0"]


def test_peers_by_turn_keep_the_first_call_of_a_role_from_its_second():
    found = peers(scored(loop(0), loop(1)), peers="task_role_turn")
    assert found["t", "verifier", 0] == ["t/0/1", "t/1/1"]
    assert found["t", "verifier", 1] == ["t/0/3", "t/1/3"]


def test_peers_by_truth_compare_verdicts_only_about_answers_alike_right_or_wrong():
    found = peers(scored(loop(0), loop(1)), peers="task_role_truth")
    assert found["t", "verifier", "wrong"] == ["t/0/1", "t/1/1"]
    assert found["t", "verifier", "right"] == ["t/0/3", "t/1/3"]
    assert found["t", "corrector"] == ["t/0/2", "t/1/2"]


def test_voters_are_three_sets_of_peers_and_workers_are_one():
    step = scored(votes(0), votes(1))
    apart = peers(step, peers="task_trajectory")
    assert apart["t", "voter", 2] == ["t/0/2", "t/1/2"]
    assert len(apart) == 3
    merged = peers(step, peers="task_trajectory", merge_copies=("voter",))
    assert list(merged) == [("t", "voter")]
    assert len(merged["t", "voter"]) == 6


def test_refinements_by_one_role_are_peers_of_its_first_answers_by_trajectory_name():
    refined = [made_episode(solution(False), report("wrong"), solution(True), index=index) for index in (0, 1)]
    assert peers(scored(*refined), peers="task_trajectory")["t", "solver", 0] == ["t/0/0", "t/0/2", "t/1/0", "t/1/2"]


def test_peers_by_prompt_share_their_prompt_ids_byte_for_byte():
    seen = [solution(True, prompt_ids=(1, 2)), solution(False, prompt_ids=(1, 2)), solution(True, prompt_ids=(1, 2, 0))]
    found = peers(scored(*(made_episode(one, index=index) for index, one in enumerate(seen))), peers="prompt")
    assert sorted(found.values()) == [["t/0/0", "t/1/0"], ["t/2/0"]]


@pytest.mark.parametrize("by", ["task", "task_role", "task_trajectory", "task_role_turn", "task_role_truth", "prompt"])
def test_two_tasks_with_the_same_text_never_merge(by):
    twins = scored(
        made_episode(solution(True), task="a", question="the same words"),
        made_episode(solution(True), task="b", question="the same words"),
    )
    assert sorted(peers(twins, peers=by).values()) == [["a/0/0"], ["b/0/0"]]


def test_no_task_id_can_be_mistaken_for_a_task_and_a_role():
    tricky = scored(
        made_episode(solution(True, role='b", "c'), task="a"), made_episode(solution(True, role="c"), task='a", "b')
    )
    assert len(peers(tricky, peers="task_role")) == 2


@pytest.mark.parametrize("by", ["task", "task_role", "prompt"])
def test_peers_that_drew_different_problems_are_an_error_that_names_both(by):
    step = scored(loop(0, question="1 + 1"), loop(1, question="2 + 2"))
    with pytest.raises(RolecallError, match=r"task 't' mix two problems: '1 \+ 1'.*t/0.*'2 \+ 2'.*t/1"):
        build_units(step, Grouping(peers=by))


def test_the_same_question_with_another_answer_is_another_problem():
    other = loop(1)
    other = replace(other, episode=replace(other.episode, task=replace(other.episode.task, answer="43")))
    with pytest.raises(RolecallError, match="mix two problems"):
        build_units(scored(loop(0), other), Grouping())


def test_peers_by_role_go_over_tasks():
    assert peers(scored(loop(0, "a"), loop(0, "b")), peers="role", unit="trajectory")["solver",] == ["a/0/0", "b/0/0"]


def test_roles_that_look_alike_stay_apart():
    names = ("solver_a", "solver_b", "gen1", "gen2")
    episode = made_episode(*(solution(True, role=name) for name in names))
    assert list(peers(scored(episode), peers="task_role")) == [("t", name) for name in names]


def test_a_turn_on_two_branches_is_credited_once_with_the_mean_over_its_branches():
    first, second = (
        made_episode(solution(True), report("correct")),
        made_episode(solution(True), report("wrong"), index=1),
    )
    shared = first.episode.turns[0]
    fork = replace(second.episode.turns[1], about=shared.id, parent=shared.id)
    second = replace(
        second, episode=replace(second.episode, turns=(shared, fork)), answers={shared.id: first.answers[shared.id]}
    )
    step = [paid(first, 1.0, 1.0), paid(second, 0.5, 0.0)]
    units = build_units(step, Grouping(unit="turn")).units
    assert [(unit.turn_ids, unit.reward) for unit in units] == [
        (("t/0/0",), 0.75),
        (("t/0/1",), 1.0),
        (("t/1/1",), 0.0),
    ]
    with pytest.raises(RolecallError, match=r"'t/0/0'.*would train it twice"):
        build_units(step, Grouping(unit="trajectory"))


def test_one_turn_id_for_two_turns_is_an_error():
    first, second = loop(0), loop(1)
    clash = replace(second.episode.turns[0], id="t/0/0", prompt_ids=(9,))
    second = replace(second, episode=replace(second.episode, turns=(clash,)), answers={"t/0/0": RIGHT})
    with pytest.raises(RolecallError, match="is another turn in episode 't/0'"):
        build_units(scored(first, second), Grouping())


def test_an_episode_given_twice_is_an_error():
    with pytest.raises(RolecallError, match="credited twice"):
        build_units(scored(loop(), loop()), Grouping())


def test_a_reward_that_is_missing_or_not_finite_names_the_turn():
    episode = made_episode(solution(True))
    with pytest.raises(RolecallError, match=r"gave nothing for turn 't/0/0'"):
        build_units([Scored(graded=episode, rewards={})], Grouping())
    with pytest.raises(RolecallError, match=r"'t/0/0' \(solver:0\).* is nan"):
        build_units([paid(episode, float("nan"))], Grouping())


def test_units_and_their_order_do_not_depend_on_the_order_of_the_episodes():
    step = scored(loop(0), loop(1), votes(2))
    assert build_units(step, Grouping()) == build_units(step[::-1], Grouping())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"unit": "turns"}, "did you mean 'turn'"),
        ({"peers": "task_rol"}, "did you mean 'task_role'"),
        ({"reduce": "average"}, "wanted one of mean, last, sum"),
        ({"unit": "episode", "peers": "task_role"}, "several roles"),
        ({"unit": "trajectory", "peers": "prompt"}, "compares single turns"),
        ({"merge_copies": ("worker",)}, "has no effect"),
    ],
)
def test_choices_that_do_not_fit_together_are_errors(settings, message):
    with pytest.raises(ConfigError, match=message):
        Grouping(**settings)


def test_a_turn_that_claims_nothing_is_a_peer_by_role_under_truth():
    plan = Said(role="planner", value=None, kind=None)
    found = peers([paid(made_episode(plan), 1.0)], peers="task_role_truth")
    assert list(found) == [("t", "planner")]
