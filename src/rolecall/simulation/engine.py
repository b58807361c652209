"""An engine as a cost model: its rows advance together, a token at a time, on a clock of their own.

All rows of a batch move at one rate, which depends on how many they are. So a row that starts when the engine's clock
stands at c tokens, with m tokens to go, ends when it stands at c + m, however the rate changes until then: ends are
kept on a heap, and a row that comes or goes changes the rate and nothing else. Reading a prompt, loading weights and
computing keys and values anew make the clock stand still.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

from rolecall.pipeline.scheduler import Row


@dataclass(slots=True)
class EngineTimes:
    """Seconds of one engine. `held_s`: with rows, or while new weights are loaded; of them `stalled_s`: the clock stood
    still for prompts, weights, or keys and values computed anew. `rows_s`: rows times seconds."""

    held_s: float = 0.0
    stalled_s: float = 0.0
    rows_s: float = 0.0


class SimulatedEngine:
    """`seconds`: seconds of one token of every row, by the number of rows; `prompt_token_s`: of a token of a prompt."""

    __slots__ = (
        "_prompt_token_s",
        "_seconds",
        "_sequence",
        "_since",
        "active",
        "clock",
        "decoded",
        "ends",
        "epoch",
        "free_at",
        "now",
        "number",
        "prompt_s",
        "roles",
        "times",
        "watcher",
    )

    def __init__(
        self, number: int, seconds: Sequence[float], prompt_token_s: float, watcher: EngineWatcher | None = None
    ) -> None:
        self.number = number
        self.now = 0.0
        self.clock = 0.0  # tokens that a row has got that was there all the time
        self.free_at = 0.0  # the clock stands still until then
        self.ends: list[tuple[float, int, Row, float]] = []  # clock at the end, order of coming, row, what it began at
        self.active = 0
        self.epoch = 0  # an event that was announced in an earlier one is void
        self.decoded = 0.0
        self.prompt_s = 0.0  # seconds for prompts, read for the first time
        self.times = EngineTimes()
        self.watcher = watcher
        self.roles: dict[str, int] = {}
        self._seconds, self._prompt_token_s = seconds, prompt_token_s
        self._since = 0.0  # sum over the rows of what the clock said when they had no token of prompt or completion
        self._sequence = 0

    def advance(self, now: float) -> None:
        """Let time pass until `now`."""
        if now <= self.now:
            return
        passed, stalled = now - self.now, min(now, self.free_at) - self.now
        stalled = max(0.0, stalled)
        if self.watcher is not None:
            self.watcher.engine(self.number, self.now, now, self.now + stalled, self.roles)
        if self.active:
            self.times.held_s += passed
            self.times.rows_s += passed * self.active
            self._move((passed - stalled) / seconds if (seconds := self._seconds[self.active]) else 0.0)
        else:
            self.times.held_s += stalled
        self.times.stalled_s += stalled
        self.now = now

    def add(self, now: float, row: Row, tokens: int, prompt_tokens: int) -> None:
        """A row comes for `tokens` more; its prompt, and what it has of a completion already, are read first."""
        self.advance(now)
        if not self.active:
            self.clock = self._since = 0.0
        read = prompt_tokens + row.tokens
        self.stall(now, read * self._prompt_token_s)
        if not row.tokens:
            self.prompt_s += read * self._prompt_token_s
        began = self.clock - read
        self._since += began
        self._sequence += 1
        heapq.heappush(self.ends, (self.clock + tokens, self._sequence, row, began))
        self.active += 1
        if self.watcher is not None:
            role = row.group.role
            self.roles[role] = self.roles.get(role, 0) + 1

    def stall(self, now: float, seconds: float) -> None:
        """The clock stands still for so long, after whatever it stands still for already."""
        self.free_at = max(now, self.free_at) + seconds

    def load(self, now: float, seconds: float, *, recompute: bool) -> None:
        """New weights: rows wait, then go on; their keys and values are computed anew where `recompute` says so."""
        self.advance(now)
        tokens = self.active * self.clock - self._since if recompute else 0.0
        self.stall(now, seconds + tokens * self._prompt_token_s)

    def next_end(self) -> float:
        """When the next row ends if none comes before; infinity without rows."""
        if not self.ends:
            return math.inf
        return max(self.now, self.free_at) + max(0.0, self.ends[0][0] - self.clock) * self._seconds[self.active]

    def take_ended(self, now: float) -> list[Row]:
        """The rows that end at `now`, the time that `next_end` said."""
        self.advance(now)
        first = self.ends[0][0]
        self._move(first - self.clock)  # what rounding left
        ended = []
        while self.ends and self.ends[0][0] <= first:
            _, _, row, began = heapq.heappop(self.ends)
            self._since -= began
            ended.append(row)
        self.active -= len(ended)
        if self.watcher is not None:
            for row in ended:
                self.roles[row.group.role] -= 1
        return ended

    def _move(self, tokens: float) -> None:
        self.clock += tokens
        self.decoded += tokens * self.active


class EngineWatcher:
    """Is told what engines do, for a picture."""

    def engine(self, number: int, begin_s: float, end_s: float, stalled_until_s: float, roles: dict[str, int]) -> None:
        """From `begin_s` to `end_s` an engine had so many rows by role; until `stalled_until_s` they stood still."""


class Fleet:
    """Engines alike; a row goes to one that has the fewest. Engines are kept by how many rows they have, so that
    finding one looks at no other."""

    def __init__(self, engines: Sequence[SimulatedEngine], slots: int) -> None:
        self.engines, self.slots = list(engines), slots
        self.free = slots * len(self.engines)
        self._by_rows: list[dict[int, None]] = [{} for _ in range(slots + 1)]
        self._by_rows[0] = dict.fromkeys(range(len(self.engines)))
        self._fewest = 0

    def take(self) -> SimulatedEngine:
        """The engine that a row goes to; the row must be added to it."""
        assert self.free > 0
        while not self._by_rows[self._fewest]:
            self._fewest += 1
        number = next(iter(self._by_rows[self._fewest]))
        del self._by_rows[self._fewest][number]
        self._by_rows[self._fewest + 1][number] = None
        self.free -= 1
        return self.engines[number]

    def give_back(self, engine: SimulatedEngine, rows: int) -> None:
        """So many rows of an engine have ended, and are no longer counted there."""
        before = engine.active + rows
        del self._by_rows[before][engine.number]
        self._by_rows[engine.active][engine.number] = None
        self.free += rows
        self._fewest = min(self._fewest, engine.active)
