"""Recipes that name public data sets: each source reads a local folder of its shape and keeps what it holds out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rolecall.config import read_recipe
from rolecall.errors import TaskError
from rolecall.grading import grade_math
from rolecall.registry import load_named
from rolecall.tasks import TASK_SOURCES, load_tasks

pytest.importorskip("datasets")
RECIPES = Path(__file__).resolve().parents[2] / "recipes" / "data"

STDIO = [{"input": "1 2\n", "output": "3\n", "testtype": "stdin"}]
SHAPES: dict[str, list[dict[str, Any]]] = {
    "open-r1/DAPO-Math-17k-Processed": [
        {
            "prompt": f"What is {n} plus {n}?",
            "solution": str(2 * n),
            "data_source": "math_dapo",
            "source_prompt": [{"role": "user", "content": "..."}],
            "ability": "MATH",
            "reward_model": {"ground_truth": str(2 * n), "style": "rule"},
            "extra_info": {"index": f"id{n}"},
        }
        for n in range(40)
    ],
    "HuggingFaceH4/MATH-500": [
        {
            "problem": f"Halve {n}.",
            "solution": "...",
            "answer": rf"\frac{{{n}}}{{2}}",
            "subject": "Algebra",
            "level": 1,
            "unique_id": f"test/algebra/{n}.json",
        }
        for n in range(4)
    ],
    "HuggingFaceH4/aime_2024": [
        {"id": n, "problem": f"Find {n}.", "solution": "...", "answer": f"0{n}", "url": "", "year": "2024"}
        for n in range(3)
    ],
    "math-ai/aime25": [{"problem": f"Seek {n}.", "answer": str(n), "id": str(n)} for n in range(3)],
    "ByteDance-Seed/BeyondAIME": [{"problem": f"Beyond {n}.", "answer": n} for n in range(3)],
    "openai/gsm8k": [
        {"question": f"Ann has {n} pears and buys 1,000 more.", "answer": f"{n}+1000\n#### {n + 1000:,}"}
        for n in range(40)
    ],
    "agentica-org/DeepCoder-Preview-Dataset": [
        {
            "problem": f"Print the sum of two numbers, case {n}.",
            "solutions": ["print(sum(map(int, input().split())))"],
            "tests": json.dumps([{"type": "stdin_stdout", "input": "1 2\n", "output": "3\n"}]),
        }
        for n in range(20)
    ],
    "livecodebench/code_generation_lite": [
        {
            "question_title": "sum",
            "question_content": f"Print the sum, contest {n}.",
            "platform": "atcoder",
            "question_id": f"abc{n}",
            "contest_date": "2024-10-01T00:00:00",
            "starter_code": "",
            "difficulty": "easy",
            "public_test_cases": json.dumps(STDIO),
            "private_test_cases": json.dumps(STDIO),
            "metadata": "{}",
        }
        for n in range(3)
    ],
}


def folder_of(tmp_path: Path, params: dict[str, Any]) -> dict[str, Any]:
    """The knobs of a source, with a local folder of the data set's shape in its place."""
    rows = SHAPES[params["path"]]
    if params["path"] == "openai/gsm8k" and params["split"] == "test":
        rows = [{**row, "question": "In the test, " + row["question"]} for row in rows[:5]]
    folder = tmp_path / params["path"].split("/")[1]
    folder.mkdir(parents=True)
    (folder / f"{params['split']}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {**{key: value for key, value in params.items() if key != "subset"}, "path": str(folder)}


def source(tmp_path: Path, table: dict[str, Any]) -> Any:
    params = {k: v for k, v in table.items() if k not in ("name", "sizes", "validation_from", "test_from")}
    return load_named(table["name"], TASK_SOURCES, "task source", folder_of(tmp_path, params))


def test_the_recipes_name_every_data_set() -> None:
    named = "\n".join(path.read_text() for path in RECIPES.glob("*.toml"))
    assert all(name in named for name in SHAPES)


@pytest.mark.hub
@pytest.mark.parametrize("recipe", sorted(RECIPES.glob("*.toml")), ids=lambda path: path.stem)
def test_recipes_read_folders_of_the_same_shape_and_hold_out_what_they_test_on(recipe: Path, tmp_path: Path) -> None:
    table = read_recipe(recipe)["tasks"]
    train, test = source(tmp_path, table), source(tmp_path / "t", table["test_from"])
    validation = source(tmp_path / "v", table["validation_from"]) if "validation_from" in table else None
    splits = load_tasks(train, train=0, validation=0, test=0, test_source=test, validation_source=validation)
    assert len(splits.train) >= 10
    assert len(splits.test) >= 3
    assert all(task.question.strip() for tasks in splits for task in tasks)
    if table["name"] == "hub":
        assert all(task.answer and grade_math(rf"\boxed{{{task.answer}}}", task.answer).right for task in splits.test)
        assert "####" not in "".join(str(task.answer) for task in splits.train)
    else:
        assert all(task.metadata["code"]["tests"] for tasks in splits for task in tasks)
    with pytest.raises(TaskError, match="evaluation only"):
        load_tasks(test, train=0, validation=0, test=0)
