"""`--keep-inflight`: a run that is not deterministic goes on with what was recorded, and asks for none of it again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from run_compare import points, rows

from rolecall.config import RunConfig
from rolecall.engines.local import LocalEngine
from rolecall.errors import WriteError
from rolecall.files import FAULT, KILLED, _passed
from rolecall.inflight import read_lines
from rolecall.progress import PlainLines
from rolecall.run_folder import RunFolder
from rolecall.train import train

Small = Callable[..., RunConfig]
Killed = Callable[..., int]
EPISODES = 4 * 2


@pytest.fixture
def config(small: Small) -> RunConfig:
    return small(
        deterministic=False,
        steps=4,
        workflow={"name": "solve_verify_correct", "prompts": "tiny", "answer_format": "text"},
        rollout={"tasks_per_step": 4, "max_concurrent": 3},
        tasks={"sizes": {"validation": 0, "test": 0}},
        checkpoint={"keep_inflight": True, "every_steps": 3},
    )


def run(config: RunConfig, path: Path, **options: bool) -> dict[str, Any]:
    return train(config, path, PlainLines(config.steps, ()), **options)


@pytest.fixture
def seeds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The seeds of all requests that reach the engine: each call of each episode has its own."""
    seen: list[int] = []
    generate = LocalEngine.generate

    async def spy(self: LocalEngine, requests: Any) -> Any:
        seen.extend(request.seed for request in requests)
        return await generate(self, requests)

    monkeypatch.setattr(LocalEngine, "generate", spy)
    return seen


def series(path: Path, key: str) -> dict[int, float]:
    return {step: value for step, name, value in RunFolder.open(path).read_metrics() if name == key}


def recorded(path: Path) -> dict[int, list[dict[str, Any]]]:
    return {int(file.stem): read_lines(file) for file in sorted((path / "inflight").glob("*.jsonl"))}


def check_counts(path: Path, summary: dict[str, Any], steps: int) -> None:
    """Nothing lost, nothing counted twice."""
    assert sum(summary["outcomes"].values()) == steps * EPISODES
    found = Counter((row["step"], row["episode"]) for row in rows(path, "episodes"))
    assert set(found.values()) == {1}
    assert len(found) == steps * EPISODES
    stored = [json.loads(row["record"])["graded"]["episode"]["turns"] for row in rows(path, "episodes")]
    sampled = sum(len(turn["completion"]["token_ids"]) for turns in stored for turn in turns)
    assert summary["tokens"]["generated"] == sampled == sum(series(path, "engine/tokens").values())
    assert len(points(path)) == len(set(points(path)))


def test_a_resumed_run_goes_on_with_recorded_calls_and_asks_the_engine_for_none_of_them(
    config: RunConfig, tmp_path: Path, killed: Killed, seeds: list[int]
) -> None:
    """Killed in step 2, two steps past no checkpoint: step 1 is recorded whole, step 2 in part."""
    path = tmp_path / "r"
    assert killed(config, path, "kill:inflight:60") == KILLED
    before = recorded(path)
    kept = {step: len(lines) for step, lines in before.items()}
    assert sum(kept.values()) == 59
    assert list(kept) == [1, 2]
    assert not list((path / "checkpoints").glob("step-*")) if (path / "checkpoints").exists() else True
    summary = run(config, path, resume=True)
    check_counts(path, summary, steps=4)
    replayed, sampled = series(path, "episodes/calls_replayed"), series(path, "episodes/calls_sampled")
    assert replayed == {1: kept[1], 2: kept[2], 3: 0, 4: 0}
    assert sampled[1] == 0
    assert len(seeds) == len(set(seeds)) == sum(sampled.values())
    turns = {
        turn["id"]: turn for row in rows(path, "episodes")
        for turn in json.loads(row["record"])["graded"]["episode"]["turns"]
    }  # fmt: skip
    for line in (line for lines in before.values() for line in lines if line["kind"] == "call"):
        turn = line["record"]["turn"]
        assert turns[turn["id"]]["completion"] == turn["completion"]  # trained as it was sampled, log-probabilities too
    assert list((path / "inflight").iterdir()) == []


def test_a_line_cut_in_two_costs_that_call_alone(config: RunConfig, tmp_path: Path, killed: Killed) -> None:
    path = tmp_path / "r"
    assert killed(config, path, "kill:inflight:12") == KILLED
    journal = path / "inflight" / "00000001.jsonl"
    journal.write_bytes(journal.read_bytes()[:-20])
    assert killed(config, path, "kill:inflight:5", resume=True) == KILLED  # the torn line must not glue to the next
    summary = run(config, path, resume=True)
    check_counts(path, summary, steps=4)
    assert series(path, "episodes/calls_replayed")[1] == 10 + 3


def test_calls_of_another_version_are_sampled_again(config: RunConfig, tmp_path: Path, killed: Killed) -> None:
    path = tmp_path / "r"
    assert killed(config, path, "kill:inflight:12") == KILLED
    journal = path / "inflight" / "00000001.jsonl"
    lines = read_lines(journal)
    foreign = lines[0]["episode"]
    for line in lines:
        if line["episode"] == foreign:
            completion = line["record"]["turn"]["completion"]
            completion["versions"] = [7] * len(completion["versions"])
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    summary = run(config, path, resume=True)
    check_counts(path, summary, steps=4)
    mine = sum(line["episode"] != foreign for line in lines)
    assert series(path, "episodes/calls_replayed")[1] == mine
    versions = {
        version
        for row in rows(path, "episodes")
        if row["step"] == 1
        for turn in json.loads(row["record"])["graded"]["episode"]["turns"]
        for version in turn["completion"]["versions"]
    }
    assert versions == {0}


def test_without_keep_inflight_the_step_in_flight_is_done_again_and_counted_once(
    config: RunConfig, tmp_path: Path, killed: Killed
) -> None:
    plain = config.model_copy(update={"checkpoint": config.checkpoint.model_copy(update={"keep_inflight": False})})
    assert killed(plain, tmp_path / "r", "kill:metrics:2") == KILLED
    summary = run(plain, tmp_path / "r", resume=True)
    check_counts(tmp_path / "r", summary, steps=4)
    assert not (tmp_path / "r" / "inflight").exists()


def test_a_journal_without_room_ends_the_run_and_fails_no_episode(
    config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error inside `reply` would look like the workflow's own, and 0 as a reward would be trained on."""
    monkeypatch.setenv(FAULT, "full:inflight:5")
    _passed.clear()
    with pytest.raises(WriteError, match=r"00000001\.jsonl' could not be written .No space left"):
        run(config, tmp_path / "r")
    monkeypatch.delenv(FAULT)
    summary = run(config, tmp_path / "r", resume=True)
    check_counts(tmp_path / "r", summary, steps=4)
    assert summary["outcomes"]["error"] == 0
