"""What a run does at a cliff: it warns, stops with its best weights, or goes back to them; resumed runs do the same.

Validation is a table by step here; everything else is a real run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from run_compare import differences
from test_pipeline_runs import AGENTIC, SEGMENTS

from rolecall.config import RunConfig
from rolecall.errors import ConfigError
from rolecall.evaluate import Evaluation, summarise
from rolecall.intervals import Estimate
from rolecall.learner.checkpoint import best, of_step
from rolecall.progress import PlainLines
from rolecall.run import Run
from rolecall.run_folder import RunFolder
from rolecall.train import train

Small = Callable[..., RunConfig]
Means = Callable[[Mapping[int, float]], None]

FALLS = {0: 0.4, 1: 0.6, 2: 0.8, 3: 0.4, 4: 0.4, 5: 0.4, 6: 0.4}
"""Best at step 2. Smoothed: 0.5, 0.7, 0.6, 0.4; at step 3 it is 0.1 below the peak, at step 4 0.3."""


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Means:
    """A function that says what validation is to find after each step; the interval is 0.02 to either side."""

    def set_means(means: Mapping[int, float]) -> None:
        real = Run.evaluate

        def evaluate(self: Run, tasks: Any, *, label: str, **options: Any) -> Evaluation:
            if label != "validation":
                return real(self, tasks, label=label, **options)
            mean = means[self.step]
            empty = summarise([])
            team = Estimate(mean=mean, low=mean - 0.02, high=mean + 0.02, n=3, num_tasks=3)
            return type(empty)(**{name: getattr(empty, name) for name in empty.__slots__} | {"team": team})

        monkeypatch.setattr(Run, "evaluate", evaluate)

    return set_means


def run(config: RunConfig, path: Path, **options: bool) -> dict[str, Any]:
    return train(config, path, PlainLines(config.steps, ()), **options)


def figures(path: Path, key: str) -> dict[int, float]:
    return {step: value for step, name, value in RunFolder.open(path).read_metrics() if name == key}


def weights(path: Path, step: int) -> tuple[bytes, dict[str, Any]]:
    """The weights of a checkpoint, and its optimiser's state."""
    found = of_step(path / "checkpoints", step)
    assert found is not None
    folder = found / "policies" / "shared"
    return (folder / "weights" / "model.safetensors").read_bytes(), torch.load(
        folder / "learner.pt", weights_only=True
    )["learner"]


def test_a_run_that_warns_goes_on_and_says_so_in_words(
    small: Small, tmp_path: Path, measured: Means, capsys: pytest.CaptureFixture[str]
) -> None:
    measured(FALLS)
    summary = run(small(steps=5, checkpoint={"keep_last": 1}), tmp_path / "r")
    assert summary["steps"] == 5
    assert figures(tmp_path / "r", "cliff/fallen") == {1: 0.0, 2: 0.0, 3: 1.0, 4: 1.0, 5: 1.0}
    assert figures(tmp_path / "r", "cliff/fall")[4] == pytest.approx(0.3)
    alarms = json.loads((tmp_path / "r" / "alarms.json").read_text())["alarms"]
    (alarm,) = [alarm for alarm in alarms if alarm["key"] == "cliff"]
    assert alarm["step"] == 3
    assert "0.600; the peak was 0.700 at step 2" in alarm["text"]
    assert alarm["text"] in capsys.readouterr().out
    cliff = summary["cliff"]
    assert (cliff["cliff"], cliff["stopped"], cliff["rollbacks"], cliff["on_cliff"]) == (True, False, [], "warn")
    assert (cliff["base"], cliff["peak_step"]) == (0.4, 2)
    kept = best(tmp_path / "r" / "checkpoints")
    assert kept is not None
    assert kept.name == "step-00000002"  # long past keep_last = 1


def test_a_run_that_stops_ends_with_its_best_weights_and_is_finished(
    small: Small, tmp_path: Path, measured: Means, capsys: pytest.CaptureFixture[str]
) -> None:
    measured(FALLS)
    config = small(steps=6, evaluation={"on_cliff": "stop"})
    summary = run(config, tmp_path / "r")
    assert (summary["steps"], summary["best_step"]) == (3, 2)
    assert summary["evaluation"]["after"]["step"] == 2
    assert summary["cliff"]["stopped"] is True
    assert (
        "the run stops (evaluation.on_cliff is 'stop'), and its result is the best step, 2" in capsys.readouterr().out
    )
    assert "The cliff guard stopped the run" in (tmp_path / "r" / "report.html").read_text()
    assert run(config, tmp_path / "r", resume=True) == json.loads(json.dumps(summary))
    gone_on = run(small(steps=6, evaluation={"on_cliff": "warn"}), tmp_path / "r", resume=True)
    assert gone_on["steps"] == 6
    assert gone_on["cliff"]["stopped"] is False


def test_a_rollback_puts_weights_and_optimiser_of_the_best_step_back_and_versions_go_on(
    small: Small, tmp_path: Path, measured: Means, capsys: pytest.CaptureFixture[str]
) -> None:
    measured({**FALLS, 4: 0.7, 5: 0.8, 6: 0.8})
    config = small(steps=5, evaluation={"on_cliff": "rollback"}, checkpoint={"keep_last": 9})
    summary = run(config, tmp_path / "r")
    assert summary["steps"] == 5
    (bytes_2, state_2), (bytes_3, state_3) = weights(tmp_path / "r", 2), weights(tmp_path / "r", 3)
    assert bytes_2 == bytes_3 != weights(tmp_path / "r", 4)[0]
    assert str(state_2["optimizer"]) == str(state_3["optimizer"])
    assert (state_2["lr_scale"], state_3["lr_scale"]) == (1.0, 0.5)
    assert figures(tmp_path / "r", "policy/shared/version") == {1: 1, 2: 2, 3: 4, 4: 5, 5: 6}
    rate = figures(tmp_path / "r", "learner/shared/lr")
    assert (rate[2], rate[3], rate[4]) == (3e-3, 3e-3, 1.5e-3)
    assert summary["cliff"]["rollbacks"] == [{"step": 3, "to": 2}]
    assert "back to the weights of step 2 (rollback 1 of 2), and on at 0.5 times" in capsys.readouterr().out
    assert "Rolled back from step 3 to step 2" in (tmp_path / "r" / "report.html").read_text()


@pytest.mark.parametrize("cut", [2, 3, 4])
def test_a_resumed_run_rolls_back_in_the_same_step_bit_for_bit(
    small: Small, tmp_path: Path, measured: Means, cut: int
) -> None:
    measured({**FALLS, 4: 0.7, 5: 0.8})
    changes: dict[str, Any] = {"evaluation": {"on_cliff": "rollback"}}
    run(small(steps=5, **changes), tmp_path / "whole")
    run(small(steps=cut, **changes), tmp_path / "r")
    run(small(steps=5, **changes), tmp_path / "r", resume=True)
    assert figures(tmp_path / "whole", "cliff/rollbacks")[5] == 1
    assert differences(tmp_path / "whole", tmp_path / "r") == []


@pytest.mark.parametrize("cut", [3, 4])
def test_the_pipeline_rolls_back_with_completions_under_way_bit_for_bit(
    small: Small, tmp_path: Path, measured: Means, cut: int
) -> None:
    measured({**FALLS, 4: 0.7, 5: 0.8, 6: 0.8})
    changes = {**AGENTIC, **SEGMENTS, "evaluation": {"every_steps": 1, "on_cliff": "rollback"}}
    run(small(**{**changes, "steps": 6}), tmp_path / "whole")
    run(small(**{**changes, "steps": cut}), tmp_path / "r")
    run(small(**{**changes, "steps": 6}), tmp_path / "r", resume=True)
    assert figures(tmp_path / "whole", "cliff/rollbacks")[6] == 1
    assert sum(figures(tmp_path / "whole", "pipeline/unfinished").values()) > 0
    assert differences(tmp_path / "whole", tmp_path / "r") == []
    versions = list(figures(tmp_path / "whole", "policy/shared/version").values())
    assert versions == sorted(versions)


def test_the_fall_after_the_last_rollback_stops_the_run(small: Small, tmp_path: Path, measured: Means) -> None:
    measured({**FALLS, 4: 0.4})
    config = small(steps=6, evaluation={"on_cliff": "rollback", "max_rollbacks": 1})
    summary = run(config, tmp_path / "r")
    # back at step 3; then the curve is 0.4, 0.6, 0.8 and 0.4: smoothed 0.6, 0.1 below the peak
    assert (summary["steps"], summary["best_step"]) == (4, 2)
    assert summary["cliff"]["stopped"] is True
    assert summary["cliff"]["rollbacks"] == [{"step": 3, "to": 2}]


def test_a_step_that_is_the_best_so_far_is_no_fall(small: Small, tmp_path: Path, measured: Means) -> None:
    measured({0: 0.8, 1: 0.8, 2: 0.78, 3: 0.6, 4: 0.85})  # smoothed 0.725 at step 4, below the base of 0.8
    summary = run(small(steps=4), tmp_path / "r")
    assert figures(tmp_path / "r", "cliff/fallen") == {1: 0.0, 2: 0.0, 3: 1.0, 4: 0.0}
    assert summary["best_step"] == 4


@pytest.mark.parametrize("off", [{"tasks": {"sizes": {"validation": 0}}}, {"evaluation": {"every_steps": 0}}])
def test_a_guard_that_nothing_would_wake_is_refused(small: Small, off: dict[str, Any]) -> None:
    changes = {**off, "evaluation": {**off.get("evaluation", {}), "on_cliff": "stop"}}
    with pytest.raises(ConfigError, match="nothing would see a cliff"):
        small(**changes)
