"""Algorithms from names and overrides, as a configuration gives them."""

from __future__ import annotations

import sys
import types
from dataclasses import dataclass, replace

import pytest

from rolecall.algorithms import ALGORITHMS, Algorithm, Loss, make_algorithm
from rolecall.credit import Grouping, LeaveOneOut, Mean, MeanStd, RunningMean
from rolecall.errors import ConfigError
from rolecall.rewards import AgentSpecific, Mixed, TeamOutcome
from rolecall.rollout.samplers import EpisodePlan


@pytest.fixture
def user_module():
    module = types.ModuleType("my_algorithms")

    def sharp(n: int = 4, weight: float = 1.0) -> Algorithm:
        reward = Mixed(weights={"team": 1.0, "correct": weight})
        return Algorithm(name="sharp", reward=reward, alone="raw")

    module.sharp, module.ready, module.number = sharp, Algorithm(name="ready"), 7
    module.broken = lambda: {}
    module.raising = lambda: 1 / 0
    sys.modules["my_algorithms"] = module
    yield module
    del sys.modules["my_algorithms"]


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_every_named_algorithm_is_made_without_overrides_under_its_own_name(name):
    assert make_algorithm(name).name == name


def test_overrides_replace_exactly_what_they_name():
    base = make_algorithm("dr_mas")
    changed = make_algorithm(
        "dr_mas",
        {
            "n": 16,
            "peers": "task",
            "alone": "raw",
            "reward": "agent_specific",
            "estimator": {"name": "mean_std", "ddof": 0},
            "loss": {"kl_coef": 1, "kl_by_role": {"verifier": 0.5}},
        },
    )
    assert changed.sampler.n == 16
    assert changed.grouping == Grouping(unit="turn", peers="task")
    assert (changed.alone, changed.reward, changed.estimator) == ("raw", AgentSpecific(), MeanStd(ddof=0))
    assert changed.loss == Loss(clip_low=0.2, clip_high=0.2, kl_coef=1.0, kl_by_role={"verifier": 0.5})
    assert make_algorithm("dr_mas", {}) == base


def test_a_reward_table_reaches_its_knobs_and_an_object_is_taken_as_it_is():
    table = {"name": "mixed", "weights": {"team": 1.0}, "by_role": {"verifier": {"correct": 1.0}}}
    mixed = Mixed(weights={"team": 1.0}, by_role={"verifier": {"correct": 1.0}})
    assert make_algorithm("dr_mas", {"reward": table}).reward == mixed
    assert make_algorithm("dr_mas", {"reward": mixed}).reward is mixed
    assert make_algorithm("dr_mas", {"estimator": "leave_one_out"}).estimator == LeaveOneOut()
    running = RunningMean(initial=0.5)
    assert make_algorithm("rae", {"estimator": running}).estimator is running


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"peer": "task"}, "'dr_mas' has no setting 'peer'; did you mean 'peers'"),
        ({"kl_coef": 0.1}, "has no setting 'kl_coef'"),
        ({"loss": {"clip_hi": 0.3}}, "loss has no setting 'clip_hi'; did you mean 'clip_high'"),
        ({"loss": {"kl_beta": 0.3}}, "loss has no setting 'kl_beta'"),
        ({"loss": 3}, "loss is 3; wanted a table"),
        ({"loss": {"clip_low": "a lot"}}, "clip_low"),
        ({"reward": "team_outcom"}, "did you mean 'team_outcome'"),
        ({"reward": {"name": "mixed", "weight": {}}}, "no setting 'weight'; did you mean 'weights'"),
        ({"reward": {"weights": {"team": 1.0}}}, "wanted a table with a `name`"),
        ({"reward": 3}, "reward is 3"),
        ({"estimator": "mean_sdt"}, "did you mean 'mean_std'"),
        ({"estimator": {"name": "mean", "ddof": 1}}, "no setting 'ddof'"),
        ({"alone": "keep"}, "alone is 'keep'; wanted one of zero, raw, running_mean"),
        ({"n": "8"}, "'n': '8' is str, wanted int"),
        ({"unit": "trajectory", "peers": "prompt"}, "compares single turns"),
        ({"merge_copies": "worker"}, "wanted a list"),
    ],
)
def test_an_override_that_nothing_reads_is_an_error_that_names_the_nearest(overrides, message):
    with pytest.raises(ConfigError, match=message):
        make_algorithm("dr_mas", overrides)


@dataclass(frozen=True, kw_only=True)
class OneTree:
    """A sampler that does not draw n episodes a task."""

    denominator = "calls"

    def plans(self, tasks):
        return tuple(EpisodePlan(task=task, index=0) for task in tasks)


@pytest.mark.usefixtures("user_module")
def test_n_is_refused_where_the_sampler_has_no_such_knob():
    sys.modules["my_algorithms"].tree = lambda: Algorithm(name="tree", sampler=OneTree())
    assert make_algorithm("my_algorithms:tree").sampler == OneTree()
    with pytest.raises(ConfigError, match="draws by OneTree, which has no n; leave n out"):
        make_algorithm("my_algorithms:tree", {"n": 4})


def test_an_unknown_algorithm_names_the_nearest_one():
    with pytest.raises(ConfigError, match=r"no algorithm is called 'dr_mass'; did you mean 'dr_mas'"):
        make_algorithm("dr_mass")


@pytest.mark.usefixtures("user_module")
def test_an_algorithm_of_the_users_own_takes_its_parameters_and_the_usual_overrides():
    made = make_algorithm("my_algorithms:sharp", {"weight": 0.5, "estimator": "mean", "loss": {"ratio": "turn"}})
    assert made.reward == Mixed(weights={"team": 1.0, "correct": 0.5})
    assert (made.estimator, made.loss.ratio, made.alone) == (Mean(), "turn", "raw")
    ready = make_algorithm("my_algorithms:ready", {"n": 4})
    assert (ready.name, ready.sampler.n, ready.reward) == ("ready", 4, TeamOutcome())


@pytest.mark.usefixtures("user_module")
def test_what_is_no_algorithm_is_named_with_what_was_wanted():
    with pytest.raises(ConfigError, match="returned dict"):
        make_algorithm("my_algorithms:broken")
    with pytest.raises(ConfigError, match="'my_algorithms:raising' raised ZeroDivisionError"):
        make_algorithm("my_algorithms:raising")
    with pytest.raises(ConfigError, match="is int 7; wanted an `Algorithm`"):
        make_algorithm("my_algorithms:number")
    with pytest.raises(ConfigError, match=r"has no 'shrap'; did you mean 'sharp'"):
        make_algorithm("my_algorithms:shrap")
    with pytest.raises(ConfigError, match=r"has no setting 'wieght'; did you mean 'weight'"):
        make_algorithm("my_algorithms:sharp", {"wieght": 0.5})


def test_a_module_that_is_not_there_is_one_clear_message():
    with pytest.raises(ConfigError, match="there is no module 'no_such_module' on the Python path"):
        make_algorithm("no_such_module:thing")


def test_the_options_of_marsrl_are_off_by_default_and_reached_by_their_keys():
    plain = make_algorithm("marsrl")
    assert plain.loss == Loss(ratio="one", clipped=False, zero_advantage_in_denominator=False, mask_mastered=True)
    assert (plain.reward, plain.balance_verdicts) == (AgentSpecific(), False)
    small = {"name": "mixed", "weights": {"correct": 1.0, "format": 0.1}}
    sais = {"ratio": "token", "clipped": True, "clip_high": 0.2}
    made = make_algorithm("marsrl", {"reward": small, "balance_verdicts": True, "balance_cap": 2, "loss": sais})
    assert made.loss == replace(plain.loss, ratio="token", clipped=True, clip_high=0.2)
    assert (made.reward, made.balance_verdicts, made.balance_cap) == (Mixed(weights=small["weights"]), True, 2.0)
