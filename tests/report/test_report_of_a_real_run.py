"""The report of a run that rolecall itself made: its reader and the writer of run folders agree."""

from __future__ import annotations

import json

import pytest
from test_report_page import Outline

from rolecall.config import make_config
from rolecall.progress import PlainLines
from rolecall.report import write_report
from rolecall.report.episodes import examples
from rolecall.report.read import read_run
from rolecall.run_folder import RunFolder
from rolecall.train import train
from tiny_models import make_tiny_model

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    root = tmp_path_factory.mktemp("real")
    tasks = root / "tasks.jsonl"
    tasks.write_text("\n".join(json.dumps({"question": f"{a}+1", "answer": str(a + 1)}) for a in range(150)))
    config = {
        "name": "small",
        "steps": 3,
        "workflow": {"name": "single_agent", "answer_format": "text"},
        "tasks": {"name": "jsonl", "path": str(tasks), "sizes": {"validation": 4, "test": 4}},
        "model": {"model": make_tiny_model(root / "model", std=0.1)},
        "algorithm": {"name": "user_parts:letters", "n": 8},
        "sampling": {"max_tokens": 24, "max_prompt_tokens": 256},
        "rollout": {"tasks_per_step": 8},
        "engine": {"mode": "inline"},
        "evaluation": {"every_steps": 1},
    }
    train(make_config(config), root / "run", PlainLines(3, ()))
    return root / "run"


def test_the_page_of_a_real_run_is_made_and_nothing_is_left_out(finished):
    outline = Outline(write_report(finished).read_text(encoding="utf-8"))
    assert "finished" in outline.text
    assert "cannot be read" not in outline.text
    assert read_run(finished).problems == ()
    for words in ("solver", "Gradient norm", "training, step 3", "before training", "after training"):
        assert words in outline.text


def test_the_reader_finds_every_metric_that_the_run_folder_holds(finished):
    rows = RunFolder.open(finished).read_metrics()
    read = read_run(finished)
    assert sorted((s, k) for k, series in read.metrics.items() for s in series.steps) == sorted(
        (s, k) for s, k, _ in rows
    )
    assert tuple(read.roles.items()) == (("solver", "shared"),)


def test_training_episodes_show_what_their_turns_were_paid(finished):
    problems: list[str] = []
    groups = examples(read_run(finished), problems)
    assert problems == []
    trained = [one for group in groups for one in group.shown if one.heading.startswith("training")]
    assert trained
    assert all(one.record["rewards"] and one.record["advantages"] for one in trained)
