"""A matrix of small runs, in processes of their own.

Behaviours locked here: what is done is not done again; a cell that fails is recorded with its log and the others go on;
a SIGKILL of the matrix or of a cell, and a full disk, cost no more than the steps since the last checkpoint, and the
runs end as those of a matrix that nothing happened to; no process is left behind; controls get the tokens of a team.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from run_compare import differences

from rolecall.config import overlay
from rolecall.errors import ConfigError, UsageError
from rolecall.files import FAULT
from rolecall.matrix import MatrixFolder, load_matrix, run_matrix
from rolecall.matrix.folder import failure, read_json

HERE = Path(__file__).resolve().parent


@pytest.fixture
def write(base: dict[str, Any], tmp_path: Path) -> Callable[..., Path]:
    """A function that writes a matrix of two small cells with changes, and gives its path."""

    def make(**changes: Any) -> Path:
        (tmp_path / "base.toml").write_text(tomli_w.dumps({**base, "algorithm": {"name": "mas_grpo", "n": 2}}))
        matrix = {
            "name": "small",
            "base": "base.toml",
            "axes": {
                "workflow": {
                    "One": {"workflow": {"name": "single_agent", "answer_format": "text"}},
                    "Two": {"workflow": {"name": "majority_vote", "answer_format": "text", "num_voters": 2}},
                }
            },
            "limits": {"jobs": 2, "min_free_gib": 0.001},
        }
        (tmp_path / "matrix.toml").write_text(tomli_w.dumps(overlay(matrix, changes)))
        return tmp_path / "matrix.toml"

    return make


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """A function that starts `rolecall matrix` in a process of its own; none outlives the test."""
    processes = []

    def start(file: Path, **environment: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "rolecall.cli", "matrix", str(file), "--out", str(tmp_path / "out")]
        log = (tmp_path / "matrix.log").open("ab")
        one = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **environment}, cwd=HERE)
        processes.append(one)
        return one

    yield start
    for one in processes:
        if one.poll() is None:
            one.kill()
        one.wait()


def run(file: Path, out: Path) -> Any:
    return run_matrix(load_matrix(file), MatrixFolder(path=out), lambda words: None)


def until(happened: Callable[[], bool], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def processes_of(out: Path) -> list[int]:
    """Processes whose arguments name a cell of the matrix."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"rolecall.cell_process" in arguments and any(str(out).encode() in one for one in arguments):
            found.append(int(entry.name))
    return found


@pytest.fixture(scope="module")
def whole(base: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """The folder of the same matrix that nothing happened to."""
    made: list[Path] = []

    def get(file: Path) -> Path:
        if not made:
            made.append(tmp_path_factory.mktemp("whole"))
            assert run(file, made[0]).complete
        return made[0]

    return get


@pytest.mark.slow
def test_every_cell_is_run_and_what_is_done_is_not_done_again(write, whole, tmp_path):
    file = write()
    out = whole(file)
    for name in ("One", "Two"):
        assert json.loads((out / name / "summary.json").read_text())["steps"] == 3
        assert (out / "logs" / f"{name}.log").is_file()
    before = {path: path.stat().st_mtime_ns for path in (out / "One").rglob("*")}
    course = run(file, out)
    assert (course.done, sorted(course.skipped), course.complete) == ([], ["One", "Two"], True)
    assert {path: path.stat().st_mtime_ns for path in (out / "One").rglob("*")} == before


@pytest.mark.slow
def test_a_cell_that_fails_is_recorded_and_the_others_go_on(write, tmp_path):
    file = write(axes={"workflow": {"One": {"tasks": {"only": str(tmp_path / "ids.json")}}}})
    (tmp_path / "ids.json").write_text(json.dumps(["none"]))
    course = run(file, tmp_path / "out")
    assert course.done == ["Two"]
    assert list(course.failed) == ["One"]
    recorded = read_json(tmp_path / "out" / "matrix.json")["failures"]["One"]
    assert (recorded["exit_code"], recorded["times"], recorded["log"]) == (2, 1, "logs/One.log")
    assert recorded["reason"] in course.failed["One"]
    assert "rolecall: " in recorded["reason"]
    run(file, tmp_path / "out")
    assert read_json(tmp_path / "out" / "matrix.json")["failures"]["One"]["times"] == 2


@pytest.mark.slow
def test_a_killed_matrix_leaves_no_process_and_goes_on_to_the_same_end(write, whole, started, tmp_path):
    file, out = write(), tmp_path / "out"
    process = started(file)
    until(lambda: any((out / "Two" / "checkpoints").glob("step-*")))
    process.send_signal(signal.SIGKILL)
    process.wait()
    until(lambda: not processes_of(out), 60.0)
    assert run(file, out).complete
    for name in ("One", "Two"):
        assert differences(whole(file) / name, out / name) == []


@pytest.mark.slow
def test_a_killed_cell_is_recorded_and_goes_on_in_the_next_run(write, whole, started, tmp_path):
    file, out = write(), tmp_path / "out"
    process = started(file)
    until(lambda: any((out / "One" / "checkpoints").glob("step-*")))
    owner = int((out / "One" / ".lock").read_text())
    os.kill(owner, signal.SIGKILL)
    assert process.wait(120) == 1
    recorded = read_json(out / "matrix.json")["failures"]
    assert list(recorded) == ["One"]
    assert recorded["One"]["exit_code"] == -signal.SIGKILL
    assert "ended by signal 9" in recorded["One"]["reason"]
    assert (out / "Two" / "summary.json").is_file()
    assert run(file, out).complete
    assert read_json(out / "matrix.json")["failures"] == {}
    assert differences(whole(file) / "One", out / "One") == []


@pytest.mark.slow
@pytest.mark.parametrize("point", ["config", "matrix", "checkpoint/weights", "summary"])
def test_a_full_disk_ends_cells_and_the_matrix_goes_on_when_there_is_room(point, write, whole, started, tmp_path):
    file, out = write(), tmp_path / "out"
    process = started(file, **{FAULT: f"full:{point}:1"})
    code = process.wait(120)
    if point == "matrix":  # only words of the report depend on it
        assert code == 0
        assert "matrix.json could not be written" in (tmp_path / "matrix.log").read_text()
    else:
        assert code == 1
        assert "No space left on device" in (tmp_path / "matrix.log").read_text()
    assert run(file, out).complete
    for name in ("One", "Two"):
        assert differences(whole(file) / name, out / name) == []


@pytest.mark.slow
def test_cells_are_not_started_on_a_disk_without_room(write, tmp_path):
    course = run(write(limits={"min_free_gib": 1e9}), tmp_path / "out")
    assert sorted(course.failed) == ["One", "Two"]
    assert "limits.min_free_gib is 1e+09" in course.failed["One"]
    assert not (tmp_path / "out" / "One").exists()


@pytest.mark.slow
def test_an_interrupted_matrix_ends_its_cells_and_says_how_to_go_on(write, started, tmp_path):
    out = tmp_path / "out"
    process = started(write())
    until(lambda: len(processes_of(out)) == 2)
    process.send_signal(signal.SIGINT)
    assert process.wait(90) == 130
    assert processes_of(out) == []
    assert "run it again to go on" in (tmp_path / "matrix.log").read_text()


@pytest.mark.slow
def test_a_control_generates_the_tokens_of_its_team_and_answers_by_majority(write, tmp_path):
    single = {"workflow": {"name": "single_agent", "answer_format": "text"}, "steps": 50}
    file = write(
        axes={"workflow": {"One": {"steps": 1}, "Two": {"steps": 2}}},
        controls={"SA": {"set": single, "tokens_of": {"workflow": "Two"}}},
        limits={"jobs": 1},
    )
    course = run(file, tmp_path / "out")
    assert course.complete
    assert course.done == ["One", "Two", "SA", "SA.majority-of-One", "SA.majority-of-Two"]
    summaries = {name: read_json(tmp_path / "out" / name / "summary.json") for name in ("Two", "SA")}
    budget = summaries["Two"]["tokens"]["generated"]
    spent = summaries["SA"]["tokens"]["generated"]
    assert budget <= spent < budget + 2 * 2 * 4, "no more than one step beyond"
    majority = read_json(tmp_path / "out" / "SA" / "evaluations" / "majority-of-Two.json")
    assert majority["samples"] >= 1
    assert majority["tokens"] > 0


def test_a_folder_with_runs_of_other_settings_is_an_error(write, tmp_path):
    folder = MatrixFolder(path=tmp_path / "out")
    first = load_matrix(write()).cells[0]
    folder.prepare(first, token_budget=None)
    assert folder.state(first) == "unfinished"
    assert folder.state(load_matrix(write(axes={"workflow": {"One": {"steps": 9}}})).cells[0]) == "unfinished"
    other = load_matrix(write(axes={"workflow": {"One": {"learner": {"lr": 1.0}}}}))
    with pytest.raises(UsageError, match="holds a run of other settings than the matrix has"):
        folder.state(other.cells[0])


def test_two_matrices_cannot_run_in_one_folder(write, tmp_path):
    folder = MatrixFolder(path=tmp_path / "out")
    with folder.claim(), pytest.raises(UsageError, match="another process runs the matrix"):
        run_matrix(load_matrix(write()), folder, lambda words: None)


def test_a_failure_says_the_last_line_of_the_log_and_the_signal(tmp_path):
    log = tmp_path / "a.log"
    log.write_text("step 1\nrolecall: the disk is full\n\n")
    assert failure(1, log, None)["reason"] == "rolecall: the disk is full"
    assert failure(-9, log, {"times": 4}) | {"at": ""} == {
        "exit_code": -9,
        "reason": "ended by signal 9 (out of memory, or killed); last line: rolecall: the disk is full",
        "log": "logs/a.log",
        "at": "",
        "times": 5,
    }
    assert failure(3, tmp_path / "none.log", None)["reason"] == "no word in the log"


def test_a_model_that_is_not_there_is_named_before_anything_runs(write, tmp_path):
    file = write(axes={"workflow": {"Two": {"model": {"model": "runs/models/none"}}}})
    with pytest.raises(ConfigError, match="cell Two: model 'runs/models/none' is no folder"):
        run(file, tmp_path / "out")
    assert not (tmp_path / "out" / "One").exists()
