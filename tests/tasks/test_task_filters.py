"""Decontamination by n-grams and the filter by difficulty, with counts worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from typer.testing import CliRunner

from rolecall.errors import TaskError
from rolecall.records import Task
from rolecall.tasks.decontaminate import decontaminate, ngrams
from rolecall.tasks.difficulty import Chosen, Tries, filter_by_difficulty, read_ids, tries_of_run
from rolecall.tasks.jsonl import Jsonl
from rolecall.tasks.splits import SplitRule


def task(name: str, question: str) -> Task:
    return Task(id=name, question=question, answer="1")


LONG = "a farmer has seven hens and each of them lays two eggs every day of the week how many eggs"


def test_ngrams_are_runs_of_words_without_case_and_signs() -> None:
    assert ngrams("One, TWO: $three$ four", 3) == [("one", "two", "three"), ("two", "three", "four")]
    assert ngrams("one two", 3) == [("one", "two")]
    assert ngrams("?!", 3) == []


def test_a_training_task_that_shares_n_words_with_a_test_is_left_out_and_reported() -> None:
    train = [
        task("copy", LONG.upper() + "?"),
        task("part", "Yesterday: " + " ".join(LONG.split()[:13])),
        task("near", " ".join(LONG.split()[:12]) + " nothing else is the same in it at all"),
        task("other", "an entirely different question about triangles and circles which shares nothing with tests"),
    ]
    found = decontaminate(train, {"test": [task("t1", LONG)], "aime": [task("a1", "find x")]}, n=13)
    assert [one.id for one in found.kept] == ["near", "other"]
    assert [(o.train_id, o.evaluation_id, o.evaluation_set) for o in found.overlaps] == [
        ("copy", "t1", "test"),
        ("part", "t1", "test"),
    ]
    assert found.overlaps[0].share == 1.0
    assert found.overlaps[1].share == 0.5  # two n-grams, the second of which is the test's
    report = found.report()
    assert (report["read"], report["kept"], report["removed"], report["removed_by_set"]) == (4, 2, 2, {"test": 2})
    assert json.dumps(report)


def test_short_questions_meet_only_as_a_whole() -> None:
    found = decontaminate([task("a", "Find x"), task("b", "Find x now")], {"test": [task("t", "find X!")]}, n=13)
    assert [one.id for one in found.kept] == ["b"]
    assert found.num_short == 2


def test_a_share_may_be_asked_for_before_a_task_is_left_out() -> None:
    half = task("part", "Yesterday: " + " ".join(LONG.split()[:13]))
    test = {"test": [task("t1", LONG)]}
    assert decontaminate([half], test, n=13, min_share=0.5).kept == (half,)
    assert decontaminate([half], test, n=13, min_share=0.4).kept == ()
    with pytest.raises(TaskError, match="at least 1 word"):
        decontaminate([half], test, n=0)


def test_tasks_that_are_solved_sometimes_are_kept_and_the_others_counted() -> None:
    tries = {"never": Tries(0, 4), "always": Tries(4, 4), "some": Tries(1, 4), "most": Tries(3, 4), "few": Tries(1, 2)}
    found = filter_by_difficulty([*tries, "unseen"], tries, k=4)
    assert found.kept == ("some", "most")
    assert found.report() == {"kept": 2, "never": 1, "always": 1, "untried": 2}
    assert filter_by_difficulty(tries, tries, k=4, high=0.75).kept == ("some",)
    with pytest.raises(TaskError, match="at least 2 tries"):
        filter_by_difficulty(tries, tries, k=1)


def write_episodes(path: Path) -> None:
    path.parent.mkdir(parents=True)
    rows = [("a", 1.0, 1), ("a", 0.0, 1), ("b", 1.0, 1), ("b", 1.0, 2), ("c", None, 2), ("c", 0.0, 2)]
    table = {"task": [r[0] for r in rows], "team_score": [r[1] for r in rows], "step": [r[2] for r in rows]}
    parquet.write_table(pa.table(table), path)


def test_tries_are_counted_from_a_runs_episodes_without_failed_grades(tmp_path: Path) -> None:
    write_episodes(tmp_path / "episodes" / "0.parquet")
    assert tries_of_run(tmp_path) == {"a": Tries(1, 2), "b": Tries(2, 2), "c": Tries(0, 1)}
    assert tries_of_run(tmp_path, steps=(2, 2)) == {"b": Tries(1, 1), "c": Tries(0, 1)}
    assert tries_of_run(tmp_path / "episodes" / "0.parquet") == tries_of_run(tmp_path)
    with pytest.raises(TaskError, match="no episodes"):
        tries_of_run(tmp_path / "nothing")


def test_the_command_writes_ids_that_a_source_then_keeps_to(tmp_path: Path) -> None:
    from rolecall.cli import app

    write_episodes(tmp_path / "episodes" / "0.parquet")
    out = tmp_path / "ids.json"
    done = CliRunner().invoke(app, ["difficulty", str(tmp_path), "--k", "2", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert read_ids(out) == {"a"}
    assert json.loads(out.read_text())["untried"] == 1
    (tmp_path / "t.jsonl").write_text('{"question": "x", "answer": "1", "id": "a"}\n' * 1)
    source = Jsonl(path=str(tmp_path / "t.jsonl"))
    assert [one.id for one in Chosen(source=source, ids=frozenset({"jsonl:t:1"})).tasks()] == ["jsonl:t:1"]
    assert list(Chosen(source=source, ids=frozenset()).tasks()) == []


def test_the_command_reports_what_a_recipe_trains_on_and_tests_on(tmp_path: Path) -> None:
    from rolecall.cli import app

    train = [
        {"question": f"question {n} is about the number {n} and nothing else", "answer": str(n)} for n in range(30)
    ]
    known = next(n for n, row in enumerate(train) if SplitRule().split(row["question"]) == "train")
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in train))
    (tmp_path / "test.jsonl").write_text(
        json.dumps({"question": train[known]["question"] + ", really", "answer": "3"}) + "\n"
    )
    recipe = tmp_path / "r.toml"
    recipe.write_text(
        f"""
workflow = {{ name = "single_agent" }}
algorithm = {{ name = "mas_grpo" }}
[tasks]
name = "jsonl"
path = "{tmp_path}/train.jsonl"
sizes = {{ train = 0, test = 1 }}
[tasks.test_from]
name = "jsonl"
path = "{tmp_path}/test.jsonl"
evaluation_only = true
"""
    )
    out = tmp_path / "kept.json"
    done = CliRunner().invoke(app, ["decontaminate", str(recipe), "--n", "8", "--out", str(out)])
    assert done.exit_code == 0, done.output
    report = json.loads(out.read_text())
    assert report["removed_by_set"] == {"test": 1}
    assert [one["train"] for one in report["overlaps"]] == [f"jsonl:train:{known + 1}"]
    assert f"jsonl:train:{known + 1}" not in report["ids"]
