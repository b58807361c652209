"""How a run starts on the command line, and what a start that fails says and leaves behind.

Behaviours locked here: a name for the folder; the tasks looked at before anything is loaded; a failed start that blocks
no later one; a resumed run that says from where; one clear message and exit code 2 for a mistake.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import warnings
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from typer.testing import CliRunner

import rolecall.policies.build as build
from rolecall.cli import app
from rolecall.config import load_config, overlay
from rolecall.errors import CheckpointError, ConfigError, TaskError, UsageError
from rolecall.evaluate_run import evaluate_run
from rolecall.learner.checkpoint import latest
from rolecall.learner.modules import SharedBase, WholeModel, load_causal_lm
from rolecall.policies.table import make_table
from rolecall.progress import PlainLines
from rolecall.train import train
from tiny_models import make_tiny_model

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def cli(*arguments: Any) -> Any:
    return CliRunner().invoke(app, [str(one) for one in arguments])


def write_recipe(path: Path, data: dict[str, Any]) -> Path:
    path.write_text(tomli_w.dumps(data))
    return path


def test_the_version_is_printed() -> None:
    result = cli("--version")
    assert (result.exit_code, result.output) == (0, f"rolecall {metadata.version('rolecall')}\n")


def test_a_recipe_without_a_name_has_that_of_its_file(recipe_data: dict[str, Any], tmp_path: Path) -> None:
    data = recipe_data
    assert load_config(write_recipe(tmp_path / "sums.toml", data)).name == "small"
    del data["name"]
    path = write_recipe(tmp_path / "sums.toml", data)
    assert load_config(path).name == "sums"
    assert load_config(path, ["name=other"]).name == "other"


def test_a_run_without_a_name_is_made_in_runs_under_the_name_of_its_recipe(
    recipe_data: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = overlay(recipe_data, {"steps": 0})
    del data["name"]
    result = cli("train", write_recipe(tmp_path / "sums.toml", data))
    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "runs" / "sums" / "summary.json").read_text())["name"] == "sums"


def test_a_dry_run_reads_the_first_task_of_each_split(recipe_data: dict[str, Any], tmp_path: Path) -> None:
    data = recipe_data
    result = cli("train", write_recipe(tmp_path / "a.toml", data), "--dry-run")
    assert result.exit_code == 0
    line = result.output.splitlines()[-1]
    assert line.startswith("tasks: jsonl tasks.jsonl can be read (grader math); the first of each split: train '")
    assert "validation '" in line
    assert "test '" in line
    data["tasks"]["path"] = str(tmp_path / "none.jsonl")
    result = cli("train", write_recipe(tmp_path / "a.toml", data), "--dry-run")
    assert isinstance(result.exception, TaskError)
    assert "none.jsonl' cannot be read" in str(result.exception)


def test_a_dry_run_says_unknown_of_what_it_cannot_know(recipe_data: dict[str, Any], tmp_path: Path) -> None:
    hub = {"name": "hub", "path": "owner/not-here"}
    data = recipe_data | {"tasks": hub}
    data["model"] = {"model": "owner/not-here-either"}
    data["deterministic"] = True
    result = cli("train", write_recipe(tmp_path / "a.toml", data), "--dry-run")
    assert result.exit_code == 0, result.output
    assert "  in all: not known here\n" in result.output
    assert "0.0 MiB" not in result.output
    assert "tasks: hub owner/not-here (train) is not on this machine, and was not read\n" in result.output


def test_a_start_that_failed_before_anything_was_measured_blocks_no_other(small: Any, tmp_path: Path) -> None:
    half = tmp_path / "half"
    shutil.copytree(small().model.model, half, ignore=shutil.ignore_patterns("*.safetensors"))
    broken = small(model={"model": str(half)})
    with pytest.raises(ConfigError, match="half"):
        train(broken, tmp_path / "r", PlainLines(1, ()))
    assert (tmp_path / "r" / "config.toml").is_file()
    train(small(steps=1), tmp_path / "r", PlainLines(1, ()))
    assert json.loads((tmp_path / "r" / "summary.json").read_text())["steps"] == 1
    with pytest.raises(UsageError, match="already holds a run"):
        train(small(steps=1), tmp_path / "r", PlainLines(1, ()))


@pytest.mark.parametrize(
    ("grader", "words"),
    [("mathh", "there is no grader 'mathh'; did you mean 'math'"), ("user_parts:no_such", "has no 'no_such'")],
)
def test_a_grader_that_is_not_there_is_said_before_any_model_is_loaded(
    small: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grader: str, words: str
) -> None:
    monkeypatch.setattr(build, "load_causal_lm", None)
    with pytest.raises(UsageError, match=words):
        train(small(tasks={"grader": grader}), tmp_path / "r", PlainLines(1, ()))
    assert not (tmp_path / "r").exists()


def test_a_resumed_run_says_from_which_step(small: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(small(steps=1), tmp_path / "r", PlainLines(1, ()))
    assert "going on" not in capsys.readouterr().out
    train(small(steps=2), tmp_path / "r", PlainLines(2, ()), resume=True)
    assert "going on from step 1\n" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["model", "adapter"])
def test_weights_of_another_model_are_one_message(small: Any, random_model: str, tmp_path: Path, kind: str) -> None:
    policy = {"kind": kind} | ({"lora": {"rank": 2}} if kind == "adapter" else {})
    train(small(steps=1, model=policy), tmp_path / "r", PlainLines(1, ()))
    other = make_tiny_model(tmp_path / "other", hidden=64)
    with pytest.raises(UsageError) as error:
        evaluate_run(tmp_path / "r", overrides=(f"model.model={other}",))
    assert len(str(error.value)) < 600
    assert "other" in str(error.value)
    assert "trained" in str(error.value)


def test_a_learner_says_which_tensors_of_saved_weights_do_not_fit(
    small: Any, random_model: str, tmp_path: Path
) -> None:
    import torch
    from peft import LoraConfig

    other = make_tiny_model(tmp_path / "other", hidden=64)
    model = load_causal_lm(other, torch.float32, torch.device("cpu"))
    words = (
        r"not those of the model '.*other': \d+ of \d+ tensors differ .*: saved \[.*\], here \[.*\]\); name the model"
    )
    with pytest.raises(CheckpointError, match=words):
        WholeModel(model, other).load(Path(random_model))
    train(small(steps=1, model={"kind": "adapter", "lora": {"rank": 2}}), tmp_path / "r", PlainLines(1, ()))
    checkpoint = latest(tmp_path / "r" / "checkpoints")
    assert checkpoint is not None
    adapter = SharedBase(model, other).add("a", LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM"), 0)
    with pytest.raises(CheckpointError, match=words):
        adapter.load(checkpoint / "policies" / "shared" / "weights")


def test_an_adapter_is_made_without_warnings_of_the_libraries(random_model: str) -> None:
    import torch
    from peft import LoraConfig

    base = SharedBase(load_causal_lm(random_model, torch.float32, torch.device("cpu")), random_model)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        for name in ("a", "b"):
            base.add(name, LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM"), 0)


def test_a_name_that_no_file_could_have_is_refused_with_the_limit() -> None:
    for roles, what in (("r" * 300, "role"), ("ä" * 40, "role")):
        with pytest.raises(ConfigError, match=rf"{what} '.*\.\.\.' has a name of \d+ characters.* at most 200"):
            make_table((roles,), sharing="shared")


def test_reading_a_run_without_duckdb_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "duckdb.py").write_text("raise ModuleNotFoundError(\"No module named 'duckdb'\", name='duckdb')")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    command = [sys.executable, str(EXAMPLES / "06_read_a_run.py"), str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "this example reads with DuckDB, which is not installed: pip install duckdb\n"
