"""What a recipe of agentic groups may ask for, and the words for what it may not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rolecall.assemble import config_fingerprint, make_plan
from rolecall.config import RunConfig, load_config, make_config, overlay
from rolecall.errors import ConfigError
from rolecall.rollout.agentic import AgenticGroups

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
OVERLAPPED = {"mode": "overlapped", "update_rows": 16, "max_staleness": 1}


@pytest.fixture
def config(tmp_path: Path) -> Any:
    """A function that makes a configuration with changes; its tasks are never read."""
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(json.dumps({"question": "1+1", "answer": "2"}))
    base = {
        "workflow": {"name": "solve_verify_correct"},
        "tasks": {"name": "jsonl", "path": str(tasks)},
        "algorithm": {"name": "marsrl", "n": 8},
    }

    def make(**changes: Any) -> RunConfig:
        return make_config(overlay(base, changes))

    return make


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"schedule": {"mode": "pipeline"}},
        {"schedule": {"mode": "pipeline_segments", "segment_tokens": 64, "release": "arrived"}},
        {"schedule": {"mode": "pipeline", "max_staleness": 2, "on_stale": "mask"}},
        {"schedule": OVERLAPPED, "deterministic": False},
        {"rollout": {"refill": True, "max_oversampling": 3}},
        {"algorithm": {"reward": {"name": "team_outcome"}}},
        {"train_roles": ["verifier", "corrector"]},
    ],
)
def test_what_goes_together(config: Any, changes: dict[str, Any]) -> None:
    assert isinstance(make_plan(config(**changes)).algorithm.sampler, AgenticGroups)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"schedule": OVERLAPPED}, "schedule.mode is 'overlapped' and deterministic is true"),
        ({"schedule": {"mode": "pipeline", "max_rows": 5}}, "max_rows is 5 and a group has 8 completions"),
        (
            {"schedule": {"mode": "pipeline"}, "algorithm": {"reward": {"name": "team_outcome"}}},
            "broadcasts the team's outcome, and under schedule.mode 'pipeline'",
        ),
        (
            {"algorithm": {"name": "agent_grpo"}, "schedule": {"mode": "pipeline"}},
            "algorithm 'agent_grpo' draws independent episodes",
        ),
        (
            {"algorithm": {"name": "agent_grpo"}, "rollout": {"refill": True}},
            "rollout.refill belongs to agentic groups",
        ),
        ({"checkpoint": {"keep_inflight": True}, "deterministic": False}, "records independent episodes"),
        ({"algorithm": {"k": 9}}, "k is 9 and a group has n = 8"),
        ({"algorithm": {"unit": "trajectory"}}, "peers = 'drawn' compares single turns"),
        ({"algorithm": {"unit": "episode", "peers": "task"}}, "every turn is a candidate of its own"),
        ({"schedule": {"mode": "pipeline", "segments": 4}}, "segments"),
        ({"schedule": {"mode": "pipe"}}, "schedule.mode is 'pipe'"),
        ({"rollout": {"max_flat_steps": -1}}, "max_flat_steps"),
        ({"rollout": {"refill": True, "max_oversampling": float("inf")}}, "max_oversampling: Input should be a finite"),
        ({"sampling": {"temperature": float("inf")}}, "sampling.temperature is inf"),
        (
            {"schedule": {"mode": "pipeline", "on_stale": "drop", "max_staleness_by_policy": {"shard": 1}}},
            "max_staleness_by_policy names the unknown policy 'shard'; did you mean 'shared'?",
        ),
        ({"algorithm": {"prefer": {"verifyer": "low"}}}, "prefer names the unknown role 'verifyer'; did you mean"),
    ],
)
def test_what_does_not_go_together_is_refused_in_words(config: Any, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as error:
        make_plan(config(**changes))
    assert words in str(error.value)


def test_when_a_run_gives_up_may_change_on_the_way_and_its_schedule_may_not(config: Any) -> None:
    one = config_fingerprint(config())
    assert config_fingerprint(config(rollout={"max_flat_steps": 3})) == one
    assert config_fingerprint(config(rollout={"max_oversampling": 3})) != one
    assert config_fingerprint(config(schedule={"mode": "pipeline"})) != one


@pytest.mark.parametrize("recipe", sorted(RECIPES.glob("marsrl*.toml")), ids=lambda path: path.stem)
def test_the_recipes_of_marsrl_fit_together(recipe: Path) -> None:
    sampler = make_plan(load_config(recipe)).algorithm.sampler
    assert isinstance(sampler, AgenticGroups)
    assert sampler.max_calls == 72
