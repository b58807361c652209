"""Groups that are scored and wait for the learner, by how soon they have to be trained."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from rolecall.pipeline.rows import Group


@dataclass(slots=True)
class Complete:
    """A heap a policy, its oldest group first. Versions of two policies are not on one scale (one that is frozen stays
    at 0), so that only `slack`, how many more versions a group may wait, says which policy's comes first."""

    rows: int = 0
    _heaps: dict[str, list[tuple[int, int, Group]]] = field(default_factory=dict)
    _order: Iterator[int] = field(default_factory=itertools.count)

    def __len__(self) -> int:
        return sum(map(len, self._heaps.values()))

    def push(self, group: Group) -> None:
        heapq.heappush(self._heaps.setdefault(group.policy, []), (group.oldest, next(self._order), group))
        self.rows += len(group.rows)

    def first(self, slack: Callable[[Group], float]) -> Group | None:
        """The group with the least slack; of equals the one that was complete first."""
        heads = [heap[0] for heap in self._heaps.values() if heap]
        return min(heads, key=lambda head: (slack(head[2]), head[1]))[2] if heads else None

    def pop(self, policy: str) -> Group:
        """Take the first group of a policy."""
        group = heapq.heappop(self._heaps[policy])[2]
        self.rows -= len(group.rows)
        return group

    def take_all(self) -> list[Group]:
        """Take every group, in the order of their places."""
        found = [group for heap in self._heaps.values() for _, _, group in heap]
        self._heaps.clear()
        self.rows = 0
        return sorted(found, key=lambda group: group.place)
