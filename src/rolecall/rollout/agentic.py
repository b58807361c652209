"""Agentic groups: G completions of one input as peers, of which k go on (MarsRL, arXiv 2511.11373, section 3.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from rolecall.errors import ConfigError, nearest
from rolecall.records import Task
from rolecall.rollout.samplers import EpisodePlan

POOLS: Mapping[str, str] = {
    "task": "k of all candidates of a stage of one task (groups per task: 1, k, k, ...)",
    "parent": "k of each group (groups per task: 1, k, k^2, ...)",
}
PICKS: Mapping[str, str] = {
    "adaptive": "the preferred class first, then the other",
    "balanced": "as many of one class as of the other",
    "random": "uniformly",
}
CLASSES = ("low", "high")
PREFERENCES: Mapping[str, str] = {"verifier": "low", "corrector": "high"}
"""What each receiving role is given first: a verifier wrong solutions, a corrector reports that were right."""


@dataclass(frozen=True, kw_only=True)
class AgenticGroups:
    """A sampler for workflows whose calls follow one another.

    At each call `n` completions of the one input are drawn as peers and scored by what they claim themselves; `k` of
    those with which the workflow goes on are picked for the next call, for at most `stages` calls on a path. `pool`
    says out of which candidates k are picked: the paper's "two outputs of the preceding agent" reads both ways, and
    `task` is the default. Where the workflow goes on to different calls after different candidates, each of these calls
    gets k of its own. `pick` is the rule, `prefer` the class that a receiving role is given first under the rule
    `adaptive`: "low" rewards or "high" ones, over the paper's table; "none" is no preference.

    >>> AgenticGroups().preference("verifier")
    'low'
    """

    denominator: ClassVar[str] = "calls"

    n: int = 8
    k: int = 2
    stages: int = 5
    pool: str = "task"
    pick: str = "adaptive"
    prefer: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, low in (("n", 2), ("k", 1), ("stages", 1)):
            if getattr(self, name) < low:
                raise ConfigError(f"agentic groups: {name} is {getattr(self, name)}; wanted {low} or more")
        if self.k > self.n:
            raise ConfigError(f"agentic groups: k is {self.k} and a group has n = {self.n}; wanted k of at most n")
        for name, known in (("pool", POOLS), ("pick", PICKS)):
            value = getattr(self, name)
            if value not in known:
                raise ConfigError(f"agentic groups: {name} is {value!r}; wanted one of {', '.join(known)}")
        for role, preferred in self.prefer.items():
            if preferred not in (*CLASSES, "none"):
                raise ConfigError(
                    f"agentic groups: prefer.{role} is {preferred!r}; wanted low, high or none"
                    f"{nearest(str(preferred), (*CLASSES, 'none'))}"
                )

    def preference(self, role: str) -> str | None:
        """The class that a receiving role is given first; None: no preference."""
        preferred = {**PREFERENCES, **self.prefer}.get(role, "none")
        return None if preferred == "none" else preferred

    def plans(self, tasks: Sequence[Task]) -> tuple[EpisodePlan, ...]:
        """One plan a task: the chain that starts with its first call."""
        return tuple(EpisodePlan(task=task, index=0, order=order) for order, task in enumerate(tasks))

    @property
    def max_calls(self) -> int:
        """Most completions of one task whose candidates all go on to one call: `n` for each group, 1 + k (stages - 1)
        groups, or 1 + k + k^2 + ..."""
        if self.pool == "task":
            return self.n * (1 + self.k * (self.stages - 1))
        groups: int = sum(self.k**stage for stage in range(self.stages))
        return self.n * groups
