"""Tasks from a JSONL file that is evaluated on and never trained on: fields are found, or named.

Files of competition problems agree on the idea and not on the names. Of the names below, the first that every row has,
with a value that fits, is taken: `{"query": ..., "ans_box": "336^\\circ", "qid": 20}` needs no options.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rolecall.errors import TaskError
from rolecall.tasks.base import TaskSet
from rolecall.tasks.jsonl import Jsonl
from rolecall.tasks.rows import Row, answer_text, lookup

QUESTIONS = ("query", "question", "problem", "input")
ANSWERS = ("ans_box", "answer", "final_answer", "expected_answer")
IDS = ("qid", "id")
EXAMPLE = '{"query": "1+1", "ans_box": "2"}'


def evaluation_tasks(
    path: str | Path,
    *,
    question: str | None = None,
    answer: str | None = None,
    answer_pattern: str | None = None,
    grader: str = "math",
) -> TaskSet:
    """The tasks of a JSONL file; `question` and `answer` name its fields where they are not found. `TaskError` names
    the line, or the fields that there are."""
    rows = list(Jsonl(path=str(path)).rows())
    if not rows:
        raise TaskError(f"jsonl {str(path)!r} holds no row; wanted one JSON object a line, such as {EXAMPLE}")
    source = Jsonl(
        path=str(path),
        question=question or _found(path, rows, QUESTIONS, _is_text, "question"),
        answer=answer or _found(path, rows, ANSWERS, _is_answer, "answer"),
        id=next((name for name in IDS if _names_rows(rows, name)), None),
        answer_pattern=answer_pattern,
        grader=grader,
    )
    return TaskSet.of("tasks", source.tasks())


def _found(path: str | Path, rows: Sequence[Row], names: Sequence[str], fits: Callable[[Any], bool], what: str) -> str:
    for name in names:
        if all(fits(lookup(row.fields, name)) for row in rows):
            return name
    there = ", ".join(sorted({field for row in rows for field in row.fields})) or "none"
    raise TaskError(
        f"jsonl {str(path)!r}: no field for the {what} in every row (looked for {', '.join(names)}; fields there: "
        f"{there}); name it with --{what} FIELD"
    )


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_answer(value: Any) -> bool:
    text = answer_text(value)
    return text is not None and bool(text.strip())


def _names_rows(rows: Sequence[Row], name: str) -> bool:
    """Whether a field tells the rows apart."""
    values = [lookup(row.fields, name) for row in rows]
    good = all(isinstance(value, str | int) and not isinstance(value, bool) and value != "" for value in values)
    return good and len(set(map(str, values))) == len(values)
