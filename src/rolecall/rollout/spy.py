"""Sees a workflow draw random numbers of its own or read a clock, and says on which line. Slow: for checks only."""

from __future__ import annotations

import asyncio
import gc
import random
import sys
from types import BuiltinFunctionType, FrameType
from typing import Any

from rolecall.rollout.loop import EpisodeTask
from rolecall.rollout.session import TeamRandom

_THROUGH = frozenset({"random", "uuid", "secrets"})  # modules of the standard library that draw for their caller
_CLOCKS = frozenset(
    {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "thread_time"}
)
_DATES = frozenset({"now", "utcnow", "today"})


class Spy:
    """A profiler of this thread while the context lasts; `found` has one sentence for each place, in order.

    What runs because the garbage collector does (callbacks and finalizers of anybody) is not the workflow's doing.
    """

    def __init__(self) -> None:
        self.found: list[str] = []
        self._collecting = False

    def __enter__(self) -> Spy:
        self._before = sys.getprofile()
        gc.callbacks.insert(0, self._collection_begins)  # before any other callback of its start,
        gc.callbacks.append(self._collection_ends)  # and after any other of its stop
        sys.setprofile(self._see)
        return self

    def __exit__(self, *exc_info: object) -> None:
        sys.setprofile(self._before)
        gc.callbacks.remove(self._collection_begins)
        gc.callbacks.remove(self._collection_ends)

    def _collection_begins(self, phase: str, info: dict[str, int]) -> None:
        self._collecting = True

    def _collection_ends(self, phase: str, info: dict[str, int]) -> None:
        self._collecting = phase == "start"

    def _see(self, frame: FrameType, event: str, arg: Any) -> None:
        if event != "c_call" or self._collecting:
            return
        what = _forbidden(arg)
        if what is None or not isinstance(_current_task(), EpisodeTask):
            return
        caller = _user_frame(frame)
        if caller is not None:
            place = f"{what} (line {caller.f_lineno} of {caller.f_code.co_filename}, in {caller.f_code.co_name})"
            if place not in self.found:
                self.found.append(place)


def _forbidden(called: Any) -> str | None:
    if not isinstance(called, BuiltinFunctionType):
        return None
    owner, name = getattr(called, "__self__", None), called.__name__
    if isinstance(owner, random.Random):
        return None if isinstance(owner, TeamRandom) or name == "seed" else "draws random numbers of its own"
    module = getattr(called, "__module__", None)
    if module in ("posix", "nt") and name in ("urandom", "getrandom"):
        return "draws random numbers of its own"
    if (module == "time" and name in _CLOCKS) or (getattr(owner, "__module__", "") == "datetime" and name in _DATES):
        return "reads a clock"
    return None


def _user_frame(frame: FrameType) -> FrameType | None:
    """The line of the workflow that is responsible; None when it is rolecall, a library, or inside an effect."""
    caller: FrameType | None = frame
    while caller is not None and _module(caller) in _THROUGH:
        caller = caller.f_back
    if caller is None or not _is_user(_module(caller)):
        return None
    outer: FrameType | None = caller
    while outer is not None:
        if _module(outer) == "rolecall.rollout.effects":
            return None
        outer = outer.f_back
    return caller


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _is_user(module: str) -> bool:
    root = module.partition(".")[0]
    if root == "rolecall":
        return module.startswith("rolecall.workflows")
    return root not in sys.stdlib_module_names or root == "__main__"


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
