"""The loop with a real model: it learns, it resumes bit for bit, it accounts for every episode.

Behaviours locked here: a reward that can be earned rises; a run resumed from any step equals one that was never
stopped; every sharing mode runs; failed workflows are data and the run keeps what it has; summary.json is complete.
"""

from __future__ import annotations

import json

import pytest
import torch

from rolecall.errors import BlockedLoop, CheckpointError, ConfigError, UsageError
from rolecall.progress import PlainLines
from rolecall.run_folder import RunFolder
from rolecall.train import train


def run(config, path, **options):
    return train(config, path, PlainLines(config.steps, ()), **options)


def series(path, key):
    return [value for _, name, value in RunFolder.open(path).read_metrics() if name == key]


def comparable(path):
    """All metrics but those that measure time, or what became of graders in it."""
    rows = RunFolder.open(path).read_metrics()
    timed = ("time/", "graders/")
    return [row for row in rows if not row[1].startswith(timed) and "_per_s" not in row[1] and "lag" not in row[1]]


def assert_same(one, other):
    """Equal bit for bit, tensors included."""
    assert type(one) is type(other)
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for mine, theirs in zip(one, other, strict=True):
            assert_same(mine, theirs)
    else:
        assert one == other


def test_a_toy_reward_rises(small, tmp_path):
    run(
        small(steps=25, algorithm={"n": 8}, rollout={"tasks_per_step": 8}, evaluation={"every_steps": 0}),
        tmp_path / "r",
    )
    rewards = series(tmp_path / "r", "reward/solver/letters")
    assert sum(rewards[-5:]) / 5 > 3 * sum(rewards[:5]) / 5 + 0.05
    assert max(series(tmp_path / "r", "parity/shared/max_abs_diff")) < 1e-4


def test_a_resumed_run_equals_one_that_was_never_stopped(small, tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    run(small(steps=4), whole)
    run(small(steps=2), parts)
    run(small(steps=4), parts, resume=True)
    assert comparable(parts) == comparable(whole)
    one, other = (path / "checkpoints" / "step-00000004" / "policies" / "shared" for path in (whole, parts))
    assert (one / "weights/model.safetensors").read_bytes() == (other / "weights/model.safetensors").read_bytes()
    assert_same(torch.load(one / "learner.pt"), torch.load(other / "learner.pt"))
    keys = ("accuracy", "tokens", "outcomes", "steps", "best_step", "roles")
    summaries = [json.loads((path / "summary.json").read_text()) for path in (whole, parts)]
    assert [summaries[0][key] for key in keys] == [summaries[1][key] for key in keys]


@pytest.mark.parametrize("model", [{}, {"kind": "adapter", "lora": {"rank": 4}}], ids=["model", "adapter"])
@pytest.mark.parametrize("sharing", ["shared", "isolated"])
def test_every_sharing_mode_trains_all_roles_and_measures_them(small, tmp_path, sharing, model):
    config = small(
        sharing=sharing,
        model=model,
        workflow={"name": "solve_verify_correct", "prompts": "tiny", "answer_format": "text"},
    )
    summary = run(config, tmp_path / "r")
    policies = {"shared"} if sharing == "shared" else {"solver", "verifier", "corrector"}
    assert set(summary["roles_to_policies"].values()) == policies
    rows = RunFolder.open(tmp_path / "r").read_metrics()
    keys = {name for _, name, _ in rows}
    for role in ("solver", "verifier", "corrector"):
        norms = [value for _, name, value in rows if name == f"dynamics/{role}/grad_norm"]
        assert norms
        if sharing == "isolated":  # a share of nothing is no share
            assert (f"dynamics/{role}/mass_share" in keys) == (max(norms) > 0.0)
        else:
            assert f"dynamics/{role}/mass_share" in keys
        assert f"reward/{role}/letters" in keys
    assert ("dynamics/solver/cosine/verifier" in keys) == (sharing == "shared")
    assert sum(summary["outcomes"].values()) == 2 * 4 * 4
    assert summary["tokens"]["generated"] > 0


def test_train_roles_leaves_the_others_untrained(small, tmp_path):
    config = small(
        sharing="shared",
        train_roles=["solver"],
        workflow={"name": "solve_verify_correct", "prompts": "tiny", "answer_format": "text"},
    )
    summary = run(config, tmp_path / "r")
    solver_tokens = sum(series(tmp_path / "r", "learner/shared/tokens"))
    assert summary["tokens"]["trained"] == solver_tokens < summary["tokens"]["generated"]


def test_a_token_budget_ends_the_run_early_and_its_last_step_is_validated_and_saved(small, tmp_path):
    config = small(steps=50, token_budget=150, evaluation={"every_steps": 40}, checkpoint={"every_steps": 40})
    summary = run(config, tmp_path / "r")
    assert 150 <= summary["tokens"]["generated"] < 400
    assert summary["steps"] < 50
    assert len(series(tmp_path / "r", "validation/team")) == 2  # before training, and at the last step
    assert (tmp_path / "r" / "checkpoints" / f"step-{summary['steps']:08d}").is_dir()


def test_a_run_in_which_nothing_is_trained_is_refused(small, tmp_path):
    with pytest.raises(ConfigError, match="every policy is frozen"):
        run(small(model={"kind": "frozen"}), tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_the_summary_holds_what_it_promises(small, tmp_path):
    summary = run(small(), tmp_path / "r")
    for side in ("before", "after"):
        assert set(summary["accuracy"][side]) >= {"mean", "low", "high", "n"}
        assert set(summary["roles"]["solver"]["accuracy"][side]) >= {"mean", "low", "high", "n"}
        assert "greedy" in summary["evaluation"][side]
    assert summary["steps"] == 2
    assert summary["wall_s"] > 0
    assert summary["tokens_per_s"] > 0
    assert summary["parity"]["max_abs_diff"] < 1e-4
    assert json.loads((tmp_path / "r" / "summary.json").read_text()) == summary


@pytest.mark.parametrize(
    ("name", "changes", "outcome"),
    [
        ("Raises", {}, "error"),
        ("ReturnsNothing", {}, "error"),
        ("NeverEnds", {"rollout": {"episode_timeout_s": 0.2}}, "timeout"),
    ],
)
def test_a_workflow_that_fails_is_data_and_the_run_goes_on(small, tmp_path, capsys, name, changes, outcome):
    config = small(workflow={"name": f"user_parts:{name}"}, evaluation={"every_steps": 0}, steps=1, **changes)
    summary = run(config, tmp_path / "r")
    assert summary["outcomes"][outcome] == 16 == sum(summary["outcomes"].values())
    assert "step 1: 16 of 16 episodes failed; the first, at" in capsys.readouterr().out
    assert summary["accuracy"]["before"]["n"] == 4


def test_a_workflow_that_blocks_ends_the_run_so_that_it_can_be_resumed(small, tmp_path, capfd):
    run(small(steps=1), tmp_path / "r")
    config = small(workflow={"name": "user_parts:Blocks"}, rollout={"watchdog_s": 0.5}, steps=1)
    with pytest.raises(BlockedLoop):
        run(config, tmp_path / "blocked")
    assert "time.sleep(60)" in capfd.readouterr().err
    assert (tmp_path / "blocked" / "config.toml").is_file()


def test_a_run_is_not_resumed_under_another_configuration_or_task_set(small, tmp_path):
    run(small(), tmp_path / "r")
    with pytest.raises(CheckpointError, match="another configuration"):
        run(small(learner={"lr": 1e-5}, steps=3), tmp_path / "r", resume=True)
    with pytest.raises(CheckpointError, match=r"another (configuration|task set)"):
        run(small(tasks={"sizes": {"test": 5}}, steps=3), tmp_path / "r", resume=True)


def test_an_earlier_run_is_not_overwritten_unless_asked(small, tmp_path):
    run(small(steps=1), tmp_path / "r")
    with pytest.raises(UsageError, match="--resume"):
        run(small(steps=1), tmp_path / "r")
    run(small(steps=1), tmp_path / "r", overwrite=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "precious.txt").write_text("x")
    with pytest.raises(UsageError, match="not a run folder"):
        run(small(steps=1), tmp_path / "other", overwrite=True)
    assert (tmp_path / "other" / "precious.txt").is_file()
