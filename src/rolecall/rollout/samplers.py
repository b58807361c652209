"""Which episodes are run for comparison: a sampler turns the tasks of a step into plans, and names the denominator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from rolecall.errors import ConfigError
from rolecall.records import Task


@dataclass(frozen=True, kw_only=True, slots=True)
class EpisodePlan:
    """One episode to be run: `index` tells the episodes of a task apart, `order` is the place of the task in the step.
    `partners`: roles that play another policy than the table's, and which.

    >>> EpisodePlan(task=Task(id="t", question="1+1", answer="2"), index=0).order
    0
    """

    task: Task
    index: int
    order: int = 0
    partners: Mapping[str, str] = field(default_factory=dict)


class Sampler(Protocol):
    """`denominator` names what rates are over: episodes, chains or calls started."""

    @property
    def denominator(self) -> str: ...

    def plans(self, tasks: Sequence[Task]) -> tuple[EpisodePlan, ...]: ...


@dataclass(frozen=True, kw_only=True)
class IndependentEpisodes:
    """`n` episodes of each task, which know nothing of each other."""

    denominator: ClassVar[str] = "episodes"

    n: int = 8

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ConfigError(f"n is {self.n} episodes a task; wanted 1 or more")

    def plans(self, tasks: Sequence[Task]) -> tuple[EpisodePlan, ...]:
        """The plans of a step, by task and index; all episodes of a task hold the same task object."""
        return tuple(
            EpisodePlan(task=task, index=index, order=order)
            for order, task in enumerate(tasks)
            for index in range(self.n)
        )
