"""One small run for all tests of this folder: a random model plays solver, verifier and corrector for a step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from rolecall.config import RunConfig, make_config
from rolecall.debugging.show import Page
from rolecall.progress import PlainLines
from rolecall.train import train
from tiny_models import make_tiny_model

HOSTILE = "1+1 \x1b[2J[bold]no markup[/bold] \u202eright to left"


@pytest.fixture(scope="session")
def small_config(tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    folder = tmp_path_factory.mktemp("debugging")
    rows = [{"question": f"{a}+{b}", "answer": str(a + b)} for a in range(9) for b in range(9)]
    tasks = folder / "tasks.jsonl"
    tasks.write_text("\n".join(json.dumps(row) for row in [*rows, {"question": HOSTILE, "answer": "2"}]))
    return make_config(
        {
            "name": "small",
            "steps": 1,
            "workflow": {
                "name": "solve_verify_correct",
                "prompts": "tiny",
                "answer_format": "text",
                "max_rounds": 1,
            },
            "tasks": {"name": "jsonl", "path": str(tasks), "sizes": {"validation": 3, "test": 2}},
            "model": {"model": make_tiny_model(folder / "model", std=0.1)},
            "algorithm": {"name": "checked_parts:odd", "n": 2},
            "sampling": {"max_tokens": 6, "max_prompt_tokens": 256},
            "rollout": {"tasks_per_step": 2},
            "learner": {"lr": 1e-2},
            "engine": {"mode": "inline"},
            "evaluation": {"sampling": {"temperature": 0.5}, "greedy": False},
            "parity": {"canary": False},
        }
    )


@pytest.fixture(scope="session")
def small_run(small_config: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "small"
    train(small_config, folder, PlainLines(1, ()))
    return folder


class Paper(Page):
    """A page whose text can be read again."""

    def __init__(self, width: int = 80) -> None:
        import io

        self.file = io.StringIO()
        super().__init__(Console(file=self.file, width=width, highlight=False, markup=False, emoji=False))

    @property
    def text(self) -> str:
        return self.file.getvalue()

    @property
    def words(self) -> str:
        """The text without its line breaks."""
        return " ".join(self.text.split())


@pytest.fixture
def paper() -> Any:
    return Paper
