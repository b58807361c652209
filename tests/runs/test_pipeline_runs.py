"""Whole runs of the pipeline: killed and gone on with, and what its tables of roles and policies come to.

Behaviours locked here: a deterministic run in segments that is killed (SIGKILL) at random moments and at points of
writing equals one that was not, unfinished completions included; an overlapped one loses nothing, counts nothing twice
and keeps its bound; frozen roles, `train_roles` and isolated policies under the pipeline.

`make kills` kills it fifty times (ROLECALL_KILLS=50).
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from run_compare import differences, rows

from rolecall.config import RunConfig, overlay
from rolecall.files import KILLED
from rolecall.learner.checkpoint import latest
from rolecall.progress import PlainLines
from rolecall.run_folder import RunFolder
from rolecall.train import train

HERE = Path(__file__).resolve().parent
KILLS = int(os.environ.get("ROLECALL_KILLS", "3"))
SEED = os.environ.get("ROLECALL_KILL_SEED", "1")
AGENTIC: Mapping[str, Any] = {
    "workflow": {"name": "solve_verify_correct", "prompts": "tiny", "answer_format": "text"},
    "algorithm": {"name": "agentic_parts:drawn", "n": 3},
    "tasks": {"grader": "text"},  # random text is no mathematics: a grader that thinks about it may be late
    "grading": {"timeout_s": 60},
    "sampling": {"max_tokens": 9, "max_prompt_tokens": 512},
    "steps": 7,
    "evaluation": {"every_steps": 3},
}
SEGMENTS: Mapping[str, Any] = {"schedule": {"mode": "pipeline_segments", "segment_tokens": 4}}
OVERLAPPED: Mapping[str, Any] = {
    "deterministic": False,
    "engine": {"mode": "processes", "workers": 1},
    "schedule": {"mode": "overlapped", "update_rows": 6, "max_staleness": 2, "segment_tokens": 4},
    "checkpoint": {"every_steps": 2},
}


def run(config: RunConfig, path: Path, **options: bool) -> dict[str, Any]:
    return train(config, path, PlainLines(config.steps, ()), **options)


def episodes(path: Path) -> list[dict[str, Any]]:
    return [json.loads(row["record"]) | {"step": row["step"]} for row in rows(path, "episodes")]


def turns(path: Path) -> list[dict[str, Any]]:
    """Every turn that was trained, with the step that trained it."""
    return [{**turn, "trained_in": one["step"]} for one in episodes(path) for turn in one["graded"]["episode"]["turns"]]


def metrics(path: Path) -> dict[int, dict[str, float]]:
    """By step, from 1: what is measured before training is of step 0."""
    found: dict[int, dict[str, float]] = {}
    for step, key, value in RunFolder.open(path).read_metrics():
        if step:
            found.setdefault(step, {})[key] = value
    return found


# -- killed and gone on with ------------------------------------------------------------------------------------------


def start(path: Path, recipe: Path) -> subprocess.Popen[str]:
    """`rolecall train`, anew or from where the folder stands."""
    begun = (path / "config.toml").is_file()
    command = [sys.executable, "-m", "rolecall.cli", "train", *(["--resume"] if begun else [str(recipe)])]
    return subprocess.Popen(
        [*command, "--run", str(path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent)]), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    return output


def kill_after(seconds: float, path: Path, recipe: Path) -> None:
    process = start(path, recipe)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


@pytest.fixture(scope="module")
def agentic(base: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Path, Path]]:
    """A function that writes a recipe of an agentic run with changes; returns it and a folder to run in."""

    def write(**changes: Any) -> tuple[Path, Path]:
        folder = tmp_path_factory.mktemp("agentic")
        recipe = folder / "recipe.toml"
        recipe.write_text(tomli_w.dumps(overlay(overlay(base, AGENTIC), changes)))
        return recipe, folder

    return write


@pytest.fixture(scope="module")
def whole(agentic: Callable[..., tuple[Path, Path]]) -> tuple[Path, Path, float]:
    """Recipe, folder and seconds of the run in segments that nothing happened to."""
    recipe, folder = agentic(**SEGMENTS)
    begun = time.monotonic()
    finish(start(folder / "whole", recipe))
    return recipe, folder / "whole", time.monotonic() - begun


def test_the_run_that_is_killed_below_has_unfinished_completions_of_several_versions(whole) -> None:
    _, path, _ = whole
    newest = latest(path / "checkpoints")
    assert newest is not None
    state = json.loads((newest / "extra.json").read_text())["source"]
    groups = state["forest"]["groups"]
    begun = [one for group in groups for one in group["completions"] if one is not None and one["stop"] == "length"]
    assert begun
    assert any(len(set(one["versions"])) > 1 for one in begun) or any(
        len(set(turn["completion"]["versions"])) > 1 for turn in turns(path)
    )
    assert any(group["place"][1] > 0 for group in groups)
    assert {turn["key"][0] for turn in turns(path)} == {"solver", "verifier", "corrector"}
    moved = [values["policy/shared/version"] for _, values in sorted(metrics(path).items())]
    assert moved[-1] >= 5


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", range(KILLS))
def test_a_run_in_segments_killed_at_random_moments_equals_one_never_stopped(number, whole, tmp_path) -> None:
    recipe, folder, seconds = whole
    draw = random.Random(f"{SEED} segments {number}")
    for moment in [(number + draw.random()) / KILLS * seconds, draw.random() * seconds][: 1 + number % 2]:
        kill_after(moment, tmp_path / "r", recipe)
    finish(start(tmp_path / "r", recipe))
    assert differences(folder, tmp_path / "r") == []


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["metrics:2", "checkpoint/rename:4", "checkpoint/prune/delete:2"])
def test_a_run_in_segments_killed_at_a_point_of_writing_equals_one_never_stopped(
    fault: str, whole: tuple[Path, Path, float], killed: Callable[..., int], tmp_path: Path
) -> None:
    _, folder, _ = whole
    config = RunFolder.open(folder).config()
    assert killed(config, tmp_path / "r", f"kill:{fault}") == KILLED
    run(config, tmp_path / "r", resume=(tmp_path / "r" / "config.toml").is_file())
    assert differences(folder, tmp_path / "r") == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_overlapped_run_killed_twice_loses_nothing_counts_nothing_twice_and_keeps_its_bound(
    agentic: Callable[..., tuple[Path, Path]],
) -> None:
    recipe, folder = agentic(**OVERLAPPED, steps=10)
    path = folder / "r"
    begun = time.monotonic()
    process = start(path, recipe)
    while not (path / "checkpoints").is_dir() or latest(path / "checkpoints") is None:
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    to_first = time.monotonic() - begun
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    kill_after(1.3 * to_first, path, recipe)
    finish(start(path, recipe))
    assert sorted(metrics(path)) == list(range(1, 11))
    check_promise(path, bound=2, group_size=3)


def check_promise(path: Path, *, bound: int, group_size: int) -> None:
    """Every task that came in is trained or under way; every turn is trained once, young enough, with its peers."""
    trained, measured = turns(path), metrics(path)
    ids = Counter(turn["id"] for turn in trained)
    assert set(ids.values()) == {1}
    assert set(Counter(turn["peers"] for turn in trained).values()) == {group_size}
    versions = {step: values["policy/shared/version"] for step, values in measured.items()}
    for turn in trained:
        before = versions.get(turn["trained_in"] - 1, 0)
        assert 0 <= before - min(turn["completion"]["versions"]) <= bound
    newest = latest(path / "checkpoints")
    assert newest is not None
    state = json.loads((newest / "extra.json").read_text())["source"]
    waiting = {tuple(group["place"]) for group in state["forest"]["groups"] if not all(r[-1] for r in group["rows"])}
    begun = {turn["peers"].rpartition("/")[0] for turn in trained if turn["key"][0] == "solver"}
    num_first = sum(place[1] == 0 for place in waiting)
    assert len(begun) + num_first == state["forest"]["num_chains"] == state["counts"]["admitted"]
    admitted = sum(values["chains/admitted"] for values in measured.values()) + state["tick"]["admitted"]
    assert admitted == state["counts"]["admitted"]
    ended = sum(values["calls/ended"] for values in measured.values())
    assert ended + sum(count for _, _, count in state["tick"]["ended"]) == state["counts"]["ended"]
    assert len(trained) == sum(
        values[f"behaviour/{role}/num_turns"]
        for values in measured.values()
        for role in ("solver", "verifier", "corrector")
        if f"behaviour/{role}/num_turns" in values
    )


def test_an_overlapped_run_that_was_not_killed_keeps_the_same_promise(
    small: Callable[..., RunConfig], tmp_path
) -> None:
    config = small(**overlay(AGENTIC, {**OVERLAPPED, "engine": {"mode": "inline"}, "steps": 6}))
    summary = run(config, tmp_path / "r")
    check_promise(tmp_path / "r", bound=2, group_size=3)
    measured = metrics(tmp_path / "r")
    newest = latest(tmp_path / "r" / "checkpoints")
    assert newest is not None
    assert summary["tokens"]["generated"] == sum(values["engine/tokens"] for values in measured.values())
    for values in measured.values():
        assert values["time/generate_s"] >= 0
        assert values["time/grade_s"] >= 0
        assert values["engine/tokens_per_s"] > 0


# -- roles and policies -----------------------------------------------------------------------------------------------


def agentic_config(small: Callable[..., RunConfig], **changes: Any) -> RunConfig:
    quick = {
        "evaluation": {"every_steps": 0},
        "tasks": {"sizes": {"validation": 0, "test": 0}},
        "steps": 5,
        "schedule": {"mode": "pipeline"},
        "sampling": {"max_tokens": 4},
    }
    return small(**overlay(overlay(AGENTIC, quick), changes))


def test_train_roles_keeps_the_others_in_the_pipeline_and_out_of_the_loss(small, tmp_path) -> None:
    run(agentic_config(small, train_roles=["solver"]), tmp_path / "r")
    measured = metrics(tmp_path / "r")
    roles = Counter(turn["key"][0] for turn in turns(tmp_path / "r"))
    assert set(roles) == {"solver", "verifier", "corrector"}
    untrained = sum(values.get("samples/untrained_role", 0) for values in measured.values())
    assert untrained == roles["verifier"] + roles["corrector"]
    assert sum(values["samples/turns"] for values in measured.values()) == roles["solver"]
    newer = [turn for turn in turns(tmp_path / "r") if turn["key"][0] == "verifier"]
    assert max(max(turn["completion"]["versions"]) for turn in newer) > 0  # they sample the policy that is trained


def test_a_frozen_verifier_stands_still_in_the_pipeline(small, base, tmp_path) -> None:
    model = base["model"]["model"]
    config = agentic_config(
        small,
        model={"model": "builtin:tiny"},
        policies={"learns": {"model": model}, "judge": {"kind": "frozen", "model": model}},
        roles={"solver": {"policy": "learns"}, "corrector": {"policy": "learns"}, "verifier": {"policy": "judge"}},
    )
    run(config, tmp_path / "r")
    for turn in turns(tmp_path / "r"):
        if turn["policy"] == "judge":
            assert set(turn["completion"]["versions"]) == {0}
    measured = metrics(tmp_path / "r")
    assert max(values["policy/learns/version"] for values in measured.values()) >= 3
    assert {turn["policy"] for turn in turns(tmp_path / "r")} == {"learns", "judge"}
    assert max(values.get("staleness/judge/max", 0) for values in measured.values()) == 0


def test_isolated_policies_have_versions_of_their_own_in_the_pipeline(small, tmp_path) -> None:
    run(agentic_config(small, sharing="isolated"), tmp_path / "r")
    measured = metrics(tmp_path / "r")
    last = {role: measured[5][f"policy/{role}/version"] for role in ("solver", "verifier", "corrector")}
    assert last["solver"] > last["verifier"] > last["corrector"] > 0
    for turn in turns(tmp_path / "r"):
        role = turn["key"][0]
        assert turn["policy"] == role
        assert max(turn["completion"]["versions"]) <= measured[turn["trained_in"]][f"policy/{role}/version"]


@pytest.mark.parametrize(
    "schedule",
    [{"mode": "barrier"}, {"mode": "pipeline", "max_rows": 12, "order": "oldest_first"}],
    ids=["barrier", "few_rows"],
)
def test_a_deterministic_run_is_the_same_twice_and_when_gone_on_with(schedule, small, tmp_path) -> None:
    config = agentic_config(small, schedule=schedule)
    run(config, tmp_path / "one")
    run(config.model_copy(update={"steps": 3}), tmp_path / "other")
    run(config, tmp_path / "other", resume=True)
    assert differences(tmp_path / "one", tmp_path / "other") == []
