"""However a run ends, nothing of it stays behind: no process, no file half written, no weights in shared memory."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from test_killed_runs import SVC, finish, start

from rolecall.engines.weights_folder import PREFIX, WeightsFolder, sweep, weights_root

Recipe = Callable[..., Path]
LONG = {
    "steps": 400,
    "workflow": SVC,
    "engine": {"mode": "processes", "workers": 2},
    "grading": {"workers": 2},
    "evaluation": {"every_steps": 0},
}


def descendants(pid: int) -> set[int]:
    """All processes below a process."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, ValueError):
            continue
    found, new = set[int](), {pid}
    while new:
        new = {child for child, parent in parents.items() if parent in new and child not in found}
        found |= new
    return found


def alive(pids: set[int]) -> set[int]:
    """Those that run: neither gone nor a zombie that waits for whoever adopted it."""
    running = set()
    for pid in pids:
        try:
            if (Path("/proc") / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z":
                running.add(pid)
        except OSError:
            continue
    return running


def wait_until(true: Callable[[], object], seconds: float, what: str) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.05)


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """A test that fails leaves no run behind."""
    yield
    for process in STARTED:
        if process.poll() is None:
            process.kill()
            process.communicate()


STARTED: list[subprocess.Popen[str]] = []


def started(recipe: Path, path: Path) -> tuple[subprocess.Popen[str], set[int]]:
    """A run in its second step or later, and its workers."""
    process = start(path, recipe)
    STARTED.append(process)
    wait_until(
        lambda: process.poll() is not None or len(list(path.glob("metrics/*.parquet"))) >= 2, 240, "no step was done"
    )
    assert process.poll() is None, process.communicate()
    workers = descendants(process.pid)
    assert len(workers) >= 4  # two of the engine, two graders
    return process, workers


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["sigterm", "ctrl-c"])
def test_a_signal_ends_a_run_cleanly_and_it_resumes(number: int, recipe: Recipe, tmp_path: Path) -> None:
    path = tmp_path / "r"
    process, workers = started(recipe(**LONG), path)
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal does: everything in the foreground gets it
    else:
        os.kill(process.pid, number)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 130, output
    assert f"interrupted; go on with: rolecall train --resume --run {path}" in output
    assert "Traceback" not in output
    assert alive(workers) == set()
    leftovers = [file for file in path.rglob("*") if file.name.endswith(".tmp") or "writing-" in file.name]
    assert leftovers == []
    done = max(int(folder.name.removeprefix("step-")) for folder in path.glob("checkpoints/step-*"))
    config = (path / "config.toml").read_text()
    (path / "config.toml").write_text(config.replace("steps = 400", f"steps = {done + 1}"))
    assert f"step {done + 1}/{done + 1}" in finish(start(path, path / "config.toml"))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_worker_and_no_weights_outlive_a_run_that_was_killed(recipe: Recipe, tmp_path: Path) -> None:
    root = Path(weights_root() or "/tmp")
    before = set(root.glob(f"{PREFIX}*"))
    process, workers = started(recipe(**LONG), tmp_path / "r")
    mine = set(root.glob(f"{PREFIX}*")) - before
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    wait_until(lambda: not alive(workers), 60, "workers outlived the run")
    sweep(root)  # what the next engine does
    assert not [folder for folder in mine if folder.exists()]


def test_a_weights_folder_in_use_is_not_swept_and_one_left_behind_is(tmp_path: Path) -> None:
    mine = WeightsFolder(tmp_path)
    left = tmp_path / f"{PREFIX}left"
    left.mkdir()
    (left / ".lock").touch()
    (left / "1.safetensors").write_bytes(b"weights")
    beginning = tmp_path / f"{PREFIX}beginning"  # another engine that has not locked its folder yet
    beginning.mkdir()
    other = WeightsFolder(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [beginning.name, Path(mine.name).name, Path(other.name).name]
    )
    mine.cleanup()
    other.cleanup()
    assert list(tmp_path.iterdir()) == [beginning]
