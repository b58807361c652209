"""What becomes of the turns of a failed episode is what `rollout.on_failure` says, whatever the reward thinks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from rolecall.assemble import make_plan
from rolecall.config import make_config, overlay
from rolecall.errors import ConfigError
from rolecall.progress import PlainLines
from rolecall.run_folder import RunFolder
from rolecall.train import train

FAILING: dict[str, Any] = {
    "steps": 1,
    "workflow": {"name": "user_parts:Raises"},
    "algorithm": {"name": "user_parts:letters", "n": 4, "reward": "user_parts:Generous"},
    "evaluation": {"every_steps": 0},
}


def trained(config: Any, path: Path) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """The rewards of a run of one step in which every episode fails after its first turn, and its metrics."""
    train(config, path, PlainLines(1, ()))
    rows = [row for file in (path / "episodes").glob("*.parquet") for row in pq.read_table(file).to_pylist()]
    assert {row["outcome"] for row in rows} == {"error"}
    rewards = [reward for row in rows for reward in json.loads(row["record"])["rewards"].values()]
    return rewards, {key: value for step, key, value in RunFolder.open(path).read_metrics() if step == 1}


@pytest.mark.parametrize("how", [{"on_failure": "zero"}, {"on_failure": "retry", "after_retries": "zero"}])
def test_zero_means_zero_under_a_reward_that_knows_no_failures(small: Any, tmp_path: Path, how: dict[str, str]) -> None:
    rewards, metrics = trained(small(**FAILING, rollout=how), tmp_path / "r")
    assert len(rewards) == 16
    assert {reward["total"] for reward in rewards} == {0.0}
    assert all(reward["parts"] == {"failed": 1.0} for reward in rewards)
    assert metrics["episodes/zeroed"] == metrics["episodes/started"] == 16
    assert metrics["credit/solver/advantage_mass"] == 0.0


def test_keep_leaves_the_turns_before_a_failure_to_the_reward(small: Any, tmp_path: Path) -> None:
    rewards, metrics = trained(small(**FAILING, rollout={"on_failure": "keep"}), tmp_path / "r")
    assert {reward["total"] for reward in rewards} == {1.0, 2.0}
    assert (metrics["episodes/zeroed"], metrics["episodes/dropped"], metrics["episodes/error"]) == (0, 0, 16)


@pytest.mark.parametrize(
    "reward",
    [
        {"name": "agent_specific", "on_failure": "keep"},
        "mixed",
    ],
)
def test_a_reward_that_keeps_and_a_rollout_that_zeroes_are_refused_together(reward: Any) -> None:
    from rolecall.rewards import AgentSpecific, Mixed

    if reward == "mixed":
        reward = Mixed(weights={"own": 1.0}, extra={"own": AgentSpecific(on_failure="keep")})
    base = {
        "workflow": {"name": "solve_verify_correct"},
        "tasks": {"name": "jsonl", "path": "tasks.jsonl"},
        "algorithm": {"name": "agent_grpo", "reward": reward},
    }
    with pytest.raises(
        ConfigError, match=r"on_failure = \"keep\" keeps .* under rollout.on_failure = 'zero' .* 0; set"
    ):
        make_plan(make_config(base))
    with pytest.raises(ConfigError, match=r"under rollout\.on_failure = 'retry'"):
        make_plan(make_config(overlay(base, {"rollout": {"on_failure": "retry"}})))
    for how in ({"on_failure": "keep"}, {"on_failure": "drop"}, {"on_failure": "retry", "after_retries": "keep"}):
        make_plan(make_config(overlay(base, {"rollout": how})))
