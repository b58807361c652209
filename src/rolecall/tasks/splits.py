"""Which task is in which split: by a hash of its question alone, so that held out stays held out.

A question's split depends on nothing but its text and the rule: not on the order, the size or the seed of the source.
The same text is in the same split everywhere, in two sources or two runs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from rolecall.errors import TaskError
from rolecall.records import Task
from rolecall.tasks.base import TaskSet, TaskSource, TaskSplits, is_evaluation_only

Split = Literal["train", "validation", "test"]


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitRule:
    """Test are the questions whose first byte of sha256 is in the lowest share of 256, validation those in the next.

    Shares are rounded to 1/256: 0.1 is 26 bytes. `seed=0` hashes the question alone; another seed is hashed before it
    and gives another partition.

    >>> SplitRule().split("12*x+7=91")
    'train'
    """

    test_share: float = 0.1
    validation_share: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        for name, share in (("test_share", self.test_share), ("validation_share", self.validation_share)):
            if not 0 <= share < 1 or (share > 0 and round(share * 256) == 0):
                raise TaskError(f"split rule: {name} is {share}; wanted 0, or at least 1/256 and less than 1")
        if self.num_test + self.num_validation >= 256:
            raise TaskError(
                f"split rule: test_share {self.test_share} and validation_share {self.validation_share} leave nothing "
                f"to train on; their sum must be below 1"
            )

    @property
    def num_test(self) -> int:
        return round(self.test_share * 256)

    @property
    def num_validation(self) -> int:
        return round(self.validation_share * 256)

    def split(self, question: str) -> Split:
        text = question if self.seed == 0 else f"{self.seed}\x1f{question}"
        byte = hashlib.sha256(text.encode()).digest()[0]
        if byte < self.num_test:
            return "test"
        return "validation" if byte < self.num_test + self.num_validation else "train"

    def __str__(self) -> str:
        return (
            f"sha256 of the question, seed {self.seed}: {self.num_test} test, {self.num_validation} validation of 256"
        )


class _Sorter:
    """Puts tasks into splits until each has its size."""

    def __init__(self, sizes: dict[Split, int], rule: SplitRule) -> None:
        self.sizes = sizes
        self.rule = rule
        self.found: dict[Split, list[Task]] = {"train": [], "validation": [], "test": []}
        self.ids: set[str] = set()
        self.questions: set[str] = set()
        self.held_out: set[str] = set()
        self.own: set[Split] = set()  # splits that came from sources of their own
        self.num_read = self.num_duplicates = self.num_unused = self.num_held_back = 0

    def take_own(self, split: Split, source: TaskSource) -> None:
        """Fill a held-out split from its own source, in that source's order (size 0: all of it)."""
        for task in islice(self._distinct(source), self.sizes[split] or None):
            self.found[split].append(task)
            self.held_out.add(task.question)
        self.own.add(split)

    def take(self, source: TaskSource) -> None:
        """Fill the other splits by the rule; stops reading as soon as they are full (train 0: reads everything)."""
        for task in self._distinct(source):
            if task.question in self.held_out:
                self.num_held_back += 1
                continue
            split = self.rule.split(task.question)
            split = "train" if split in self.own else split
            if (split == "train" and self.sizes["train"] == 0) or len(self.found[split]) < self.sizes[split]:
                self.found[split].append(task)
            else:
                self.num_unused += 1
            if self.sizes["train"] and self._full():
                return

    def _full(self) -> bool:
        return all(len(self.found[split]) >= size for split, size in self.sizes.items() if split not in self.own)

    def _distinct(self, source: TaskSource) -> Iterator[Task]:
        for task in source.tasks():
            self.num_read += 1
            if task.id in self.ids:
                raise TaskError(
                    f"{source.label}: two tasks have the id {task.id!r}; ids must be unique in a run: when two files "
                    f"have one name, rename one of them"
                )
            self.ids.add(task.id)
            if source.generated and task.question in self.questions:
                self.num_duplicates += 1
                continue
            self.questions.add(task.question)
            yield task

    def check(self, source: TaskSource) -> None:
        for split, wanted in self.sizes.items():
            got = len(self.found[split])
            if got < max(wanted, 1 if split == "train" else 0):
                where = "its own source" if split in self.own else str(self.rule)
                raise TaskError(
                    f"{source.label}: the {split} split has {got} tasks; wanted {wanted or 'at least 1'}. "
                    f"{self.num_read} tasks were read, {self.num_duplicates} of them repeated a question ({where}). "
                    f"Lower sizes.{split}, give the source more tasks, or give {split} a larger share"
                )


def load_tasks(
    source: TaskSource,
    *,
    train: int,
    validation: int,
    test: int,
    rule: SplitRule | None = None,
    validation_source: TaskSource | None = None,
    test_source: TaskSource | None = None,
) -> TaskSplits:
    """Read a source into disjoint splits of the given sizes; `train=0` takes all that there is.

    A held-out split with a source of its own is taken from there, and questions of it are kept out of the training
    set. `TaskError` when a split gets fewer tasks than asked for, or `source` is for evaluation only.
    """
    for name, size in (("train", train), ("validation", validation), ("test", test)):
        if size < 0:
            raise TaskError(f"{source.label}: sizes.{name} is {size}; wanted 0 or more")
    if is_evaluation_only(source):
        raise TaskError(
            f"{source.label} is for evaluation only, and its tasks may not be trained on; name it as the source of the "
            f"test or validation set ([tasks.test_from], [tasks.validation_from]), and another one as [tasks]"
        )
    rule = rule or SplitRule()
    sorter = _Sorter({"train": train, "validation": validation, "test": test}, rule)
    if test_source is not None:
        sorter.take_own("test", test_source)
    if validation_source is not None:
        sorter.take_own("validation", validation_source)
    sorter.take(source)
    sorter.check(source)
    return TaskSplits(
        train=TaskSet.of("train", sorter.found["train"], str(rule)),
        validation=TaskSet.of("validation", sorter.found["validation"], str(rule)),
        test=TaskSet.of("test", sorter.found["test"], str(rule)),
        num_duplicates=sorter.num_duplicates,
        num_unused=sorter.num_unused,
        num_held_back=sorter.num_held_back,
    )
