"""What may be generated next, in the order of the schedule: rows of started groups, then groups not started yet."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from rolecall.pipeline.rows import Group, Row


@dataclass(kw_only=True, slots=True)
class Ready:
    """Two heaps and what the next tick brings. `order` is that of the schedule (`Schedule.order`)."""

    order: str
    fresh_rows: int = 0  # of groups that have not started
    next_rows: list[Row] = field(default_factory=list)
    next_groups: list[Group] = field(default_factory=list)
    _begun: list[tuple[tuple[int, ...], Row]] = field(default_factory=list)  # no bound holds them back
    _fresh: list[tuple[tuple[int, ...], Group]] = field(default_factory=list)

    def __len__(self) -> int:
        """Rows that may start now."""
        return len(self._begun) + self.fresh_rows

    @property
    def num_waiting(self) -> int:
        """Rows that wait for the next tick."""
        return len(self.next_rows) + sum(len(group.rows) for group in self.next_groups)

    @property
    def has_begun(self) -> bool:
        """Whether a row of a started group may go on."""
        return bool(self._begun)

    @property
    def fresh(self) -> Group | None:
        """The first group that has not started."""
        return self._fresh[0][1] if self._fresh else None

    def push(self, row: Row) -> None:
        heapq.heappush(self._begun, ((*self._priority(row.group), row.number), row))

    def pop(self) -> Row:
        return heapq.heappop(self._begun)[1]

    def line_up(self, group: Group) -> None:
        heapq.heappush(self._fresh, (self._priority(group), group))
        self.fresh_rows += len(group.rows)

    def begin(self) -> Group:
        """Take the first group that has not started; its rows may start."""
        group = heapq.heappop(self._fresh)[1]
        self.fresh_rows -= len(group.rows)
        for row in group.rows:
            self.push(row)
        return group

    def open_tick(self) -> None:
        """What waited for the next tick may start."""
        rows, groups = self.next_rows, self.next_groups
        self.next_rows, self.next_groups = [], []
        for row in rows:
            self.push(row)
        for group in groups:
            self.line_up(group)

    def _priority(self, group: Group) -> tuple[int, ...]:
        """Smaller goes first; the place at the end makes it unique."""
        if self.order == "deepest_first":
            return (-group.stage, *group.place)
        if self.order == "oldest_first":
            return group.place
        return (group.stage, *group.place)
