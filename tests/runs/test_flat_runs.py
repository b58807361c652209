"""A run whose steps teach nothing for a while stops, says why, and can be gone on with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from run_compare import differences, metrics

from rolecall.config import RunConfig, overlay
from rolecall.errors import CheckpointError
from rolecall.learner.checkpoint import latest
from rolecall.progress import PlainLines
from rolecall.run_state import FlatRun, Totals
from rolecall.train import train

Small = Callable[..., RunConfig]
QUICK: dict[str, Any] = {"evaluation": {"every_steps": 0}, "tasks": {"sizes": {"validation": 0, "test": 0}}}
NEVER_RIGHT = {**QUICK, "algorithm": {"name": "agent_grpo", "n": 2}}


def run(config: RunConfig, path: Path, **options: bool) -> dict[str, Any]:
    return train(config, path, PlainLines(config.steps, ()), **options)


def test_a_run_stops_after_so_many_flat_steps_with_the_reason_and_goes_on_when_told(
    small: Small, tmp_path: Path
) -> None:
    """A random model is never right: every group has zero spread."""
    config = small(**NEVER_RIGHT, steps=4, rollout={"max_flat_steps": 2}, checkpoint={"every_steps": 4})
    with pytest.raises(FlatRun) as error:
        run(config, tmp_path / "r")
    words = str(error.value)
    assert "2 steps in a row have taught nothing, up to step 2 (rollout.max_flat_steps is 2)" in words
    assert "no advantage differs from 0: 2 of 2 sets of peers have zero spread" in words
    assert f"rolecall train --resume --run {tmp_path / 'r'} --set rollout.max_flat_steps=0" in words
    newest = latest(tmp_path / "r" / "checkpoints")
    assert newest is not None
    assert newest.name == "step-00000002"  # kept, though no checkpoint was due
    assert max(step for step, _, _ in metrics(tmp_path / "r")) == 2
    with pytest.raises(FlatRun, match="up to step 2"):
        run(config, tmp_path / "r", resume=True)
    assert max(step for step, _, _ in metrics(tmp_path / "r")) == 2  # nothing was generated again
    patient = small(**NEVER_RIGHT, steps=4, rollout={"max_flat_steps": 0}, checkpoint={"every_steps": 4})
    assert run(patient, tmp_path / "r", resume=True)["steps"] == 4
    run(patient, tmp_path / "whole")
    assert metrics(tmp_path / "r") == metrics(tmp_path / "whole")


def test_a_run_that_is_flat_to_its_last_step_comes_to_its_end(small: Small, tmp_path: Path) -> None:
    config = small(**NEVER_RIGHT, steps=2, rollout={"max_flat_steps": 2})
    assert run(config, tmp_path / "r")["steps"] == 2


def test_what_the_untrained_roles_earn_does_not_count(small: Small, tmp_path: Path) -> None:
    """The reward has a spread, but only the turns of a role that is never called are trained."""
    changes: dict[str, Any] = {
        "workflow": {"name": "solve_verify_correct", "prompts": "tiny", "answer_format": "text"},
        "algorithm": {"name": "agentic_parts:drawn", "n": 2, "stages": 1},
        **QUICK,
        "train_roles": ["corrector"],
        "rollout": {"max_flat_steps": 2},
        "steps": 4,
    }
    with pytest.raises(FlatRun, match=r"no turn of a trained role \(corrector\) earned more or less than its peers"):
        run(small(**changes), tmp_path / "r")
    run(small(**overlay(changes, {"train_roles": ["solver"]})), tmp_path / "other")


def test_the_count_survives_a_kill(small: Small, tmp_path: Path) -> None:
    config = small(**NEVER_RIGHT, steps=5, rollout={"max_flat_steps": 3})
    for path, stops in ((tmp_path / "one", (None,)), (tmp_path / "other", (1, 2, None))):
        for stop in stops:
            options = {"resume": (path / "config.toml").is_file()}
            if stop is not None:
                run(config.model_copy(update={"steps": stop}), path, **options)
                continue
            with pytest.raises(FlatRun, match="3 steps in a row"):
                run(config, path, **options)
    assert metrics(tmp_path / "one") == metrics(tmp_path / "other")


def test_a_step_that_teaches_begins_the_count_anew() -> None:
    totals = Totals()
    for flat, count in ((True, 1), (True, 2), (False, 0), (True, 1)):
        totals.note_advantages(flat, ["zero spread", "all truncated"])
        assert totals.flat_steps == count
        assert totals.flat_why == ("zero spread; all truncated" if flat else "")


def test_no_other_setting_of_a_rollout_may_change_on_the_way(small: Small, tmp_path: Path) -> None:
    run(small(**QUICK, steps=1), tmp_path / "r")
    with pytest.raises(CheckpointError, match="another configuration"):
        run(small(**QUICK, steps=2, rollout={"max_oversampling": 3.0}), tmp_path / "r", resume=True)
    run(small(**QUICK, steps=2, rollout={"max_flat_steps": 7}), tmp_path / "r", resume=True)
    run(small(**QUICK, steps=2, rollout={"max_flat_steps": 7}), tmp_path / "whole")
    assert differences(tmp_path / "whole", tmp_path / "r") == []
