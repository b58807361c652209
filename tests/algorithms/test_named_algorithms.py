"""The named algorithms on one worked step: who is compared with whom, and what each turn earns."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolecall.algorithms import ALGORITHMS, Algorithm, make_algorithm
from rolecall.credit import Grouping, Mean, MeanStd
from rolecall.errors import ConfigError, RolecallError
from rolecall.records import OutcomeClass, Reward
from rolecall.rewards import AgentSpecific, Mixed
from rolecall.testing_credit import RIGHT, WRONG, made_episode, made_step, report, solution

HALF = 3**0.5 / 2  # two of four right: mean 1/2, deviation sqrt(1/3) with ddof 1


def loop_step():
    """One task, four episodes with outcomes 1 0 0 1; the corrector acts in the second and the fourth only."""
    return [
        made_episode(solution(True), report("correct"), index=0, team=RIGHT),
        made_episode(solution(False), report("wrong"), solution(False, "corrector", about=1), index=1),
        made_episode(solution(False), report("correct"), index=2),
        made_episode(solution(False), report("wrong"), solution(True, "corrector", about=1), index=3, team=RIGHT),
    ]


def earned(algorithm, step=None):
    result = algorithm.advantages(loop_step() if step is None else step)
    return result, {turn_id: round(advantage, 3) for turn_id, advantage in result.advantages.items()}


def test_mas_grpo_gives_every_turn_of_an_episode_the_advantage_of_its_outcome():
    result, advantages = earned(make_algorithm("mas_grpo"))
    assert {a for id_, a in advantages.items() if id_[:3] in ("t/0", "t/3")} == {round(HALF, 3)}
    assert {a for id_, a in advantages.items() if id_[:3] in ("t/1", "t/2")} == {-round(HALF, 3)}
    assert len(advantages) == 10
    assert {(unit.role, unit.policy) for unit in result.units} == {
        ("solver", "shared"),
        ("verifier", "shared"),
        ("corrector", "shared"),
    }


def test_mas_grpo_compares_episodes_and_not_policies_when_the_roles_are_isolated():
    # the corrector's outcomes are 0 and 0 here: by itself it would be constant; the episodes' mean is 1/4
    step = [
        made_episode(solution(True, policy="s"), index=0, team=RIGHT),
        made_episode(solution(False, policy="s"), solution(False, "corrector", policy="c"), index=1),
        made_episode(solution(False, policy="s"), solution(False, "corrector", policy="c"), index=2),
        made_episode(solution(False, policy="s"), index=3),
    ]
    result, advantages = earned(make_algorithm("mas_grpo"), step)
    assert advantages == {"t/0/0": 1.5, "t/1/0": -0.5, "t/1/1": -0.5, "t/2/0": -0.5, "t/2/1": -0.5, "t/3/0": -0.5}
    assert {unit.policy for unit in result.units} == {"s", "c"}
    assert result.counts.groups == 1


def test_dr_mas_normalises_each_role_over_the_turns_in_which_it_acted():
    _, advantages = earned(make_algorithm("dr_mas"))
    solver = [advantages[f"t/{i}/0"] for i in range(4)]
    corrector = [advantages["t/1/2"], advantages["t/3/2"]]
    assert solver == [round(a, 3) for a in (HALF, -HALF, -HALF, HALF)]
    # outcomes 0 and 1: mean 1/2, deviation sqrt(1/2) with ddof 1
    assert corrector == [round(a, 3) for a in (-(0.5**0.5), 0.5**0.5)]


def test_workflow_grpo_compares_a_voter_with_the_same_voter_of_other_episodes():
    def votes(index, team):
        return made_episode(*(solution(True, "voter", copy=copy) for copy in range(3)), index=index, team=team)

    step = [votes(0, RIGHT), votes(1, WRONG)]
    result, _ = earned(make_algorithm("workflow_grpo"), step)
    assert result.counts.groups == 3
    merged, _ = earned(make_algorithm("workflow_grpo", {"merge_copies": ["voter"]}), step)
    assert merged.counts.groups == 1
    loss = make_algorithm("workflow_grpo").loss
    assert (loss.aggregate, loss.clip_low, loss.clip_high, loss.dual_clip) == ("sequence_mean", 0.2, 0.28, 3.0)


def test_rae_compares_each_role_with_its_own_running_mean_over_steps():
    algorithm = make_algorithm("rae")
    first = algorithm.advantages([made_episode(solution(True), report("correct"), task="a", team=RIGHT)])
    assert first.advantages == {"a/0/0": 1.0, "a/0/1": 1.0}
    state = json.loads(json.dumps(dict(first.state)))
    assert state["baselines"] == pytest.approx({"solver": 0.05, "verifier": 0.05})
    second = algorithm.advantages([made_episode(solution(False), task="b")], state)
    assert second.advantages == pytest.approx({"b/0/0": -0.05})
    assert second.state["baselines"] == pytest.approx({"solver": 0.0475, "verifier": 0.05})


def test_agent_grpo_pays_each_turn_for_its_own_truth_and_compares_verdicts_about_like_answers():
    result, advantages = earned(make_algorithm("agent_grpo"))
    # solver rewards 1 0 0 0; verdicts about wrong answers: wrong, correct, wrong earn 1 0 1; about the right one: alone
    assert [advantages[f"t/{i}/0"] for i in range(4)] == [1.5, -0.5, -0.5, -0.5]
    third = 3**-0.5  # mean 2/3, squares 1/9 + 4/9 + 1/9 = 2/3, deviation sqrt(1/3): (1/3) / sqrt(1/3)
    assert [advantages[f"t/{i}/1"] for i in (1, 2, 3)] == [round(a, 3) for a in (third, -2 * third, third)]
    assert advantages["t/0/1"] == 0.0
    assert result.counts.alone == 1


def test_other_peers_for_verdicts_are_an_override_away():
    result, advantages = earned(make_algorithm("agent_grpo", {"peers": "task_role"}))
    assert [advantages[f"t/{i}/1"] for i in range(4)] == [0.5, 0.5, -1.5, 0.5]
    assert result.counts.alone == 0


def test_votes_on_one_prompt_are_peers_within_a_single_episode():
    votes = [solution(copy == 1, "voter", copy=copy) for copy in range(3)]
    made = make_algorithm("agent_grpo", {"peers": "prompt", "n": 1, "estimator": "leave_one_out"})
    result, advantages = earned(made, [made_episode(*votes, solution(True, "aggregator", prompt_ids=(5,)))])
    assert advantages == {"t/0/0": -0.5, "t/0/1": 1.0, "t/0/2": -0.5, "t/0/3": 0.0}
    assert (result.counts.groups, result.counts.alone) == (1, 1)


def test_whole_episodes_share_one_running_mean_whichever_roles_acted():
    made = make_algorithm("mas_grpo", {"estimator": "running_mean"})
    alone = made_episode(solution(True), index=0, team=RIGHT)
    result = made.advantages([alone, made_episode(solution(True), report("correct"), index=1, team=RIGHT)])
    assert result.advantages == pytest.approx({"t/0/0": 1.0, "t/1/0": 0.95, "t/1/1": 0.95})
    assert result.state["baselines"] == pytest.approx({"": 0.0975})


def test_a_role_that_is_never_called_leaves_no_unit_and_no_error():
    step = [made_episode(solution(index == 0), report("correct"), index=index) for index in range(2)]
    for name in ALGORITHMS:
        result = make_algorithm(name).advantages(step)
        assert {unit.role for unit in result.units} == {"solver", "verifier"}
        assert not any("corrector" in key for key in result.metrics)


def test_an_episode_that_failed_counts_in_the_denominator_of_its_roles():
    step = [made_episode(solution(True), index=i, team=RIGHT) for i in range(3)]
    step += [made_episode(solution(True), index=i, outcome_class=OutcomeClass.ERROR) for i in (3, 4)]
    result = make_algorithm("dr_mas").advantages(step)
    assert result.metrics["reward/solver/team"] == pytest.approx(0.6)
    assert result.metrics["reward/solver/failed"] == pytest.approx(0.4)
    assert result.counts.units == 5
    assert [result.advantages[f"t/{i}/0"] > 0 for i in range(5)] == [True, True, True, False, False]


def test_failed_graders_leave_their_turns_untrained_and_counted():
    step = [made_episode(solution(index < 2 if index < 7 else None), index=index) for index in range(8)]
    result = make_algorithm("agent_grpo").advantages(step)
    assert "t/7/0" not in result.advantages
    assert result.counts.unrewarded_turns == result.metrics["credit/unrewarded_turns"] == 1
    assert result.metrics["reward/solver/ungraded"] == pytest.approx(1 / 8)
    # the mean is over the seven that were graded, 2/7
    assert result.metrics["reward/solver/correct"] == pytest.approx(2 / 7)


def test_seven_of_eight_peers_without_a_reward_leave_one_alone_with_a_finite_advantage():
    step = [made_episode(solution(True if index == 0 else None), index=index) for index in range(8)]
    result = make_algorithm("agent_grpo").advantages(step)
    assert result.advantages == {"t/0/0": 0.0}
    assert (result.counts.alone, result.counts.unrewarded_units) == (1, 7)


def test_team_and_own_rewards_are_reported_apart():
    reward = Mixed(weights={"team": 1.0, "correct": 1.0}, by_role={"verifier": {"team": 1.0}})
    metrics = make_algorithm("dr_mas", {"reward": reward}).advantages(loop_step()).metrics
    assert metrics["reward/solver/team"] == 0.5
    assert metrics["reward/solver/correct"] == 0.25
    assert metrics["reward/solver/total"] == 0.75
    assert (metrics["reward/solver/broadcast"], metrics["reward/verifier/broadcast"]) == (0.0, 1.0)
    broadcast = make_algorithm("dr_mas").advantages(loop_step()).metrics
    assert broadcast["reward/solver/broadcast"] == 1.0
    assert "reward/solver/correct" not in broadcast


def test_credit_metrics_say_who_holds_the_advantage_and_where_it_is_flat():
    step = [*loop_step(), *(made_episode(solution(True), task="easy", index=i, team=RIGHT) for i in range(4))]
    metrics = make_algorithm("dr_mas", {"estimator": "mean"}).advantages(step).metrics
    # A = +-1/2: solver 4 turns and 4 flat ones, verifier 4 turns, corrector 2 turns
    assert [metrics[f"credit/{role}/advantage_mass"] for role in ("solver", "verifier", "corrector")] == [2.0, 2.0, 1.0]
    assert metrics["credit/corrector/advantage_mass_share"] == pytest.approx(0.2)
    assert metrics["credit/solver/zero_spread_share"] == 0.5
    assert metrics["credit/verifier/zero_spread_share"] == 0.0
    assert (metrics["credit/groups"], metrics["credit/constant_groups"]) == (4.0, 1.0)
    assert metrics["credit/solver/reward_mean"] == 0.75


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
@settings(max_examples=20, deadline=None)
@given(random=st.randoms())
def test_no_algorithm_sees_the_order_of_the_episodes(name, random):
    algorithm, step = make_algorithm(name), made_step()
    random.shuffle(step)
    shuffled, straight = algorithm.advantages(step), algorithm.advantages(made_step())
    assert shuffled == straight


def test_peers_of_one_episode_are_refused_before_anything_is_sampled():
    with pytest.raises(ConfigError, match="n is 1, so every unit would be alone"):
        make_algorithm("mas_grpo", {"n": 1})
    assert make_algorithm("mas_grpo", {"n": 1, "alone": "running_mean"}).sampler.n == 1
    assert make_algorithm("rae").sampler.n == 1


def test_an_algorithm_of_ones_own_is_five_choices():
    mine = Algorithm(name="mine", reward=AgentSpecific(), grouping=Grouping(peers="task_role_turn"), estimator=Mean())
    _, advantages = earned(mine)
    assert [advantages[f"t/{i}/0"] for i in range(4)] == [0.75, -0.25, -0.25, -0.25]
    assert Algorithm(name="other").estimator == MeanStd()


def raising(graded):
    raise ValueError("no such part")


@pytest.mark.parametrize(
    ("reward", "words"),
    [
        (raising, r"the reward of algorithm 'own'.* raised ValueError: no such part \(line \d+ of .*, in raising\)"),
        (lambda graded: None, "the reward gave None"),
        (lambda graded: [1.0], r"the reward gave \[1.0\]"),
        (lambda graded: {turn.id: 1.0 for turn in graded.episode.turns}, "is 1.0; wanted Reward"),
        (lambda graded: {t.id: Reward(parts={}, total="x") for t in graded.episode.turns}, "is 'x'; wanted a finite"),
    ],
    ids=["raises", "nothing", "a list", "numbers", "a text"],
)
def test_a_reward_that_raises_or_gives_no_rewards_is_one_message_that_names_it(reward, words):
    algorithm = Algorithm(name="own", reward=reward, grouping=Grouping(unit="turn", peers="task"), estimator=MeanStd())
    with pytest.raises(RolecallError, match=words):
        algorithm.advantages(made_step())


def test_a_small_reward_for_format_is_small_only_where_answers_differ_or_nothing_divides_by_the_spread():
    """Rewards 0.1, 0.1, 0.1, 0 (all wrong, one unreadable): mean 0.075, deviation 0.05, so advantages 0.5 and -1.5; the
    plain difference to the mean stays small. With one answer right (1.1, 0.1, 0.1, 0: mean 0.325, deviation 0.5188) the
    readable and the unreadable wrong ones are close, -0.434 and -0.626."""
    mixed = {"reward": {"name": "mixed", "weights": {"correct": 1.0, "format": 0.1}}}

    def step(*right):
        said = [solution(one) if one is not None else solution(False, value=None) for one in right]
        return [made_episode(one, index=index) for index, one in enumerate(said)]

    wrong = step(False, False, False, None)
    assert list(earned(make_algorithm("agent_grpo", mixed), wrong)[1].values()) == [0.5, 0.5, 0.5, -1.5]
    plain = make_algorithm("agent_grpo", {**mixed, "estimator": "mean"})
    assert list(earned(plain, wrong)[1].values()) == [0.025, 0.025, 0.025, -0.075]
    one_right = earned(make_algorithm("agent_grpo", mixed), step(True, False, False, None))[1]
    assert list(one_right.values()) == [1.494, -0.434, -0.434, -0.626]
