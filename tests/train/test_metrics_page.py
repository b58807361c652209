"""docs/metrics.md defines every key that a run writes, and nothing that no run writes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from learner_helpers import learner_of, model_spec, random_samples
from rolecall.config import RunConfig, make_config, overlay
from rolecall.dynamics.alarm_rules import RULES
from rolecall.dynamics.alarms import AlarmBoard
from rolecall.dynamics.drift import ProbeRow
from rolecall.dynamics.monitor import DynamicsMonitor
from rolecall.dynamics.settings import AlarmSettings
from rolecall.progress import PlainLines
from rolecall.rewards.base import MARKS
from rolecall.run_folder import RunFolder
from rolecall.train import train

PAGE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"
ROLES = ("solver", "verifier", "corrector")
PLACES = {
    "<role>": "(solver|verifier|corrector|voter|aggregator)",
    "<other>": "(solver|verifier|corrector|voter|aggregator)",
    "<policy>": "(shared|solver|verifier|corrector)",
    "<part>": "(correct|team|format|letters)",
    "<outcome>": "(ok|truncated|invalid|error|timeout)",
    "<alarm>": "[a-z_]+",
    "<call>": "[0-9]+",
    "<why>": "(stages|no_candidate|no_call|failed)",
}

UNSEEN = {
    "samples/shared": "trees only",
    "cliff/relative": "a random model gains nothing",
    "alarms/<alarm>": "small runs raise none; see the test of their keys",
    "samples/empty": "a completion without a token",
    "samples/stale": "a turn all of whose tokens passed the bound",
    "behaviour/<role>/repaired": "a random model repairs nothing that can be graded",
    "behaviour/<role>/kept_right": "a random model is never right",
    "behaviour/<role>/copied_input": "as above",
    "behaviour/<role>/num_right_given": "as above",
    "behaviour/<role>/recall": "as above",
    "behaviour/<role>/false_alarm": "as above",
    "behaviour/<role>/judged_right": "as above",
    "credit/verdict_weight_right": "as above",
    "behaviour/<role>/chose_right": "a random model is never right",
    "behaviour/<role>/copied_wrong": "as above",
    "behaviour/<role>/num_copied_wrong": "as above",
    "behaviour/<role>/informedness": "as above",
    "behaviour/<role>/different_plans": "no workflow of these runs has a role that plans",
}
"""Documented keys that the small runs of this test need not write."""


TABLES = {"solver": {"damping": 0.3, "balance_mass": True, "average_copies": True}}

MASKED_PIPELINE = {
    "steps": 4,
    "algorithm": {"name": "marsrl", "n": 2, "k": 1, "stages": 2},
    "schedule": {"mode": "pipeline_segments", "segment_tokens": 3, "max_staleness": 0, "on_stale": "mask"},
}


VOTING = {
    "workflow": {"name": "voting", "prompts": "default", "answer_format": "boxed"},
    "dynamics": {"leakage_reference": 1},
    "steps": 2,
    "sampling": {"max_prompt_tokens": 2048},
}


def documented() -> list[str]:
    """The keys in the first cell of every row of the page's tables of keys."""
    cells = [line.split(" | ")[0] for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    return [key for cell in cells for key in re.findall(r"`([^`]+)`", cell)]


def matches(pattern: str, key: str) -> bool:
    for place, wanted in PLACES.items():
        pattern = pattern.replace(place, wanted)
    return re.fullmatch(pattern, key) is not None


def small(model: str, tasks: Path, **changes: Any) -> RunConfig:
    base = {
        "workflow": {"name": "solve_verify_correct", "prompts": "tiny", "answer_format": "text"},
        "tasks": {"name": "jsonl", "path": str(tasks), "sizes": {"validation": 4, "test": 4}},
        "model": {"model": model},
        "algorithm": {"name": "user_parts:letters", "n": 4},
        "sampling": {"max_tokens": 6, "max_prompt_tokens": 256},
        "rollout": {"tasks_per_step": 4},
        "learner": {"lr": 3e-3},
        "engine": {"mode": "inline"},
        "evaluation": {"every_steps": 1},
        "steps": 1,
    }
    return make_config(overlay(base, changes))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, random_model: str, task_file: Path) -> set[str]:
    """The keys of tiny runs that between them use every area."""
    root, keys = tmp_path_factory.mktemp("runs"), set[str]()
    anchored = {"loss": {"kl_coef": 0.01, "kl_against": "base", "clipped": True, "ratio": "token"}}
    anchored["loss"] |= {"mask_mastered": True, "correction": "truncated"}
    for number, changes in enumerate(
        (
            {"sharing": "shared", "algorithm": anchored, "learner": {"minibatches": 2}, "interventions": TABLES},
            {"sharing": "isolated", "train_roles": ["solver"], "partners": {"share": 0.5}},
            {"sharing": "shared", "algorithm": {"name": "agent_grpo", "n": 4, "balance_verdicts": True}},
            {**MASKED_PIPELINE, "sharing": "shared"},
            {**VOTING, "sharing": "shared"},
        )
    ):
        config = small(random_model, task_file, **changes)
        train(config, root / str(number), PlainLines(config.steps, ()))
        keys |= {name for _, name, _ in RunFolder.open(root / str(number)).read_metrics()}
    return keys | monitored(random_model)


def monitored(model: str) -> set[str]:
    """The keys of a monitor over one update and its drift."""
    learner = learner_of(model_spec("shared", model))
    monitor = DynamicsMonitor({"shared": learner}, {"solver": "shared"})
    monitor.rows["solver"] = [ProbeRow(token_ids=(1, 2, 3), positions=(2,))]
    monitor.before_update(1, [])
    learner.update(random_samples(3, policy="shared"), 1)
    return set(monitor.after_update(1)) | set(monitor.alarm_metrics())


def test_every_key_that_a_run_writes_is_defined(written: set[str]) -> None:
    page = documented()
    assert len(page) > 80
    assert sorted(key for key in written if not any(matches(pattern, key) for pattern in page)) == []


def test_nothing_is_defined_that_no_run_writes(written: set[str]) -> None:
    unseen = {pattern for pattern in documented() if not any(matches(pattern, key) for key in written)}
    assert sorted(unseen - UNSEEN.keys()) == []


def test_no_key_is_defined_twice() -> None:
    page = documented()
    assert sorted(page) == sorted(set(page))


def test_every_alarm_and_every_mark_of_a_reward_is_on_the_page() -> None:
    text = PAGE.read_text()
    for mark in MARKS:
        assert f"`reward/<role>/{mark}`" in text
    for key in alarm_keys():
        assert re.search(rf"^\|[^|]*\b{key}\b[^|]*\|", text, re.MULTILINE), key


def alarm_keys() -> Iterator[str]:
    """Every key in the source of the rules."""
    files = sorted({rule.__code__.co_filename for rule in RULES})  # type: ignore[attr-defined]
    source = "".join(Path(file).read_text() for file in files)
    yield from set(re.findall(r'key="([a-z_]+)"', source)) | {"always_agrees", "always_rejects"}
    yield from ("much_truncated", "much_unparsed")


def test_keys_of_alarms_are_defined() -> None:
    monitor = DynamicsMonitor({}, {})
    monitor.board = AlarmBoard(RULES, {"solver": "shared"}, AlarmSettings(patience=1))
    monitor.alarms(1, {})
    assert set(monitor.alarm_metrics()) == {"alarms/active", "alarms/never_trains"}
    assert all(any(matches(pattern, key) for pattern in documented()) for key in monitor.alarm_metrics())
