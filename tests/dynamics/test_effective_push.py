"""Effective push: how many optimizer steps a role is given, and what they add up to within a step and over a run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from learner_helpers import adapter_spec, identical, learner_of, model_spec, policies_of, random_samples, snapshot
from rolecall.assemble import learner_config
from rolecall.config import PolicyConfig, make_config
from rolecall.dynamics.monitor import DynamicsMonitor
from rolecall.dynamics.settings import DynamicsSettings
from rolecall.errors import ConfigError
from rolecall.learner.config import LearnerConfig
from rolecall.learner.packing import num_minibatches, split_minibatches
from rolecall.records import Sample

Tiny = Callable[..., str]
FIXED = LearnerConfig(lr=1e-3, optimizer_steps="fixed_minibatch", minibatch_sequences=8)


def voting(seed: int = 0, episodes: int = 8) -> list[Sample]:
    """Three voters and an aggregator an episode, each role with a policy of its own."""
    drawn = random_samples(4 * episodes, roles=("voter", "voter", "voter", "aggregator"), seed=seed)
    return [
        replace(s, policy=s.role, copy=i % 4 if i % 4 < 3 else 0, episode_id=f"e{i // 4}") for i, s in enumerate(drawn)
    ]


def test_minibatches_of_a_fixed_size_are_counted_in_trajectories_to_the_nearest() -> None:
    samples = random_samples(20)
    assert [num_minibatches(samples, size) for size in (20, 10, 8, 14, 13, 7, 100)] == [1, 2, 3, 1, 2, 3, 1]
    split_in_two = [part for s in samples for part in (s, replace(s, token_ids=s.token_ids))]
    assert num_minibatches(split_in_two, 10) == 2  # two sequences of one trajectory are one
    assert num_minibatches([], 10) == 1


def test_a_fixed_minibatch_gives_a_role_of_three_copies_three_optimizer_steps_to_one(tiny_model: Tiny) -> None:
    folder = tiny_model()
    built = policies_of([adapter_spec(role, folder) for role in ("voter", "aggregator")], FIXED)
    seen = {}
    for name, policy in built.items():
        assert policy.learner is not None
        seen |= policy.learner.update([s for s in voting() if s.policy == name], 1).metrics
    assert seen["learner/voter/optimizer_steps"] == seen["dynamics/voter/optimizer_steps"] == 3.0
    assert seen["learner/aggregator/optimizer_steps"] == seen["dynamics/aggregator/optimizer_steps"] == 1.0
    assert seen["learner/voter/sequences"] == seen["learner/aggregator/sequences"] == 8.0
    # AdamW's first steps are about lr in every weight, so three of them go about three times as far
    assert seen["dynamics/voter/update_norm"] > 2.0 * seen["dynamics/aggregator/update_norm"]


def test_one_optimizer_step_is_the_default_whatever_the_number_of_copies(tiny_model: Tiny) -> None:
    learner = learner_of(model_spec("voter", tiny_model()), LearnerConfig(minibatch_sequences=1))
    metrics = learner.update([s for s in voting() if s.policy == "voter"], 1).metrics
    assert metrics["learner/voter/optimizer_steps"] == 1.0
    assert metrics["learner/voter/sequences"] == 24.0


def test_pushes_of_a_step_are_those_of_its_optimizer_steps_one_by_one(tiny_model: Tiny) -> None:
    samples = random_samples(18, roles=("solver", "verifier"))
    config = LearnerConfig(lr=1e-3, minibatches=3)
    whole, apart = (learner_of(model_spec("team", tiny_model()), config) for _ in range(2))
    metrics = whole.update(samples, 1).metrics
    single = learner_of(model_spec("team", tiny_model()), LearnerConfig(lr=1e-3))
    reports = [single.update(part, 1).metrics for part in split_minibatches(samples, 3, config.seed, 1)]
    assert identical(snapshot(whole), snapshot(single))
    assert not identical(snapshot(whole), snapshot(apart))
    for role in ("solver", "verifier"):
        for name in ("push", "update_norm", "optimizer_steps"):
            key = f"dynamics/{role}/{name}"
            assert metrics[key] == pytest.approx(sum(report[key] for report in reports), rel=1e-6)
        for name in (
            "cosine_update",
            "grad_norm",
            "mass_share",
            "cosine_total",
        ):  # within an optimizer step, then means
            key = f"dynamics/{role}/{name}"
            assert metrics[key] == pytest.approx(sum(report[key] for report in reports) / 3, rel=1e-6)


def test_the_drift_of_a_step_is_that_of_all_its_optimizer_steps(tiny_model: Tiny) -> None:
    settings = DynamicsSettings(probe_every_steps=1)
    drifts = {}
    for count in (1, 3):
        learner = learner_of(model_spec("team", tiny_model()), LearnerConfig(lr=1e-3, minibatches=count))
        monitor = DynamicsMonitor({"team": learner}, {"solver": "team"}, settings)
        monitor.rows["solver"] = probe()
        monitor.before_update(1, [])
        reported = learner.update(random_samples(12), 1).metrics
        drifts[count] = monitor.after_update(1, reported)
    assert drifts[3]["dynamics/solver/kl_last"] > 2.0 * drifts[1]["dynamics/solver/kl_last"]
    assert drifts[3]["dynamics/solver/kl_last"] == drifts[3]["dynamics/solver/kl_base"]


def probe():
    from rolecall.dynamics.drift import ProbeRow

    return [ProbeRow(token_ids=(1, 2, 3, 4), positions=(2, 3))]


def test_pushes_are_summed_over_the_run_and_go_on_after_a_resume(tiny_model: Tiny) -> None:
    def monitor() -> DynamicsMonitor:
        return DynamicsMonitor({}, {}, DynamicsSettings(probe_every_steps=0))

    whole, parts = monitor(), monitor()
    for one in (whole, parts):
        one.roles = {"solver": "team", "verifier": "team"}
    first = {"dynamics/solver/optimizer_steps": 3.0, "dynamics/solver/update_norm": 0.5, "dynamics/solver/push": -0.1}
    second = {**first, "dynamics/verifier/optimizer_steps": 1.0}
    for one in (whole, parts):
        assert one.after_update(1, first)["dynamics/solver/total_optimizer_steps"] == 3.0
    resumed = monitor()
    resumed.roles = whole.roles
    resumed.restore(json.loads(json.dumps(parts.state())))
    figures = [one.after_update(2, second) for one in (whole, resumed)]
    assert figures[0] == figures[1]
    assert figures[0]["dynamics/solver/total_update_norm"] == 1.0
    assert figures[0]["dynamics/solver/total_push"] == pytest.approx(-0.2)
    assert figures[0]["dynamics/verifier/total_optimizer_steps"] == 1.0
    assert figures[0]["dynamics/solver/total_optimizer_steps"] == 6.0
    # a step in which a role had no gradient keeps its sums on the curve
    assert whole.after_update(3, {})["dynamics/solver/total_optimizer_steps"] == 6.0


def test_settings_that_contradict_each_other_are_named() -> None:
    with pytest.raises(ConfigError, match=r"optimizer_steps is 'fixed'.*fixed_minibatch"):
        LearnerConfig(optimizer_steps="fixed")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="minibatches = 2 and"):
        LearnerConfig(optimizer_steps="fixed_minibatch", minibatches=2)
    with pytest.raises(ConfigError, match="minibatch_sequences is 0"):
        LearnerConfig(minibatch_sequences=0)


def test_a_policy_may_have_its_own_and_a_schedule_spans_the_run_all_the_same() -> None:
    config = make_config(
        {
            "workflow": {"name": "voting"},
            "tasks": {"name": "arithmetic"},
            "algorithm": {"name": "workflow_grpo"},
            "learner": {"schedule": "cosine"},
            "steps": 10,
        }
    )
    assert learner_config(config, PolicyConfig()).schedule_steps == 10
    own = learner_config(config, PolicyConfig(learner={"optimizer_steps": "fixed_minibatch"}))
    assert (own.optimizer_steps, own.schedule_steps) == ("fixed_minibatch", 10)


def test_policies_with_more_optimizer_steps_follow_the_same_schedule_by_training_steps(tiny_model: Tiny) -> None:
    config = replace(FIXED, schedule="cosine", warmup_steps=1, schedule_steps=4)
    folder, rates = tiny_model(), {"voter": [], "aggregator": []}
    for name, seen in rates.items():
        learner = learner_of(adapter_spec(name, folder), config)
        for step in range(1, 5):
            metrics = learner.update([s for s in voting(step) if s.policy == name], step).metrics
            seen.append(metrics[f"learner/{name}/lr"])
            saved, learner = learner.state_dict(), learner_of(adapter_spec(name, folder), config)
            learner.load_state_dict(saved)  # a resumed run goes on at the same place
    # warm-up of one, then half a cosine over three: 1, 1, 1/2, 0
    assert rates["voter"] == rates["aggregator"] == pytest.approx([1e-3, 1e-3, 5e-4, 0.0])
