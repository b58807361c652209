"""What the scheduler moves: rows, the groups that they make, and what it gives the learner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True, eq=False)
class Row:
    """One completion: how far it is, and the policy version of its first token (None: not started)."""

    group: Group
    number: int
    tokens: int = 0
    segments: int = 0
    version: int | None = None
    ended: bool = False
    failed: bool = False
    trained: bool = False

    @property
    def place(self) -> tuple[int, int, int, int]:
        return (*self.group.place, self.number)

    def state(self) -> list[int | None]:
        """Plain data for a checkpoint."""
        flags = [int(self.ended), int(self.failed), int(self.trained)]
        return [self.tokens, self.segments, self.version, *flags]

    def restore(self, state: Sequence[int | None]) -> None:
        tokens, segments, self.version, *flags = state
        self.tokens, self.segments = tokens or 0, segments or 0
        self.ended, self.failed, self.trained = map(bool, flags)


@dataclass(slots=True, eq=False)
class Group:
    """The rows of one input: `chain` numbers the task, `stage` the call in it (from 0), `number` the group there."""

    chain: int
    stage: int
    number: int
    policy: str
    role: str
    rows: list[Row] = field(default_factory=list)
    open: int = 0
    started: bool = False
    oldest: int = 0  # version in force when its first row started
    scored: bool = False  # and what follows from it was submitted
    data: Any = None

    @classmethod
    def of(
        cls, num_rows: int, *, chain: int, stage: int, number: int, policy: str, role: str, data: Any = None
    ) -> Group:
        group = cls(chain=chain, stage=stage, number=number, policy=policy, role=role, open=num_rows, data=data)
        group.rows = [Row(group, index) for index in range(num_rows)]
        return group

    @property
    def place(self) -> tuple[int, int, int]:
        return (self.chain, self.stage, self.number)


@dataclass(frozen=True, slots=True)
class Released:
    """Rows of one group that are trained together, as peers. `staleness` is that of their oldest token (under the rule
    `mask`: of the oldest that is trained); `drop`: it passed the bound, and the rule is not to train them."""

    group: Group
    rows: tuple[Row, ...]
    staleness: int
    drop: bool = False


@dataclass(slots=True)
class Counts:
    """What happened since the run began."""

    admitted: int = 0
    started: int = 0
    segments: int = 0
    ended: int = 0
    failed: int = 0
    released: int = 0
    dropped: int = 0
    updates: int = 0
    max_staleness: int = 0
