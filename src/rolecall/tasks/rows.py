"""Tasks from rows with named fields: what JSONL files and hub datasets have in common."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rolecall.errors import TaskError, boundary, nearest
from rolecall.records import Task

MISSING: Any = object()


class ExactFloat(float):
    """A float that remembers how it was written, so that the answer 0.10 stays "0.10"."""

    text: str

    def __new__(cls, text: str) -> ExactFloat:
        value = super().__new__(cls, text)
        value.text = text
        return value

    def __reduce__(self) -> tuple[type[ExactFloat], tuple[str]]:
        return ExactFloat, (self.text,)


class Row(NamedTuple):
    """One row: its number in the data, where it stands for messages, its fields."""

    number: int
    place: str
    fields: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class RowSource:
    """The knobs of every source made of rows.

    `question`, `answer`, `id` name fields (a dotted name reaches into nested ones: `reward_model.ground_truth`).
    `answer_pattern`: a regular expression with one group; the last match in the field is the answer (`#### (.+)`).
    `answer=""`: the tasks have no answers, and `grader` is one that needs none. `where` keeps the rows whose fields
    equal the given values. `evaluation_only`: the rows never enter a training set. All other fields go to the task's
    metadata.
    """

    question: str = "question"
    answer: str = "answer"
    id: str | None = None
    answer_pattern: str | None = None
    where: Mapping[str, Any] = field(default_factory=dict)
    grader: str = "math"
    evaluation_only: bool = False

    def __post_init__(self) -> None:
        if self.answer_pattern is not None:
            with boundary(TaskError, f"answer_pattern {self.answer_pattern!r}"):
                groups = re.compile(self.answer_pattern).groups
            if groups != 1:
                raise TaskError(f"answer_pattern {self.answer_pattern!r} has {groups} groups; wanted one, the answer")
        if not self.answer and self.grader in ("math", "text"):
            raise TaskError(
                f"answer is empty and the grader is {self.grader!r}, which compares with an answer; name "
                f"the answer's field, or another grader"
            )

    @property
    def label(self) -> str:
        raise NotImplementedError

    @property
    def generated(self) -> bool:
        return False

    @property
    def prefix(self) -> str:
        """What ids begin with."""
        raise NotImplementedError

    def rows(self) -> Iterator[Row]:
        raise NotImplementedError

    def tasks(self) -> Iterator[Task]:
        places: dict[str, str] = {}
        num_rows = 0
        for row in self.rows():
            num_rows += 1
            if any(lookup(row.fields, name) != value for name, value in self.where.items()):
                continue
            task = self._task(row)
            if task.id in places:
                raise TaskError(
                    f"{self.label}, {row.place}: the id {task.id!r} is already that of {places[task.id]}; wanted "
                    f"unique ids: correct the data, or leave `id` out to number the rows"
                )
            places[task.id] = row.place
            yield task
        if num_rows == 0:
            raise TaskError(f"{self.label} has no rows; wanted at least one task")
        if not places:
            raise TaskError(f"{self.label}: none of {num_rows} rows has {dict(self.where)}; check `where`")

    def _task(self, row: Row) -> Task:
        question = self._field(row, self.question, "question")
        if not isinstance(question, str) or not question.strip():
            raise TaskError(f"{self.label}, {row.place}: {self.question} is {brief(question)}; wanted a text")
        used = {self.question, self.answer, self.id}
        return Task(
            id=self._id(row),
            question=question,
            answer=self._answer(row, self.answer) if self.answer else None,
            source=self.label,
            grader=self.grader,
            metadata={name: value for name, value in row.fields.items() if name not in used},
        )

    def _field(self, row: Row, name: str, knob: str) -> Any:
        value = lookup(row.fields, name)
        if value is MISSING:
            raise TaskError(
                f"{self.label}, {row.place}: no field {name!r} for the {knob}{nearest(name, row.fields)}; set "
                f'{knob} = "<field>" in [tasks]'
            )
        return value

    def _id(self, row: Row) -> str:
        if self.id is None:
            return f"{self.prefix}:{row.number}"
        value = self._field(row, self.id, "id")
        if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
            raise TaskError(f"{self.label}, {row.place}: {self.id} is {brief(value)}; wanted a text or an integer")
        return f"{self.prefix}:{value}"

    def _answer(self, row: Row, name: str) -> str:
        value = self._field(row, name, "answer")
        text = answer_text(value)
        if text is None or not text.strip():
            raise TaskError(
                f"{self.label}, {row.place}: {name} is {brief(value)}; wanted a text or a number: correct the row, or "
                f"leave it out with `where`"
            )
        if self.answer_pattern is None:
            return text
        found = re.findall(self.answer_pattern, text)
        if not found:
            raise TaskError(
                f"{self.label}, {row.place}: answer_pattern {self.answer_pattern!r} matches nothing in {brief(text)}"
            )
        return str(found[-1]).strip()


def answer_text(value: Any) -> str | None:
    """An answer as text: texts and finite numbers have one (numbers as they were written), nothing else has."""
    if isinstance(value, str):
        return value
    if isinstance(value, ExactFloat):
        return value.text
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return str(value)


def lookup(fields: Mapping[str, Any], name: str) -> Any:
    """A field by its name, or by a dotted path through nested ones; `MISSING` when it is not there."""
    if name in fields:
        return fields[name]
    value: Any = fields
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return MISSING
        value = value[part]
    return value


def brief(value: Any) -> str:
    """A value and its type for a message, shortened."""
    text = repr(value)
    text = text if len(text) <= 80 else text[:77] + "..."
    return f"{text} ({'null' if value is None else type(value).__name__})"
