"""Evaluating a checkpoint under other settings than it was trained with."""

from __future__ import annotations

import pytest

from rolecall.errors import CheckpointError, UsageError
from rolecall.evaluate_run import evaluate_run
from rolecall.progress import PlainLines
from rolecall.train import train


def test_a_checkpoint_is_evaluated_in_another_mode_and_on_more_tasks_but_never_on_another_split(small, tmp_path):
    team = {"name": "solve_verify_correct", "prompts": "tiny", "answer_format": "text"}
    run = tmp_path / "r"
    train(small(steps=1, workflow=team, evaluation={"every_steps": 0, "greedy": False}), run, PlainLines(1, ()))
    system = ("workflow.mode=system", "workflow.max_iterations=2", "tasks.sizes.test=6", "sampling.max_tokens=3")
    found = evaluate_run(run, overrides=system)
    assert found["checkpoint"] == "step-00000001"
    assert found["team"]["n"] == 6
    with pytest.raises(UsageError, match="another split has training tasks in its test set"):
        evaluate_run(run, overrides=("tasks.split_seed=1",))
    with pytest.raises(CheckpointError, match="no policy 'solver'"):
        evaluate_run(run, overrides=("sharing=isolated",))
