"""Interventions in whole runs: they are in the learner's hands, in its checkpoints, and in its figures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from run_compare import differences, metrics

from learner_helpers import gradient, learner_of, make_sample, model_spec, random_samples
from rolecall.config import RunConfig
from rolecall.errors import ConfigError
from rolecall.interventions.settings import Intervention
from rolecall.learner.config import LearnerConfig
from rolecall.learner.learner import Learner
from rolecall.progress import PlainLines
from rolecall.run_folder import RunFolder
from rolecall.train import train

Small = Callable[..., RunConfig]

VOTING: dict[str, Any] = {
    "workflow": {"name": "voting", "answer_format": "text"},
    "sharing": "shared",
    "tasks": {"sizes": {"validation": 0, "test": 0}},
    "learner": {"minibatches": 2, "weight_decay": 0.01, "max_grad_norm": 0.5},
    "steps": 4,
}
TABLES: dict[str, dict[str, Any]] = {
    "update": {
        "voter": {"damping": 0.3, "damping_window": 8, "average_copies": True, "kl_anchor": 0.01},
        "aggregator": {"balance_mass": True, "lr_scale": 0.5},
    },
    "gradient": {
        "voter": {"damping": 0.3, "damping_ema": "before", "average_copies": True, "apply_to": "gradient"},
        "aggregator": {"balance_mass": True},
    },
}


def run(config: RunConfig, path: Path, **options: bool) -> dict[str, Any]:
    return train(config, path, PlainLines(config.steps, ()), **options)


def figures(path: Path, key: str) -> list[float]:
    return [value for _, name, value in RunFolder.open(path).read_metrics() if name == key]


@pytest.mark.parametrize("where", ["update", "gradient"])
def test_a_resumed_run_with_interventions_is_equal_bit_for_bit(small: Small, tmp_path: Path, where: str) -> None:
    changes = {**VOTING, "interventions": TABLES[where]}
    run(small(**changes), tmp_path / "whole")
    run(small(**{**changes, "steps": 2}), tmp_path / "r")
    run(small(**changes), tmp_path / "r", resume=True)
    assert differences(tmp_path / "whole", tmp_path / "r") == []
    assert figures(tmp_path / "whole", "interventions/voter/copies") == [3.0] * 4
    assert all(0.69 < s <= 1.0 for s in figures(tmp_path / "whole", "interventions/voter/damping"))
    assert figures(tmp_path / "whole", "interventions/aggregator/mass_scale")


def test_a_run_with_interventions_goes_another_way_than_one_without(small: Small, tmp_path: Path) -> None:
    run(small(**{**VOTING, "steps": 2}), tmp_path / "plain")
    run(small(**{**VOTING, "steps": 2, "interventions": TABLES["update"]}), tmp_path / "r")
    plain, found = ({(s, k): v for s, k, v in metrics(tmp_path / name)} for name in ("plain", "r"))
    assert plain[1, "reward/voter/total"] == found[1, "reward/voter/total"]  # the same episodes to begin with
    assert plain[1, "learner/shared/update_norm"] > found[1, "learner/shared/update_norm"]
    assert (1, "dynamics/voter/kl") in found
    assert (1, "dynamics/aggregator/kl") not in found
    assert not any(key.startswith("interventions/") for _, key in plain)


def test_interventions_do_not_need_the_dynamics(small: Small, tmp_path: Path) -> None:
    changes = {**VOTING, "steps": 1, "interventions": TABLES["update"]}
    run(small(**changes), tmp_path / "seen")
    run(small(**changes, dynamics={"gradients": False}), tmp_path / "blind")
    key = "interventions/aggregator/mass_scale"
    assert figures(tmp_path / "seen", key) == figures(tmp_path / "blind", key) != []


def test_a_table_for_a_role_that_the_workflow_has_not_is_refused_before_anything_is_made(
    small: Small, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="no such role; did you mean 'voter'"):
        run(small(**{**VOTING, "interventions": {"voters": {"damping": 0.3}}}), tmp_path / "r")
    with pytest.raises(ConfigError, match=r"unknown key 'interventions.voter.dampin'; did you mean 'damping'"):
        small(**{**VOTING, "interventions": {"voter": {"dampin": 0.3}}})
    assert not (tmp_path / "r").exists()


def averaged(base: dict[str, Any], table: dict[str, Intervention]) -> Learner:
    learner = learner_of(model_spec("team", base["model"]["model"]), LearnerConfig(lr=1e-3, max_grad_norm=1e9))
    return Learner("team", learner.module, learner.config, interventions=table, roles=["voter", "judge"])


def test_averaging_copies_on_the_gradient_divides_the_loss_of_the_role_by_its_copies(base: dict[str, Any]) -> None:
    """Three copies of a voter and a judge in each episode: a third of the voters' gradient, and all of the judge's."""
    voters = [
        make_sample([1, 2 + e], [5 + c, 9 - c], 1.0 - c, role="voter", episode=f"e{e}", copy=c)
        for e in range(2)
        for c in range(3)
    ]
    judges = random_samples(2, roles=["judge"])
    mean = {"voter": Intervention(average_copies=True, apply_to="gradient")}
    whole, third = (gradient(averaged(base, table), [*voters, *judges]) for table in ({}, mean))
    idle = [make_sample(s.token_ids[:2], s.token_ids[2:], 0.0, role="voter", episode=s.episode_id) for s in voters]
    judge = gradient(averaged(base, {}), [*idle, *judges])  # the same denominators, and no pull of the voters
    for name in whole:
        wanted = judge[name] + (whole[name] - judge[name]) / 3
        assert float((third[name] - wanted).norm()) <= 1e-5 * float(whole[name].norm()) + 1e-9, name
