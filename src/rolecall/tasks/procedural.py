"""Tasks from the generators of reasoning-gym: by family name and parameters, made as they are asked for."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from rolecall.errors import TaskError, boundary, nearest
from rolecall.records import Task

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?")
PEEK = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class ReasoningGym:
    """A family of reasoning-gym, e.g. `ReasoningGym(family="chain_sum", params={"max_terms": 3})`.

    `size` bounds how many tasks are generated; generation is lazy and stops when the splits are full.
    `question` remakes the question from names of the entry's metadata (`"{equation}"`) and from `{question}`;
    `question_pattern` keeps what its one group matches in the question instead; `drop_spaces` then takes out all white
    space. `grader`: "reasoning_gym" is the dataset's own scorer, "math" is mathematical equality, "auto" is math when
    the family compares strings and its answers are plain numbers, else the scorer.
    """

    family: str = "simple_equations"
    params: Mapping[str, Any] = field(default_factory=dict)
    size: int = 20_000
    seed: int = 0
    question: str | None = None
    question_pattern: str | None = None
    drop_spaces: bool = False
    grader: str = "auto"

    def __post_init__(self) -> None:
        if self.size < 1:
            raise TaskError(f"reasoning_gym size is {self.size}; wanted at least 1")
        if clash := sorted({"size", "seed"} & set(self.params)):
            raise TaskError(f"reasoning_gym params hold {clash}; give them as the source's own knobs")
        if self.question is not None and self.question_pattern is not None:
            raise TaskError("reasoning_gym has both question and question_pattern; give one of them")
        if self.question_pattern is not None:
            with boundary(TaskError, f"reasoning_gym question_pattern {self.question_pattern!r}"):
                groups = re.compile(self.question_pattern).groups
            if groups != 1:
                raise TaskError(
                    f"reasoning_gym question_pattern {self.question_pattern!r} has {groups} groups; wanted one, around "
                    f"the part of the question to keep"
                )

    @property
    def label(self) -> str:
        return f"reasoning_gym {self.family}"

    @property
    def generated(self) -> bool:
        return True

    def tasks(self) -> Iterator[Task]:
        dataset = self._dataset()
        grader = self._choose_grader(dataset) if self.grader == "auto" else self.grader
        for index in range(self.size):
            with boundary(TaskError, f"{self.label}, item {index}"):
                entry = dataset[index]
            answer = entry["answer"]
            if answer is None and grader != "reasoning_gym":
                raise TaskError(
                    f"{self.label}, item {index} has no answer, only a scorer; grader {grader!r} cannot grade it: use "
                    f'grader = "reasoning_gym"'
                )
            yield Task(
                id=f"reasoning_gym:{self.family}:{self.seed}:{index}",
                question=self._question(entry, index),
                answer=None if answer is None else str(answer),
                source=self.label,
                grader=grader,
                metadata={"family": self.family, "params": dict(self.params), "entry": entry},
            )

    def _dataset(self) -> Any:
        import reasoning_gym
        from reasoning_gym.factory import DATASETS

        if self.family not in DATASETS:
            raise TaskError(f"reasoning_gym has no family {self.family!r}{nearest(self.family, DATASETS)}")
        with boundary(TaskError, f"{self.label} with params {dict(self.params)}"):
            return reasoning_gym.create_dataset(self.family, size=self.size, seed=self.seed, **self.params)

    def _choose_grader(self, dataset: Any) -> str:
        """Math where the family only compares strings and its first answers are all plain numbers."""
        from reasoning_gym.dataset import ProceduralDataset

        if type(dataset).score_answer is not ProceduralDataset.score_answer:
            return "reasoning_gym"
        with boundary(TaskError, self.label):
            answers = [dataset[index]["answer"] for index in islice(range(self.size), PEEK)]
        plain = all(isinstance(answer, str) and _NUMBER.fullmatch(answer) for answer in answers)
        return "math" if plain else "reasoning_gym"

    def _question(self, entry: Mapping[str, Any], index: int) -> str:
        question = str(entry["question"])
        if self.question is not None:
            question = fill(self.question, {**entry["metadata"], "question": question}, self.label)
        elif self.question_pattern is not None:
            found = re.search(self.question_pattern, question)
            if found is None or found[1] is None:
                raise TaskError(
                    f"{self.label}, item {index}: question_pattern {self.question_pattern!r} matches nothing in "
                    f"{question!r}"
                )
            question = found[1]
        return "".join(question.split()) if self.drop_spaces else question


def fill(template: str, values: Mapping[str, Any], label: str) -> str:
    """A format string over plain names; what a value holds is never read as template syntax."""
    parts: list[str] = []
    with boundary(TaskError, f"{label}: question {template!r}"):
        parsed = list(string.Formatter().parse(template))
    for text, name, spec, conversion in parsed:
        parts.append(text)
        if name is None:
            continue
        if name not in values:
            raise TaskError(
                f"{label}: question {template!r} names {name!r}, which the entries do not have{nearest(name, values)}"
            )
        if conversion:
            raise TaskError(f"{label}: question {template!r} has a conversion !{conversion}; only names are filled in")
        with boundary(TaskError, f"{label}: question {template!r}"):
            parts.append(format(values[name], spec or ""))
    return "".join(parts)
