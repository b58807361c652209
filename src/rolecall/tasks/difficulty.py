"""The difficulty filter: tasks that a policy solves sometimes, 0 < pass@k < 1, and neither always nor never.

Where all k answers of a task are right, or none is, peers' rewards do not differ and the task trains nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rolecall.errors import TaskError, boundary
from rolecall.records import Task
from rolecall.tasks.base import TaskSource


class Tries(NamedTuple):
    """How often a task was tried and how often it was solved; tries whose grade failed are in neither."""

    right: int
    num: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Filtered:
    """Ids of the tasks kept, and counts of why the others went; `untried` ones have fewer than `k` graded tries."""

    kept: tuple[str, ...]
    never: int
    always: int
    untried: int

    def report(self) -> dict[str, int]:
        return {"kept": len(self.kept), "never": self.never, "always": self.always, "untried": self.untried}


def filter_by_difficulty(
    ids: Iterable[str], tries: Mapping[str, Tries], *, k: int, low: float = 0.0, high: float = 1.0
) -> Filtered:
    """Keep the tasks whose share of right tries lies strictly between `low` and `high`: 0 < pass@k < 1 by default.

    A task with fewer than `k` graded tries is left out and counted: it is not known to be in between.
    """
    if k < 2:
        raise TaskError(f"difficulty filter k is {k}; wanted at least 2 tries, since one is always all or nothing")
    if not 0 <= low < high <= 1:
        raise TaskError(f"difficulty filter bounds are {low} and {high}; wanted 0 <= low < high <= 1")
    kept: list[str] = []
    counts = {"never": 0, "always": 0, "untried": 0}
    for task in ids:
        tried = tries.get(task, Tries(0, 0))
        if tried.num < k:
            counts["untried"] += 1
        elif tried.right / tried.num <= low:
            counts["never"] += 1
        elif tried.right / tried.num >= high:
            counts["always"] += 1
        else:
            kept.append(task)
    return Filtered(kept=tuple(kept), **counts)


def tries_of_run(run: str | Path, *, steps: tuple[int, int] | None = None) -> dict[str, Tries]:
    """Tries by task id from the episodes of a run folder (`steps`: first and last one, both included), or from one
    file of episodes: `evaluations/NAME.parquet`, which `rolecall evaluate RUN --save NAME` writes.

    An episode that failed is a try that was not solved; one whose grader failed is no try.
    """
    import pyarrow.parquet as parquet

    path = Path(run)
    files = [path] if path.is_file() else sorted(path.glob("episodes/*.parquet"))
    if not files:
        raise TaskError(f"{str(run)!r} has no episodes/*.parquet; give the folder of a run that trained or evaluated")
    found: dict[str, Tries] = {}
    for file in files:
        with boundary(TaskError, f"reading {file}"):
            rows = parquet.read_table(file, columns=["step", "task", "team_score"]).to_pylist()
        for row in rows:
            if row["team_score"] is None or (steps and not steps[0] <= row["step"] <= steps[1]):
                continue
            tried = found.get(row["task"], Tries(0, 0))
            found[row["task"]] = Tries(tried.right + (row["team_score"] == 1.0), tried.num + 1)
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Chosen:
    """The tasks of `source` that a filter kept: those whose ids are in `ids` (`read_ids`)."""

    source: TaskSource
    ids: frozenset[str]

    @property
    def label(self) -> str:
        return f"{self.source.label}, chosen"

    @property
    def generated(self) -> bool:
        return self.source.generated

    @property
    def evaluation_only(self) -> bool:
        return bool(getattr(self.source, "evaluation_only", False))

    def tasks(self) -> Iterator[Task]:
        return (task for task in self.source.tasks() if task.id in self.ids)


def read_ids(path: str | Path) -> frozenset[str]:
    """Ids from a JSON list or an object with a list `ids`."""
    with boundary(TaskError, f"reading task ids from {str(path)!r}"):
        data: Any = json.loads(Path(path).read_text(encoding="utf-8"))
        ids = data["ids"] if isinstance(data, Mapping) else data
    if not isinstance(ids, list) or not all(isinstance(one, str) for one in ids):
        raise TaskError(f'{str(path)!r} holds no list of ids; wanted ["id", ...] or {{"ids": [...]}}')
    return frozenset(ids)
