"""Sees a workflow draw random numbers of its own or read a clock, and says on which line. Slow: for checks only."""

from __future__ import annotations

import asyncio
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
    """A profiler of this thread while the context lasts; `found` has one sentence for each place, in order."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def __enter__(self) -> Spy:
        self._before = sys.getprofile()
        sys.setprofile(self._see)
        return self

    def __exit__(self, *exc_info: object) -> None:
        sys.setprofile(self._before)

    def _see(self, frame: FrameType, event: str, arg: Any) -> None:
        if event != "c_call":
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
