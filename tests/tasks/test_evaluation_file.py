r"""Files of competition problems: fields that are found, answers in LaTeX, and what is told when they are not there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rolecall.errors import TaskError
from rolecall.grading.math import grade_math
from rolecall.tasks.evaluation_file import evaluation_tasks

ROWS = [
    {"query": "What is $2^{3}$?", "ans_box": "8", "data_source": "made_up", "qid": 3, "source": "made_up"},
    {"query": "A right angle and a half, in degrees?", "ans_box": r"135^\circ", "qid": 7, "source": "made_up"},
    {"query": r"Find $\frac{1}{3}+\frac{1}{6}$.", "ans_box": r"\frac{1}{2}", "qid": 9, "source": "made_up"},
]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    return path


def test_the_fields_of_a_file_of_competition_problems_are_found(tmp_path: Path) -> None:
    tasks = evaluation_tasks(write(tmp_path / "aime.jsonl", ROWS))
    assert [task.id for task in tasks] == ["jsonl:aime:3", "jsonl:aime:7", "jsonl:aime:9"]
    assert [task.question for task in tasks] == [row["query"] for row in ROWS]
    assert tasks.tasks[1].answer == r"135^\circ"
    assert tasks.tasks[0].metadata == {"data_source": "made_up", "source": "made_up"}


@pytest.mark.parametrize("said", ["135", r"135^\circ", r"135^{\circ}", "135°", "135 degrees", r"\boxed{135^\circ}"])
def test_an_answer_in_degrees_is_right_however_it_is_written(tmp_path: Path, said: str) -> None:
    reference = evaluation_tasks(write(tmp_path / "f.jsonl", ROWS)).tasks[1].answer
    assert reference is not None
    assert grade_math(said, reference).right
    assert not grade_math(said.replace("135", "136"), reference).right


@pytest.mark.parametrize(
    ("row", "question", "answer"),
    [
        ({"question": "q", "answer": 4}, "q", "4"),
        ({"problem": "p", "answer": "4", "solution": "long"}, "p", "4"),
        ({"input": "i", "query": "q", "ans_box": "1", "answer": "2"}, "q", "1"),
        ({"input": "i", "query": "", "final_answer": "2"}, "i", "2"),  # a field that is empty somewhere is passed over
    ],
)
def test_names_are_tried_in_a_fixed_order(tmp_path: Path, row: dict[str, Any], question: str, answer: str) -> None:
    (task,) = evaluation_tasks(write(tmp_path / "f.jsonl", [row]))
    assert (task.question, task.answer) == (question, answer)


def test_fields_may_be_named_and_an_answer_cut_out(tmp_path: Path) -> None:
    row = {"text": "q", "query": "other", "work": "3 and 1 #### 4"}
    path = write(tmp_path / "f.jsonl", [row])
    (task,) = evaluation_tasks(path, question="text", answer="work", answer_pattern=r"#### (\d+)")
    assert (task.question, task.answer) == ("q", "4")


def test_ids_that_repeat_are_not_taken(tmp_path: Path) -> None:
    rows = [{"query": "a", "answer": "1", "qid": 1}, {"query": "b", "answer": "2", "qid": 1}]
    assert [task.id for task in evaluation_tasks(write(tmp_path / "f.jsonl", rows))] == ["jsonl:f:1", "jsonl:f:2"]


def test_a_field_that_is_not_found_is_asked_for_with_those_that_there_are(tmp_path: Path) -> None:
    path = write(tmp_path / "f.jsonl", [{"query": "a", "answer": "1"}, {"query": "b", "reply": "2"}])
    with pytest.raises(
        TaskError, match=r"for the answer in every row .*fields there: answer, query, reply\); name it "
    ):
        evaluation_tasks(path)
    with pytest.raises(TaskError, match="line 1: no field 'anser' for the answer; did you mean 'answer'"):
        evaluation_tasks(path, answer="anser")


def test_a_file_without_rows_and_one_that_is_not_there_are_told(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="holds no row; wanted one JSON object a line, such as"):
        evaluation_tasks(write(tmp_path / "f.jsonl", []))
    with pytest.raises(TaskError, match="cannot be read"):
        evaluation_tasks(tmp_path / "none.jsonl")
