"""Which weights are a run's result: the best on validation, those before training among them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rolecall.evaluate import Evaluation, summarise
from rolecall.evaluate_run import evaluate_run
from rolecall.intervals import Estimate
from rolecall.learner.checkpoint import best
from rolecall.progress import PlainLines
from rolecall.run import Run
from rolecall.run_folder import RunFolder
from rolecall.train import train


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that says what each validation is to find, in turn."""

    def set_means(*means: float) -> Iterator[float]:
        left = iter(means)

        def evaluate(self: Run, tasks: Any, *, label: str, **options: Any) -> Evaluation:
            assert label == "validation"
            mean = next(left)
            empty = summarise([])
            team = Estimate(mean=mean, low=mean - 0.1, high=mean + 0.1, n=4, num_tasks=4)
            return type(empty)(**{name: getattr(empty, name) for name in empty.__slots__} | {"team": team})

        monkeypatch.setattr(Run, "evaluate", evaluate)
        return left

    return set_means


def run(config: Any, path: Path, **options: bool) -> dict[str, Any]:
    return train(config, path, PlainLines(config.steps, ()), **options)


def test_when_every_step_is_worse_the_weights_before_training_are_the_result(
    small: Any, tmp_path: Path, measured: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    config = small(steps=3, evaluation={"greedy": False}, checkpoint={"keep_last": 1})
    left = measured(0.5, 0.4, 0.3, 0.2)
    summary = run(config, tmp_path / "r")
    assert list(left) == []
    assert summary["best_step"] == summary["evaluation"]["after"]["step"] == 0
    assert summary["evaluation"]["after"]["sampled"] == summary["evaluation"]["before"]["sampled"]
    kept = best(tmp_path / "r" / "checkpoints")
    assert kept is not None
    assert kept.name == "step-00000000"
    assert kept.is_dir()
    rows = RunFolder.open(tmp_path / "r").read_metrics()
    assert [(step, value) for step, key, value in rows if key == "validation/team"] == [
        (0, 0.5),
        (1, 0.4),
        (2, 0.3),
        (3, 0.2),
    ]
    out = capsys.readouterr().out
    assert "validation before training: team 0.500\n" in out
    assert "no step was as good on validation as the weights before training" in out
    assert "The weights before training were the best" in (tmp_path / "r" / "report.html").read_text()
    again = evaluate_run(tmp_path / "r")
    assert (again["checkpoint"], again["team"]) == ("step-00000000", summary["evaluation"]["before"]["sampled"]["team"])


@pytest.mark.parametrize(("means", "step"), [((0.5, 0.4, 0.6), 2), ((0.5, 0.5, 0.5), 1), ((0.0, 0.0, 0.0), 1)])
def test_a_step_that_is_as_good_as_the_start_is_preferred_to_it(
    small: Any, tmp_path: Path, measured: Any, means: tuple[float, ...], step: int
) -> None:
    measured(*means)
    summary = run(small(steps=2, evaluation={"greedy": False}, checkpoint={"keep_last": 1}), tmp_path / "r")
    assert summary["best_step"] == summary["evaluation"]["after"]["step"] == step
    assert not (tmp_path / "r" / "checkpoints" / "step-00000000").exists()


@pytest.mark.parametrize("off", [{"tasks": {"sizes": {"validation": 0}}}, {"evaluation": {"every_steps": 0}}])
def test_without_validation_the_last_step_is_the_result_and_nothing_is_measured_before(
    small: Any, tmp_path: Path, off: dict[str, Any]
) -> None:
    summary = run(small(steps=2, checkpoint={"keep_last": 9}, **off), tmp_path / "r")
    assert summary["best_step"] == 2
    names = sorted(path.name for path in (tmp_path / "r" / "checkpoints").glob("step-*"))
    assert names == ["step-00000001", "step-00000002"]
    assert min(step for step, _, _ in RunFolder.open(tmp_path / "r").read_metrics()) == 1


def test_the_start_is_measured_once_and_a_resumed_run_remembers_it(small: Any, tmp_path: Path, measured: Any) -> None:
    left = measured(0.5, 0.4, 0.3)
    run(small(steps=1, evaluation={"greedy": False}), tmp_path / "r")
    summary = run(small(steps=2, evaluation={"greedy": False}), tmp_path / "r", resume=True)
    assert list(left) == []
    assert summary["best_step"] == 0
    assert json.loads((tmp_path / "r" / "checkpoints" / "best.json").read_text()) == {"checkpoint": "step-00000000"}
