"""Trackers: every step is in each of them once, under one id, however often the run was killed."""

from __future__ import annotations

import builtins
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from run_compare import points

from rolecall.config import RunConfig
from rolecall.errors import ConfigError
from rolecall.files import FAULT, _passed
from rolecall.progress import PlainLines
from rolecall.run_folder import RunFolder
from rolecall.trackers import EVENTS, TensorBoard, Trackers, read_events
from rolecall.train import train

Small = Callable[..., RunConfig]


def events(folder: Path) -> list[Any]:
    return [event for path in sorted(folder.glob(EVENTS)) for event in read_events(path)]


def values(folder: Path) -> list[tuple[int, str, float]]:
    return [(event.step, one.tag, one.simple_value) for event in events(folder) for one in event.summary.value]


def test_tensorboard_holds_the_metrics_of_every_step(small: Small, tmp_path: Path) -> None:
    train(small(steps=2), tmp_path / "r", PlainLines(2, ()))
    rows = RunFolder.open(tmp_path / "r").read_metrics()
    assert points(tmp_path / "r") == sorted((step, key) for step, key, _ in rows)
    found = {(step, key): value for step, key, value in values(tmp_path / "r" / "tensorboard")}
    assert all(found[step, key] == pytest.approx(value, rel=1e-6) for step, key, value in rows)


def test_a_resumed_tensorboard_drops_later_steps_and_a_cut_record_and_marks_the_start(tmp_path: Path) -> None:
    board = TensorBoard(tmp_path, 0)
    for step in (1, 2, 3):
        board.log(step, {"loss": step / 2})
    board.close()
    (path,) = tmp_path.glob(EVENTS)
    path.write_bytes(path.read_bytes()[:-5])  # a kill while step 3 was written
    clock = [event.wall_time for event in events(tmp_path) if event.step == 1]
    again = TensorBoard(tmp_path, 1)
    again.log(2, {"loss": 7.0})
    again.close()
    assert values(tmp_path) == [(1, "loss", 0.5), (2, "loss", 7.0)]
    found = events(tmp_path)
    assert [event.wall_time for event in found if event.step == 1] == clock
    assert found[0].file_version == "brain.Event:2"
    assert found[1].session_log.status == 1  # START: a TensorBoard that is open forgets what it has read
    assert len(list(tmp_path.iterdir())) == 1


def test_a_tensorboard_that_cannot_be_written_is_named_once_and_the_run_goes_on(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(FAULT, "full:tensorboard:2")
    _passed.clear()
    assert train(small(steps=3), tmp_path / "r", PlainLines(3, ()))["steps"] == 3
    output = capsys.readouterr().out
    assert output.count("logging to TensorBoard raised OSError") == 1
    assert "its metrics are in the run folder" in output


class FakeRun:
    def __init__(self, **settings: Any) -> None:
        self.settings, self.points, self.finished = settings, list[tuple[int, set[str]]](), False

    def log(self, data: dict[str, float], step: int) -> None:
        self.points.append((step, set(data)))

    def finish(self) -> None:
        self.finished = True


@pytest.fixture
def wandb_runs(monkeypatch: pytest.MonkeyPatch) -> list[FakeRun]:
    """Stands in for the package, which is not installed for tests: what rolecall asks of it is recorded."""
    runs: list[FakeRun] = []

    def init(**settings: Any) -> FakeRun:
        runs.append(FakeRun(**settings))
        return runs[-1]

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))  # type: ignore[arg-type]
    return runs


def test_weights_and_biases_goes_on_under_its_id_with_the_same_keys_and_no_step_twice(
    small: Small, tmp_path: Path, wandb_runs: list[FakeRun]
) -> None:
    tracking = {"wandb": True, "wandb_mode": "offline", "wandb_project": "sums"}
    config = small(steps=2, tracking=tracking, checkpoint={"every_steps": 2})
    train(config, tmp_path / "r", PlainLines(2, ()))
    for kind in ("checkpoints", "summary.json"):  # as if killed before the checkpoint: both steps are done again
        target = tmp_path / "r" / kind
        target.rename(tmp_path / f"removed-{kind}")
    train(small(steps=4, tracking=tracking), tmp_path / "r", PlainLines(4, ()), resume=True)
    first, second = wandb_runs
    assert first.settings["id"] == second.settings["id"]
    assert second.settings["resume"] == "allow"
    assert (second.settings["mode"], second.settings["project"]) == ("offline", "sums")
    assert [step for step, _ in first.points + second.points] == [0, 1, 2, 3, 4]
    rows = RunFolder.open(tmp_path / "r").read_metrics()
    assert dict(first.points + second.points) == {
        step: {key for at, key, _ in rows if at == step} for step in (0, 1, 2, 3, 4)
    }
    assert first.finished
    assert second.finished
    extra = json.loads((tmp_path / "r/checkpoints/step-00000004/extra.json").read_text())
    assert extra["trackers"] == {"wandb": first.settings["id"]}


def test_an_id_lost_from_the_folder_is_taken_from_the_checkpoint(
    small: Small, tmp_path: Path, wandb_runs: list[FakeRun]
) -> None:
    train(small(steps=1, tracking={"wandb": True}), tmp_path / "r", PlainLines(1, ()))
    (tmp_path / "r" / "trackers.json").unlink()
    train(small(steps=2, tracking={"wandb": True}), tmp_path / "r", PlainLines(2, ()), resume=True)
    assert wandb_runs[0].settings["id"] == wandb_runs[1].settings["id"]


def test_weights_and_biases_that_is_not_installed_is_said_at_the_start(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"pip install 'rolecall\[wandb\]', or set tracking.wandb = false"):
        train(small(steps=1, tracking={"wandb": True}), tmp_path / "r", PlainLines(1, ()))


def test_weights_and_biases_is_not_imported_unless_asked_for(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def guard(name: str, *rest: Any, **more: Any) -> Any:
        assert name != "wandb"
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", guard)
    train(small(steps=1), tmp_path / "r", PlainLines(1, ()))


def test_a_tracker_that_fails_is_left_out_and_the_others_go_on() -> None:
    class Fails(FakeRun):
        def log(self, *_: Any) -> None:
            raise ConnectionError("no network")

        def close(self) -> None:
            raise AssertionError("left out, so never closed")

    class Works:
        def __init__(self) -> None:
            self.steps: list[int] = []

        def log(self, step: int, values: Any) -> None:
            self.steps.append(step)

        def close(self) -> None:
            return

    works, notes = Works(), list[str]()
    trackers = Trackers({"one": Fails(), "other": works}, {}, notes.append)
    for step in (1, 2):
        trackers.log(step, {"x": 1.0})
    trackers.close()
    assert works.steps == [1, 2]
    (note,) = notes
    assert "logging to one raised ConnectionError: no network" in note
