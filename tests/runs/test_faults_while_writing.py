"""A kill, and a full disk, at every named point of writing.

Behaviours locked here: the last checkpoint stays whole; a killed run resumes to the end that it would have had; a full
disk is one error that names the file, says what is kept and what to do, and the run resumes once there is room.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest
from run_compare import differences

import rolecall
import rolecall.run_folder as run_folder
from rolecall.config import RunConfig
from rolecall.errors import WriteError
from rolecall.files import FAULT, KILLED, POINTS, _passed
from rolecall.learner.checkpoint import latest
from rolecall.progress import PlainLines
from rolecall.train import train

# In which passing of a point to stop; by default the second, so that a checkpoint stands before most of them.
FIRST = ("config", "environment", "tensorboard", "compact", "checkpoint/best", "alarms", "summary")
NEEDS_OTHER_RUNS = ("forget", "inflight", "partners", "trackers", "matrix")
"""Points that a plain deterministic run does not pass; tested below and with calls in flight, partners, trackers and
matrices."""


def run(config: RunConfig, path: Path, **options: bool) -> dict:
    return train(config, path, PlainLines(config.steps, ()), **options)


@pytest.fixture(scope="module")
def config(small: Callable[..., RunConfig]) -> RunConfig:
    return small(steps=4, checkpoint={"keep_last": 1})


@pytest.fixture(scope="module")
def whole(config: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that nothing happened to."""
    path = tmp_path_factory.mktemp("whole") / "r"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_folder, "COMPACT_AT", 3)
        run(config, path)
    return path


def go_on(config: RunConfig, path: Path) -> None:
    begun = (path / "config.toml").is_file()
    run(config, path, resume=begun)


@pytest.mark.slow
@pytest.mark.parametrize("point", [point for point in POINTS if point not in NEEDS_OTHER_RUNS])
def test_a_kill_at_a_point_of_writing_costs_nothing_that_counts(point, config, whole, tmp_path, killed, monkeypatch):
    monkeypatch.setattr(run_folder, "COMPACT_AT", 3)
    fault = f"kill:{point}:{1 if point in FIRST else 2}"
    assert killed(config, tmp_path / "r", fault, compact_at=3) == KILLED, f"{point} was never passed"
    go_on(config, tmp_path / "r")
    assert differences(whole, tmp_path / "r") == []


@pytest.mark.slow
@pytest.mark.parametrize("point", [point for point in POINTS if point not in NEEDS_OTHER_RUNS])
def test_a_full_disk_at_a_point_of_writing_is_named_and_the_run_resumes(point, config, whole, tmp_path, monkeypatch):
    monkeypatch.setattr(run_folder, "COMPACT_AT", 3)
    monkeypatch.setenv(FAULT, f"full:{point}:{1 if point in FIRST else 2}")
    _passed.clear()
    path = tmp_path / "r"
    with pytest.raises(WriteError, match="No space left on device") as error:
        run(config, path)
    assert str(path) in str(error.value)
    saved = latest(path / "checkpoints")
    if point == "config":
        assert "nothing is kept; make room" in str(error.value)
    else:
        assert f"go on with: rolecall train --resume --run {path}" in str(error.value)
        assert (f"kept is all up to checkpoint {saved.name}" if saved else "no checkpoint yet") in str(error.value)
    leftovers = [file for file in path.rglob("*") if file.name.endswith(".tmp") or "writing-" in file.name]
    assert leftovers == [] or point == "checkpoint/prune/delete"
    monkeypatch.delenv(FAULT)
    go_on(config, path)
    assert differences(whole, path) == []


@pytest.mark.slow
def test_a_kill_while_metrics_are_cut_back_to_the_checkpoint_leaves_them_whole(small, tmp_path, killed, monkeypatch):
    monkeypatch.setattr(run_folder, "COMPACT_AT", 3)
    config = small(steps=7, checkpoint={"every_steps": 4}, evaluation={"every_steps": 0})
    run(config, tmp_path / "whole")
    assert killed(config, tmp_path / "r", "kill:metrics:7", compact_at=3) == KILLED
    assert killed(config, tmp_path / "r", "kill:forget:1", compact_at=3, resume=True) == KILLED
    go_on(config, tmp_path / "r")
    assert differences(tmp_path / "whole", tmp_path / "r") == []


def test_every_point_of_the_source_is_listed_and_every_listed_point_is_in_the_source():
    """So that a new place of writing cannot be left out of the tests above."""
    text = [path.read_text() for path in Path(rolecall.__file__).parent.rglob("*.py") if path.name != "files.py"]
    strings = {
        node.value
        for source in text
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    called = {
        call.args[0].value
        for source in text
        for call in ast.walk(ast.parse(source))
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "writing"
    }
    assert called <= set(POINTS) <= strings
