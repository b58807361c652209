"""Finds a workflow that blocks the event loop, prints where, and ends the run so that it can be resumed.

A thread looks at the time of the loop's last turn. When one callback has run for longer than the limit, it dumps the
stack of the loop's thread with the name of the episode's task, and raises `BlockedLoop` there: by a signal when that is
the main thread (which also ends a blocking system call), else by an asynchronous exception (at the next bytecode). If
the thread does not come back within the grace period, the process exits with `EXIT_BLOCKED`.

There is no process isolation here: a workflow runs in the process of the run, and one that never returns from C code
takes the process with it. Engines compute in threads or processes of their own, or the watchdog will name them.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Coroutine
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from rolecall.errors import BlockedLoop

if TYPE_CHECKING:
    from rolecall.rollout.loop import EpisodeLoop

EXIT_BLOCKED = 75  # "temporary failure": what a supervisor restarts, and the run resumes
_SIGNAL = signal.SIGURG  # ignored by default, so a late one does no harm
_AGAIN_S = 0.25
T = TypeVar("T")


class Watchdog:
    """A context around a running loop; `limit_s` bounds one callback, `grace_s` the way out."""

    def __init__(self, loop: EpisodeLoop, *, limit_s: float, grace_s: float, thread: threading.Thread) -> None:
        self.loop, self.limit_s, self.grace_s, self.thread = loop, limit_s, grace_s, thread
        self.tripped: BlockedLoop | None = None
        self._main: asyncio.Task[Any] | None = None
        self._stop = threading.Event()
        self._old_handler: Any = None
        self._watcher = threading.Thread(target=self._watch, name="rolecall-watchdog", daemon=True)

    async def guard(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run `coroutine`; remember its task, so that a swallowed `BlockedLoop` still ends it."""
        self._main = asyncio.current_task()
        return await coroutine

    def raise_if_tripped(self) -> None:
        if self.tripped is not None:
            raise self.tripped

    def __enter__(self) -> Watchdog:
        if self.thread is threading.main_thread():
            self._old_handler = signal.signal(_SIGNAL, self._on_signal)
        self.loop.idle_selector.turned_at = time.monotonic()
        self._watcher.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stop.set()
        self._watcher.join()
        if self.thread is threading.main_thread():
            signal.signal(_SIGNAL, self._old_handler)

    def _watch(self) -> None:
        selector = self.loop.idle_selector
        while not self._stop.wait(min(1.0, self.limit_s / 4)):
            turned_at = selector.turned_at
            if selector.waiting or not self.loop.is_running() or time.monotonic() - turned_at <= self.limit_s:
                continue
            self.tripped = BlockedLoop(self._describe(time.monotonic() - turned_at))
            print(f"{self.tripped}\n{self._stack()}", file=sys.stderr, flush=True)
            self._see_it_out()
            return

    def _see_it_out(self) -> None:
        """Interrupt until the run has ended (other episodes may block as well), at most for the grace period."""
        until = time.monotonic() + self.grace_s
        self._interrupt()
        while not self._stop.wait(_AGAIN_S):
            if time.monotonic() > until:
                print(f"the loop did not come back in {self.grace_s:g} s: exit {EXIT_BLOCKED}", file=sys.stderr)
                sys.stderr.flush()
                sys.stdout.flush()
                os._exit(EXIT_BLOCKED)
            if self._still_blocked():
                self._interrupt()

    def _describe(self, seconds: float) -> str:
        task = asyncio.current_task(self.loop)
        name = task.get_name() if task is not None else "a callback that is in no task"
        return (
            f"{name} has blocked the event loop for {seconds:.1f} s (watchdog_s is {self.limit_s:g}): no other episode "
            f"can go on. Put slow work into `await team.effect(name, fn)`, which runs fn in a thread; resume the run"
        )

    def _stack(self) -> str:
        frame = sys._current_frames().get(self.thread.ident or 0)
        return "".join(traceback.format_stack(frame)) if frame is not None else "(no stack)"

    def _interrupt(self) -> None:
        ident = self.thread.ident
        assert ident is not None
        if self.thread is threading.main_thread():
            signal.pthread_kill(ident, _SIGNAL)
        else:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(_Blocked))
        if self._main is not None:  # even when workflow code swallows the exception, the run ends
            self.loop.call_soon_threadsafe(self._main.cancel)

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        if self.tripped is not None and self._still_blocked():
            raise self.tripped

    def _still_blocked(self) -> bool:
        selector = self.loop.idle_selector
        return not selector.waiting and time.monotonic() - selector.turned_at > min(self.limit_s, _AGAIN_S)


class _Blocked(BlockedLoop):
    """What an asynchronous exception raises: it is made without arguments; the watchdog has the words."""

    def __init__(self) -> None:
        super().__init__("the event loop was blocked; see the stack that the watchdog printed")
