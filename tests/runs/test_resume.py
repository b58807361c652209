"""What a resumed run does and does not do.

Behaviours locked here: no generation for finished steps; a finished run only reports; metric keys stay; a damaged,
foreign or mixed checkpoint is refused with the reason and nothing is lost; two processes never write one run.
"""

from __future__ import annotations

import html
import json
import random
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from run_compare import differences, metrics

import rolecall.train as train_module
from rolecall.config import RunConfig
from rolecall.engines.local import LocalEngine
from rolecall.errors import CheckpointError, ConfigError, UsageError
from rolecall.files import KILLED
from rolecall.learner.checkpoint import best, latest
from rolecall.progress import PlainLines
from rolecall.run_folder import RunFolder
from rolecall.train import train

Small = Callable[..., RunConfig]
Killed = Callable[..., int]


def run(config: RunConfig, path: Path, **options: bool) -> dict[str, Any]:
    return train(config, path, PlainLines(config.steps, ()), **options)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every request that reaches the engine."""
    seen: list[Any] = []
    generate = LocalEngine.generate

    async def spy(self: LocalEngine, requests: Any) -> Any:
        seen.extend(requests)
        return await generate(self, requests)

    monkeypatch.setattr(LocalEngine, "generate", spy)
    return seen


def test_a_resumed_run_generates_nothing_for_finished_steps(small: Small, tmp_path: Path, asked: list[Any]) -> None:
    config = small(steps=4, tasks={"sizes": {"validation": 0, "test": 0}})
    run(config, tmp_path / "whole")
    seeds = [request.seed for request in asked]
    assert len(seeds) == len(set(seeds)) == 4 * 2 * 2
    asked.clear()
    run(small(steps=2, tasks={"sizes": {"validation": 0, "test": 0}}), tmp_path / "parts")
    assert [request.seed for request in asked] == seeds[:8]
    asked.clear()
    run(config, tmp_path / "parts", resume=True)
    assert [request.seed for request in asked] == seeds[8:]


def test_resuming_a_finished_run_reports_it_again_and_starts_nothing(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run(small(), tmp_path / "r")
    files = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.name != ".lock"}
    monkeypatch.setattr(train_module, "Run", None)
    assert run(small(), tmp_path / "r", resume=True) == json.loads(json.dumps(first))
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.name != ".lock"} == files


def test_a_run_killed_before_its_report_gets_it_on_resume(small: Small, tmp_path: Path) -> None:
    run(small(steps=1), tmp_path / "r")
    (tmp_path / "r" / "report.html").unlink()
    run(small(steps=1), tmp_path / "r", resume=True)
    assert (tmp_path / "r" / "report.html").is_file()


def test_the_alarms_of_a_run_are_kept_as_printed_and_those_past_a_checkpoint_are_replaced(
    small: Small, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = small(dynamics={"alarms": {"mismatch": 1e-12, "norm_jump": 1.001}}, steps=5)
    run(config, tmp_path / "r")
    printed = [line for line in capsys.readouterr().out.splitlines() if "(usual: " in line]
    kept = json.loads((tmp_path / "r" / "alarms.json").read_text())["alarms"]
    assert [f"step {alarm['step']}: {alarm['text']}" for alarm in kept] == printed
    assert {"key", "subject", "step", "seen", "usual", "move", "text"} == kept[0].keys()
    assert [(alarm["key"], alarm["step"]) for alarm in kept[:1]] == [("mismatch", 1)]
    assert max(alarm["step"] for alarm in kept) > 1
    page = html.unescape((tmp_path / "r" / "report.html").read_text())
    assert all(alarm["text"] in page and f"Alarm in step {alarm['step']}: " in page for alarm in kept)
    RunFolder.open(tmp_path / "r").forget_after(1)
    assert json.loads((tmp_path / "r" / "alarms.json").read_text())["alarms"] == [a for a in kept if a["step"] <= 1]


def test_a_run_killed_before_its_summary_uses_the_test_set_no_second_time(
    small: Small, tmp_path: Path, killed: Killed, asked: list[Any]
) -> None:
    assert killed(small(), tmp_path / "r", "kill:summary:1") == KILLED
    summary = run(small(), tmp_path / "r", resume=True)
    assert asked == []
    assert summary["steps"] == 3
    assert summary["accuracy"]["after"]["n"] == 3


def test_a_run_gone_on_with_longer_measures_its_end_anew_and_remembers_its_length(small: Small, tmp_path: Path) -> None:
    run(small(steps=2), tmp_path / "r")
    summary = run(small(steps=3), tmp_path / "r", resume=True)
    assert summary["steps"] == 3
    assert RunFolder.open(tmp_path / "r").config().steps == 3
    run(small(steps=3), tmp_path / "whole")
    assert differences(tmp_path / "whole", tmp_path / "r") == []


def test_a_resumed_run_has_every_metric_key_that_it_would_have_had(small: Small, tmp_path: Path) -> None:
    """Those that measure time, and those that need history (persistence) or come every few steps, too."""
    run(small(steps=4), tmp_path / "whole")
    run(small(steps=2), tmp_path / "r")
    run(small(steps=4), tmp_path / "r", resume=True)
    keys = [[(step, key) for step, key, _ in RunFolder.open(tmp_path / name).read_metrics()] for name in ("whole", "r")]
    assert (3, "dynamics/solver/persistence") in keys[1]
    assert sorted(keys[0]) == sorted(keys[1])


def test_random_numbers_of_the_process_do_not_change_a_run(small: Small, tmp_path: Path) -> None:
    random.seed(1)
    run(small(steps=1), tmp_path / "one")
    random.seed(2)
    torch.manual_seed(3)
    run(small(steps=1), tmp_path / "other")
    assert differences(tmp_path / "one", tmp_path / "other") == []


def test_a_half_written_checkpoint_does_not_count_and_the_one_before_it_does(
    small: Small, tmp_path: Path, killed: Killed
) -> None:
    config = small(checkpoint={"keep_last": 3})
    run(config, tmp_path / "whole")
    assert killed(config, tmp_path / "r", "kill:checkpoint/rename:4") == KILLED
    (tmp_path / "r" / "checkpoints" / ".writing-step-00000003").rename(tmp_path / "r/checkpoints/step-00000003")
    (tmp_path / "r" / "checkpoints" / "step-00000003" / "manifest.json").unlink()
    newest = latest(tmp_path / "r" / "checkpoints")
    assert newest is not None
    assert newest.name == "step-00000002"
    shutil.rmtree(tmp_path / "r/checkpoints/step-00000003")
    run(config, tmp_path / "r", resume=True)
    assert differences(tmp_path / "whole", tmp_path / "r") == []


@pytest.mark.parametrize("damage", ["cut", "changed", "gone", "manifest"])
def test_a_damaged_checkpoint_is_refused_by_name_and_the_way_on_works(
    small: Small, tmp_path: Path, damage: str
) -> None:
    run(small(steps=2, checkpoint={"keep_last": 3}), tmp_path / "r")
    newest = latest(tmp_path / "r" / "checkpoints")
    assert newest is not None
    victim = newest / ("manifest.json" if damage == "manifest" else "policies/shared/weights/model.safetensors")
    data = victim.read_bytes()
    if damage == "gone":
        victim.unlink()
    else:
        victim.write_bytes(data[: len(data) // 2] if damage != "changed" else data[:-1] + bytes([data[-1] ^ 1]))
    before = metrics(tmp_path / "r")
    with pytest.raises(CheckpointError, match="remove its folder, and --resume goes on from the checkpoint before it"):
        run(small(checkpoint={"keep_last": 3}), tmp_path / "r", resume=True)
    assert metrics(tmp_path / "r") == before  # a refusal removes nothing
    shutil.rmtree(newest)
    assert run(small(checkpoint={"keep_last": 3}), tmp_path / "r", resume=True)["steps"] == 3
    run(small(checkpoint={"keep_last": 3}), tmp_path / "whole")
    assert differences(tmp_path / "whole", tmp_path / "r") == []


def test_policies_at_different_steps_are_refused(small: Small, tmp_path: Path) -> None:
    config = small(
        steps=2,
        sharing="isolated",
        workflow={"name": "solve_verify_correct", "prompts": "tiny", "answer_format": "text"},
    )
    run(config, tmp_path / "r")
    older, newer = (tmp_path / "r" / "checkpoints" / f"step-0000000{step}" for step in (1, 2))
    shutil.rmtree(newer / "policies" / "solver")
    shutil.copytree(older / "policies" / "solver", newer / "policies" / "solver")
    longer = config.model_copy(update={"steps": 3})
    with pytest.raises(CheckpointError, match=r"is of step 2, but its policies are at .*'solver': 1"):
        run(longer, tmp_path / "r", resume=True)


def test_a_run_is_not_resumed_under_another_configuration_and_keeps_its_own(small: Small, tmp_path: Path) -> None:
    run(small(), tmp_path / "r")
    with pytest.raises(CheckpointError, match="another configuration"):
        run(small(learner={"lr": 1e-5}), tmp_path / "r", resume=True)
    assert RunFolder.open(tmp_path / "r").config() == small()


def test_a_run_is_not_resumed_on_another_task_set(small: Small, base: dict[str, Any], tmp_path: Path) -> None:
    copy = tmp_path / "tasks.jsonl"
    lines = Path(base["tasks"]["path"]).read_text().splitlines()
    copy.write_text("\n".join(lines))
    run(small(steps=1, tasks={"path": str(copy)}), tmp_path / "r")
    copy.write_text("\n".join(line.replace("+", " plus ") for line in lines))
    with pytest.raises(CheckpointError, match="another task set"):
        run(small(steps=2, tasks={"path": str(copy)}), tmp_path / "r", resume=True)


def test_a_best_checkpoint_that_is_gone_is_noted_and_chosen_anew(
    small: Small, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(small(steps=3, checkpoint={"keep_last": 1}), tmp_path / "r")
    kept = best(tmp_path / "r" / "checkpoints")
    assert kept is not None
    assert kept.name == "step-00000001"  # every validation is 0, so the first is the best
    shutil.rmtree(kept)
    summary = run(small(steps=4, checkpoint={"keep_last": 1}), tmp_path / "r", resume=True)
    assert "best checkpoint (step 1) is gone" in capsys.readouterr().out
    assert summary["best_step"] == 4


def test_a_run_that_another_process_writes_is_refused(small: Small, tmp_path: Path) -> None:
    run(small(steps=1), tmp_path / "r")
    with (
        closing(RunFolder.reopen(tmp_path / "r")),
        pytest.raises(UsageError, match=r"another process \(\d+\) is writing"),
    ):
        run(small(steps=2), tmp_path / "r", resume=True)
    assert run(small(steps=2), tmp_path / "r", resume=True)["steps"] == 2


def test_other_versions_than_the_run_began_with_are_named(
    small: Small, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(small(steps=1), tmp_path / "r")
    file = tmp_path / "r" / "environment.json"
    data = json.loads(file.read_text())
    data["packages"]["torch"] = "1.0"
    file.write_text(json.dumps(data))
    run(small(steps=2), tmp_path / "r", resume=True)
    assert "torch was 1.0 when the run began and is" in capsys.readouterr().out


def test_a_folder_in_which_the_first_write_was_killed_is_free(small: Small, tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / ".lock").write_text("1")
    (tmp_path / "r" / ".config.toml.tmp").write_text("half")
    assert run(small(steps=1), tmp_path / "r")["steps"] == 1


def test_overwriting_a_run_leaves_nothing_of_it(small: Small, tmp_path: Path) -> None:
    run(small(steps=2), tmp_path / "r")
    run(small(steps=1), tmp_path / "r", overwrite=True)
    run(small(steps=1), tmp_path / "whole")
    assert differences(tmp_path / "whole", tmp_path / "r") == []


def test_keeping_calls_in_flight_contradicts_a_deterministic_run(small: Small) -> None:
    with pytest.raises(ConfigError, match="set deterministic = false"):
        small(checkpoint={"keep_inflight": True})
