"""A whole run that takes seconds: a random two-layer model, ten tasks, an engine inside this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rolecall.config import RunConfig, make_config, overlay
from tiny_models import make_tiny_model


@pytest.fixture(scope="session")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_tiny_model(tmp_path_factory.mktemp("model"), std=0.1)


@pytest.fixture(scope="session")
def task_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tasks") / "tasks.jsonl"
    rows = [{"question": f"{a}+{b}", "answer": str(a + b)} for a in range(12) for b in range(12)]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


@pytest.fixture
def small(random_model: str, task_file: Path) -> Any:
    """A function that makes a small configuration with changes."""

    def make(**changes: Any) -> RunConfig:
        return make_config(overlay(small_config(random_model, task_file), changes))

    return make


@pytest.fixture
def recipe_data(random_model: str, task_file: Path) -> dict[str, Any]:
    """The tables of a small recipe."""
    return small_config(random_model, task_file)


def small_config(model: str, tasks: Path) -> dict[str, Any]:
    return {
        "name": "small",
        "steps": 2,
        "workflow": {"name": "single_agent", "answer_format": "text"},
        "tasks": {"name": "jsonl", "path": str(tasks), "sizes": {"validation": 4, "test": 4}},
        "model": {"model": model},
        "algorithm": {"name": "user_parts:letters", "n": 4},
        "sampling": {"max_tokens": 6, "max_prompt_tokens": 256},
        "rollout": {"tasks_per_step": 4},
        "learner": {"lr": 3e-3},
        "engine": {"mode": "inline"},
        "evaluation": {"every_steps": 1},
    }
