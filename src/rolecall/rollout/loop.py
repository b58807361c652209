"""An event loop that knows when every coroutine waits, which task belongs to which episode, and how long it lagged.

Three facts are taken from public hooks of asyncio and nothing else:

- *idle*: a loop passes `select(timeout)` a timeout of 0 exactly while callbacks are ready. `IdleSelector` stands in for
  the selector, so a longer timeout (after one look at the sockets) means that nothing can run: watchers are told then.
- *whose*: the task factory makes an `EpisodeTask` of every task that an episode's coroutine creates, so that all of
  them can be cancelled with the episode, and so that a call knows which replies its coroutine has seen.
- *held*: a timer or thread that an episode's coroutine started outside `team.effect` counts against its idleness, as
  the effects that run do (`num_effects`).
"""

from __future__ import annotations

import asyncio
import contextvars
import selectors
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Executor
from typing import Any, NamedTuple, Protocol, TypeVar, TypeVarTuple

from rolecall.errors import UsageError
from rolecall.rollout.watchdog import Watchdog

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Seen(NamedTuple):
    """The deepest call whose reply a coroutine has seen; `turn_id` is that of its last turn ("": none)."""

    level: int = 0
    key: tuple[Any, ...] = ()
    turn_id: str = ""


class Owner(Protocol):
    """The episode that a task belongs to."""

    @property
    def is_waiting(self) -> bool:
        """Whether a call of it waits for a reply."""
        ...


class Branch:
    """One coroutine's place in an episode.

    The level of a call is one more than the deepest level that its coroutine, or a finished coroutine which that one
    started, has seen. Turns in order of (level, key) are in the order of their calls, however long each reply took.
    """

    __slots__ = ("children", "owner", "seen")

    def __init__(self, owner: Owner, seen: Seen = Seen()) -> None:  # noqa: B008 - immutable
        self.owner = owner
        self.seen = seen
        self.children: list[EpisodeTask[Any]] = []

    def observed(self) -> Seen:
        """What was seen so far, by finished children included."""
        if self.children:
            running = []
            for child in self.children:
                if child.done():
                    self.seen = max(self.seen, child.branch.observed())
                else:
                    running.append(child)
            self.children = running
        return self.seen

    def cancel(self) -> None:
        """Cancel every task below this one that still runs."""
        for child in self.children:
            child.branch.cancel()
            if not child.done():
                child.cancel()


class EpisodeTask(asyncio.Task[T]):
    """A task that runs in an episode; the tasks it creates do too."""

    branch: Branch


class Held:
    """A timer or thread of a workflow's own; alive until it has fired, was cancelled or is done.

    A timer beside a call that waits (a timeout around a reply) holds nothing up, or the reply would never come.
    """

    __slots__ = ("fired", "handle", "owner")

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.handle: asyncio.TimerHandle | None = None
        self.fired = False

    @property
    def alive(self) -> bool:
        return not self.fired and not (self.handle is not None and self.handle.cancelled())

    @property
    def holds(self) -> bool:
        return self.handle is None or not self.owner.is_waiting


class IdleSelector(selectors.BaseSelector):
    """A selector that tells `on_idle` when the loop has nothing to run, before it blocks."""

    def __init__(self) -> None:
        self.inner = selectors.DefaultSelector()
        self.watchers: list[Callable[[], bool]] = []
        self.turned_at = time.monotonic()
        self.waiting = False
        self.max_lag_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.max_lag_s = max(self.max_lag_s, time.monotonic() - self.turned_at)
        self.waiting = True
        try:
            events = self.inner.select(0)
            if events or (timeout is not None and timeout <= 0):
                return events
            acted = [watcher() for watcher in tuple(self.watchers)]
            return self.inner.select(0 if any(acted) else timeout)
        finally:
            self.turned_at = time.monotonic()
            self.waiting = False

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self.inner.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self.inner.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self.inner.modify(fileobj, events, data)

    def close(self) -> None:
        self.inner.close()

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self.inner.get_map()


class EpisodeLoop(asyncio.SelectorEventLoop):
    """The event loop of episodes; see the head of this file."""

    def __init__(self) -> None:
        self.idle_selector = IdleSelector()
        self.held: list[Held] = []
        self.num_held = 0
        self.num_effects = 0
        super().__init__(self.idle_selector)
        self.set_task_factory(_episode_task_factory)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        task = asyncio.current_task(self)
        if not isinstance(task, EpisodeTask):
            return super().call_at(when, callback, *args, context=context)
        held = Held(task.branch.owner)

        def fire() -> None:
            held.fired = True
            callback(*args)

        held.handle = super().call_at(when, fire, context=context)
        self._hold(held)
        return held.handle

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        future = super().run_in_executor(executor, func, *args)
        task = asyncio.current_task(self)
        if isinstance(task, EpisodeTask):
            held = Held(task.branch.owner)
            future.add_done_callback(lambda _: setattr(held, "fired", True))
            self._hold(held)
        return future

    def deadline(self, delay_s: float, callback: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        """A timer of rolecall's own: it does not count against idleness."""
        return super().call_at(self.time() + delay_s, callback, *args)

    def holds(self, owner: object | None = None) -> bool:
        """Whether a timer or thread started by workflow code (of one episode, or of any) is still to come."""
        if self.held:
            self.held = [held for held in self.held if held.alive]
        return any(held.holds for held in self.held if owner is None or held.owner is owner)

    def detached(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """A task that belongs to no episode, whoever creates it: for the engine's work."""
        return asyncio.Task(coroutine, loop=self)

    def _hold(self, held: Held) -> None:
        self.num_held += 1
        self.held.append(held)


def _episode_task_factory(loop: Any, coroutine: Any, **options: Any) -> asyncio.Future[Any]:
    parent = asyncio.current_task(loop)
    if not isinstance(parent, EpisodeTask):
        return asyncio.Task(coroutine, loop=loop, **options)
    task: EpisodeTask[Any] = EpisodeTask(coroutine, loop=loop, **options)
    task.branch = Branch(parent.branch.owner, parent.branch.observed())
    parent.branch.children.append(task)
    return task


def current_loop() -> EpisodeLoop:
    """The running `EpisodeLoop`; any other loop is an error that says what to do."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, EpisodeLoop):
        raise UsageError(
            f"episodes run on an EpisodeLoop, and this is a {type(loop).__name__}: call the function without `_async`, "
            f"or run the coroutine with rolecall.rollout.loop.LoopRunner().run(...)"
        )
    return loop


class LoopRunner:
    """Owns one `EpisodeLoop` for as long as an engine and a collector live on it, and its watchdog.

    `with LoopRunner(watchdog_s=60) as runner: runner.run(engine.load(...)); runner.run(collector.collect_async(...))`
    """

    def __init__(self, watchdog_s: float | None = None, grace_s: float = 10.0) -> None:
        self._runner = asyncio.Runner(loop_factory=EpisodeLoop)
        self.watchdog_s = watchdog_s
        self.grace_s = grace_s

    @property
    def loop(self) -> EpisodeLoop:
        loop = self._runner.get_loop()
        assert isinstance(loop, EpisodeLoop)
        return loop

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run to the end; raises `BlockedLoop` when code of a workflow blocks the loop longer than `watchdog_s`."""
        loop = self.loop
        result: list[T] = []

        async def main() -> None:  # returns nothing: `signal.signal` makes the repr of the main task and its result
            result.append(await coroutine)

        if self.watchdog_s is None:
            self._runner.run(main())
            return result[0]
        with Watchdog(loop, limit_s=self.watchdog_s, grace_s=self.grace_s, thread=threading.current_thread()) as dog:
            try:
                self._runner.run(dog.guard(main()))
            finally:
                dog.raise_if_tripped()
        return result[0]

    def close(self) -> None:
        self._runner.close()

    def __enter__(self) -> LoopRunner:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
