"""What a source of tasks is, and the sets that a run trains and is measured on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from rolecall.errors import CheckpointError
from rolecall.records import Task


class TaskSource(Protocol):
    """Yields tasks in a fixed order, lazily, with ids that are unique and the same in every run.

    `generated`: the tasks are drawn at random, so that a second one with the same question is a repetition and is left
    out (counted). Tasks of a data file are kept as they are: two with the same text and different ids are two tasks.

    A source may say `evaluation_only = True`: its tasks never enter a training set (`splits.load_tasks` refuses).
    """

    @property
    def label(self) -> str: ...

    @property
    def generated(self) -> bool: ...

    def tasks(self) -> Iterator[Task]: ...


def is_evaluation_only(source: TaskSource) -> bool:
    """Whether a source's tasks are measured on and never trained on."""
    return bool(getattr(source, "evaluation_only", False))


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskSet:
    """Tasks in a fixed order under a name; the fingerprint changes with any id, question, answer or split rule."""

    name: str
    tasks: tuple[Task, ...]
    fingerprint: str

    def __len__(self) -> int:
        return len(self.tasks)

    def __iter__(self) -> Iterator[Task]:
        return iter(self.tasks)

    @classmethod
    def of(cls, name: str, tasks: Iterable[Task], rule: str = "") -> TaskSet:
        tasks = tuple(tasks)
        return cls(name=name, tasks=tasks, fingerprint=fingerprint(tasks, rule))


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskSplits:
    """Three disjoint sets: no question of one is in another.

    `num_duplicates` counts generated tasks that repeated an earlier question; `num_unused` those read but in no split,
    because theirs was full or not asked for; `num_held_back` training tasks whose question is in a held-out set that
    came from a source of its own.
    """

    train: TaskSet
    validation: TaskSet
    test: TaskSet
    num_duplicates: int = 0
    num_unused: int = 0
    num_held_back: int = 0

    def __iter__(self) -> Iterator[TaskSet]:
        return iter((self.train, self.validation, self.test))

    @property
    def fingerprint(self) -> str:
        parts = (self.train.fingerprint, self.validation.fingerprint, self.test.fingerprint)
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def require(self, saved: str) -> None:
        """`CheckpointError` unless a run that saved this fingerprint had the same tasks in the same splits."""
        require_fingerprint(saved, self.fingerprint, "the run's task splits")


def fingerprint(tasks: Iterable[Task], rule: str) -> str:
    """sha256 over the split rule and each task's id, question, answer and grader, in order."""
    digest = hashlib.sha256(rule.encode())
    for task in tasks:
        digest.update(b"\n" + json.dumps([task.id, task.question, task.answer, task.grader]).encode())
    return digest.hexdigest()


def require_fingerprint(saved: str, present: str, what: str) -> None:
    """`CheckpointError` when the tasks at hand are not those that were saved."""
    if saved != present:
        raise CheckpointError(
            f"{what}: the checkpoint was made with tasks {saved[:12]}, the tasks loaded now are {present[:12]}; resume "
            f"with the same source, sizes and split rule (and the same data file), or start a new run"
        )
