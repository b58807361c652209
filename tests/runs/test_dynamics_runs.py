"""Runs of a team with copies: the dynamics go on after a resume, bit for bit, and change nothing that is trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from run_compare import differences, metrics

from rolecall.config import RunConfig
from rolecall.progress import PlainLines
from rolecall.run_folder import RunFolder
from rolecall.train import train

Small = Callable[..., RunConfig]
VOTING: dict[str, Any] = {
    "steps": 4,
    "sharing": "isolated",
    "workflow": {"name": "voting", "num_voters": 3},
    "tasks": {"sizes": {"validation": 0, "test": 0}},
    "sampling": {"max_prompt_tokens": 2048},
    "learner": {"optimizer_steps": "fixed_minibatch", "minibatch_sequences": 4},
    "dynamics": {"copies_every_steps": 2, "leakage_reference": 3},
}


def run(config: RunConfig, path: Path, **options: bool) -> dict[str, Any]:
    return train(config, path, PlainLines(config.steps, ()), **options)


@pytest.mark.parametrize(("sharing", "most"), [("isolated", 2**27), ("shared", 0)], ids=["exact", "sketched"])
def test_a_resumed_run_has_the_same_dynamics_bit_for_bit(small: Small, tmp_path: Path, sharing: str, most: int) -> None:
    dynamics = {**VOTING["dynamics"], "max_parameters": most}
    changes = {**VOTING, "sharing": sharing, "dynamics": dynamics}
    run(small(**changes), tmp_path / "whole")
    run(small(**{**changes, "steps": 3}), tmp_path / "r")
    run(small(**changes), tmp_path / "r", resume=True)
    assert differences(tmp_path / "whole", tmp_path / "r") == []
    found = {(step, key): value for step, key, value in metrics(tmp_path / "r")}
    for key in ("amplification", "amplification_control", "persistence", "total_update_norm"):
        assert (4, f"dynamics/voter/{key}") in found, key
    assert (3, "dynamics/voter/amplification") not in found
    for key in ("told_apart", "told_apart_lost", "taken_for/aggregator", "format/aggregator"):
        assert (4, f"behaviour/voter/{key}") in found, key


def test_a_fixed_minibatch_gives_the_voters_three_optimizer_steps_to_the_aggregators_one(
    small: Small, tmp_path: Path
) -> None:
    run(small(**VOTING), tmp_path / "r")
    found = {(step, key): value for step, key, value in metrics(tmp_path / "r")}
    steps = {role: found[4, f"dynamics/{role}/total_optimizer_steps"] for role in ("voter", "aggregator")}
    assert steps == {"voter": 12.0, "aggregator": 4.0}
    assert found[1, "learner/voter/sequences"] == found[1, "learner/aggregator/sequences"] == 4.0


def test_measuring_copies_and_leakage_changes_nothing_else_of_a_run(small: Small, tmp_path: Path) -> None:
    run(small(**VOTING), tmp_path / "seen")
    quiet = {"copies_every_steps": 0, "leakage_turns": 0}
    run(small(**{**VOTING, "dynamics": quiet}), tmp_path / "blind")
    seen, blind = ({(s, k): v for s, k, v in metrics(tmp_path / name)} for name in ("seen", "blind"))
    assert len(seen) > len(blind)
    assert {key: seen[key] for key in blind} == blind
    weights = [
        (tmp_path / name / "checkpoints/step-00000004/policies/voter/weights/model.safetensors").read_bytes()
        for name in ("seen", "blind")
    ]
    assert weights[0] == weights[1]
    assert RunFolder.open(tmp_path / "seen").config().dynamics.copies_every_steps == 2
