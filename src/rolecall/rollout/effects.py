"""Runs one effect: a coroutine on the loop, a plain function in a thread of its own."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from typing import Any

from rolecall.errors import EffectError, RolecallError, boundary


async def run_effect(fn: Callable[[], Any], loop: asyncio.AbstractEventLoop, name: str) -> Any:
    """The value of `fn()`, awaited if need be. A plain function that hangs keeps its thread until the process ends."""
    if inspect.iscoroutinefunction(fn):
        return await fn()
    done: asyncio.Future[Any] = loop.create_future()

    def deliver(value: Any, error: Exception | None) -> None:
        if done.done():
            return  # the episode has ended
        if error is None:
            done.set_result(value)
        else:
            done.set_exception(error)

    def work() -> None:
        value: Any = None
        failed: Exception | None = None
        try:
            with boundary(EffectError, f"effect {name!r}"):
                value = fn()
        except RolecallError as error:
            failed = error
        except SystemExit as error:
            failed = EffectError(f"effect {name!r} called sys.exit({error.code})")
        if not loop.is_closed():
            loop.call_soon_threadsafe(deliver, value, failed)

    threading.Thread(target=work, name=f"effect {name}", daemon=True).start()
    value = await done
    return await value if inspect.isawaitable(value) else value
