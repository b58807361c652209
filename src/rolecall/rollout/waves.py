"""How calls reach the engine: each at once, or in waves.

In a wave, calls are admitted when all live episodes wait for a reply: they are sorted by task, episode, key and
candidate and handed over as one list, and their replies are delivered in that order. So what a batch holds does not
depend on how long anything took. With nothing held back, the engine batches calls as they come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rolecall.engines.base import Engine, Request
from rolecall.errors import CallTimeout, EngineError, RolecallError, boundary
from rolecall.records import Completion, Key
from rolecall.rollout.loop import EpisodeLoop


@dataclass(kw_only=True, slots=True, eq=False)
class Pending:
    """A call that waits for its reply; `order` is the place of its episode among those of the step."""

    order: tuple[int, int]
    key: Key
    level: int
    request: Request
    prompt_hash: str
    sampling_hash: str
    about: str | None
    parent: str | None
    deadline_s: float | None
    reply: asyncio.Future[Completion | RolecallError]
    timer: asyncio.TimerHandle | None = None
    task: asyncio.Task[Any] | None = field(default=None)

    @property
    def place(self) -> tuple[tuple[int, int], Key, int]:
        return (self.order, self.key, self.request.candidate)

    def give(self, reply: Completion | RolecallError) -> None:
        if self.timer is not None:
            self.timer.cancel()
        if not self.reply.done():
            self.reply.set_result(reply)

    def start_clock(self, loop: EpisodeLoop, then: Callable[[Pending], None]) -> None:
        """The deadline counts from the moment when the call is handed to the engine."""
        if self.deadline_s is not None:
            self.timer = loop.deadline(self.deadline_s, then, self)

    def late(self) -> CallTimeout:
        return CallTimeout(f"{self.key} had no reply within {self.deadline_s:g} s; raise the role's deadline_s")


class Owner(Protocol):
    """What a port knows of an episode: the calls that wait, and how many effects run."""

    pending: dict[Key, Pending]
    num_effects: int


class Port(Protocol):
    """Where a session hands in its calls."""

    def enter(self, owner: Owner) -> None:
        """An episode begins."""
        ...

    def leave(self, owner: Owner) -> None:
        """An episode has ended."""
        ...

    def waits_for_others(self, owner: Owner) -> bool:
        """Whether an episode only waits until other episodes let the next wave go: that is not its own time."""
        ...

    def submit(self, pending: Pending) -> None: ...

    def withdraw(self, pending: Pending) -> None:
        """Nobody waits for this call any more."""
        ...


class FrontierPort:
    """Takes calls and answers none: the calls of an episode that is run up to its frontier."""

    def enter(self, owner: Owner) -> None:
        return

    def leave(self, owner: Owner) -> None:
        return

    def waits_for_others(self, owner: Owner) -> bool:
        return False

    def submit(self, pending: Pending) -> None:
        return

    def withdraw(self, pending: Pending) -> None:
        return


class EnginePort:
    """What both ways share: an engine that raises (rather than answering with an `EngineError`) breaks the run."""

    def __init__(self, engine: Engine, loop: EpisodeLoop, broken: Callable[[BaseException], None]) -> None:
        self.engine, self.loop, self.broken = engine, loop, broken
        self.num_calls = 0
        self.num_batches = 0
        self.live: set[Owner] = set()

    def enter(self, owner: Owner) -> None:
        self.live.add(owner)

    def leave(self, owner: Owner) -> None:
        self.live.discard(owner)

    def waits_for_others(self, owner: Owner) -> bool:
        return False

    async def ask(self, batch: Sequence[Pending]) -> None:
        self.num_calls += len(batch)
        self.num_batches += 1
        try:
            with boundary(EngineError, "the engine"):
                replies = await self.engine.generate([pending.request for pending in batch])
            if len(replies) != len(batch):
                raise EngineError(f"the engine answered {len(batch)} requests with {len(replies)} replies")
        except RolecallError as error:
            self.broken(error)
            return
        for pending, reply in zip(batch, replies, strict=True):
            pending.give(reply)


class ContinuousPort(EnginePort):
    """Each call goes to the engine at once; one that is late or withdrawn is cancelled there."""

    def submit(self, pending: Pending) -> None:
        pending.task = self.loop.detached(self.ask((pending,)))
        pending.start_clock(self.loop, self._expire)

    def withdraw(self, pending: Pending) -> None:
        if pending.timer is not None:
            pending.timer.cancel()
        if pending.task is not None and not pending.task.done():
            pending.task.cancel()

    def _expire(self, pending: Pending) -> None:
        pending.give(pending.late())
        self.withdraw(pending)


class WavePort(EnginePort):
    """Calls wait until every live episode waits; then all go to the engine in one sorted list."""

    def __init__(self, engine: Engine, loop: EpisodeLoop, broken: Callable[[BaseException], None]) -> None:
        super().__init__(engine, loop, broken)
        self.queue: set[Pending] = set()
        self.wave: asyncio.Task[None] | None = None
        self.asked: list[Pending] = []
        self.excused: dict[Owner, tuple[int, int]] = {}

    def submit(self, pending: Pending) -> None:
        self.queue.add(pending)

    def withdraw(self, pending: Pending) -> None:
        self.queue.discard(pending)
        if pending.timer is not None:
            pending.timer.cancel()

    def leave(self, owner: Owner) -> None:
        super().leave(owner)
        self.excused.pop(owner, None)

    def waits_for_others(self, owner: Owner) -> bool:
        if not self._queued(owner):
            return False
        progress = (self.num_batches, len(self.live))
        if self.excused.get(owner) == progress and all(self._queued(other) for other in self.live):
            return False  # all wait, and nothing has moved since the last time: one of them keeps the loop busy
        self.excused[owner] = progress
        return True

    def at_idle(self) -> bool:
        """Admit a wave if no episode can go on without one; told by the loop's selector.

        A wave ends when the engine has answered, or when nobody waits for it any more (deadlines passed).
        """
        if not self.queue or self.loop.num_effects or self.loop.holds():
            return False
        if self.wave is not None and not self.wave.done():
            if not all(pending.reply.done() for pending in self.asked):
                return False
            self.wave.cancel()
        self.asked = sorted(self.queue, key=lambda pending: pending.place)
        self.queue.clear()
        for pending in self.asked:
            pending.start_clock(self.loop, lambda late: late.give(late.late()))
        self.wave = self.loop.detached(self.ask(self.asked))
        return True

    def _queued(self, owner: Owner) -> bool:
        if owner.num_effects or self.loop.holds(owner):
            return False
        return bool(owner.pending) and all(pending in self.queue for pending in owner.pending.values())
