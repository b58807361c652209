"""Small runs: a random two-layer model, 144 sums, an engine inside the process unless a test says otherwise."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from rolecall.config import RunConfig, make_config, overlay
from tiny_models import make_tiny_model

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A run of two roles under one policy, as a mapping."""
    folder = tmp_path_factory.mktemp("small")
    tasks = folder / "tasks.jsonl"
    sums = [{"question": f"{a}+{b}", "answer": str(a + b)} for a in range(12) for b in range(12)]
    tasks.write_text("\n".join(json.dumps(row) for row in sums))
    return {
        "name": "small",
        "steps": 3,
        "workflow": {"name": "single_agent", "answer_format": "text"},
        "tasks": {"name": "jsonl", "path": str(tasks), "sizes": {"validation": 3, "test": 3}},
        "model": {"model": make_tiny_model(folder / "model", std=0.1)},
        "algorithm": {"name": "run_parts:running", "n": 2},
        "sampling": {"max_tokens": 4, "max_prompt_tokens": 512},
        "rollout": {"tasks_per_step": 2},
        "learner": {"lr": 3e-3},
        "engine": {"mode": "inline"},
        "evaluation": {"every_steps": 1, "greedy": False},
    }


@pytest.fixture(scope="session")
def small(base: dict[str, Any]) -> Callable[..., RunConfig]:
    """A function that makes a small configuration with changes."""

    def make(**changes: Any) -> RunConfig:
        return make_config(overlay(base, changes))

    return make


@pytest.fixture
def recipe(base: dict[str, Any], tmp_path: Path) -> Callable[..., Path]:
    """A function that writes a recipe with changes, for the command line."""

    def write(**changes: Any) -> Path:
        path = tmp_path / "recipe.toml"
        path.write_text(tomli_w.dumps(overlay(base, changes)))
        return path

    return write


def run_child(config: RunConfig, path: str, options: dict[str, Any], fault: str, compact_at: int) -> None:
    """In a process of its own: a run that is to be killed at an armed point."""
    import rolecall.run_folder as run_folder
    from rolecall.progress import PlainLines
    from rolecall.train import train

    os.environ["ROLECALL_FAULT"] = fault
    run_folder.COMPACT_AT = compact_at
    train(config, Path(path), PlainLines(config.steps, ()), **options)


@pytest.fixture(scope="session")
def killed() -> Callable[..., int]:
    """`killed(config, path, fault)` runs in a fresh process, and returns its exit code."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["rolecall.train", "run_parts", "tiny_models", "peft", "math_verify"])

    def run(config: RunConfig, path: Path, fault: str, *, compact_at: int = 64, **options: Any) -> int:
        process = context.Process(target=run_child, args=(config, str(path), options, fault, compact_at))
        process.start()
        process.join(120)
        assert process.exitcode is not None
        return process.exitcode

    return run
