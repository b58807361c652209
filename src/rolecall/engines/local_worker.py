"""The loop of one worker of the local engine, in a process of its own or in a thread.

Messages are tuples `(kind, number, payload)` over a connection; weights travel as safetensors files.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

from rolecall.allocator import keep_freed_memory
from rolecall.engines.specs import LocalSettings, PolicySpec
from rolecall.errors import ConfigError, EngineError, boundary

PARENT_CHECK_S = 1.0

Loads = Mapping[str, tuple[int, str]]  # policy -> version and file of its weights


def serve(
    connection: Connection, index: int, specs: Sequence[PolicySpec], settings: LocalSettings, loads: Loads
) -> None:
    """Load the policies, say `ready`, then answer until the connection closes or `close` is asked."""
    from safetensors.torch import load_file

    from rolecall.engines.local_host import Host
    from rolecall.engines.local_scheduler import Scheduler

    try:
        with boundary(EngineError, f"worker {index} of the local engine, starting,"):
            host = Host(specs, fast=settings.fast)
            for policy, (version, path) in loads.items():
                host.load(policy, version, load_file(path))
    except (EngineError, ConfigError) as error:
        connection.send(("failed", 0, error))
        return
    connection.send(("ready", 0, {name: (host.shapes(name), dict(host.optional(name))) for name in host.specs}))
    scheduler = Scheduler(host, settings)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            while connection.poll(0 if scheduler.busy else None):
                kind, number, payload = connection.recv()
                if kind == "close":
                    return
                replies: list[Any] = []
                answer: Any = None
                try:
                    with boundary(EngineError, f"worker {index} of the local engine, asked to {kind},"):
                        if kind == "generate":
                            replies = scheduler.submit(payload)
                        elif kind == "abort":
                            replies = scheduler.abort(payload)
                        elif kind == "load":
                            policy, version, path = payload
                            scheduler.load(policy, version, load_file(path))
                        else:
                            answer = host.score(*payload)
                except EngineError as error:
                    answer = error
                    if kind == "generate":  # nobody may wait for a reply that never comes
                        replies = [(job.id, error) for job in payload]
                if kind in ("load", "score"):
                    connection.send(("answer", number, answer))
                if replies:
                    connection.send(("done", 0, replies))
            replies = scheduler.step() if scheduler.busy else []
            if replies:
                connection.send(("done", 0, replies))


def watch_parent(parent: int) -> None:
    """End this process when its parent has gone: a worker never outlives the run."""
    while os.getppid() == parent:
        time.sleep(PARENT_CHECK_S)
    os._exit(1)


def main() -> None:
    """Entry of a worker process: `local_worker.py <file descriptor> <parent>`; the first message says what to host."""
    connection = Connection(int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the engine's owner closes us
    threading.Thread(target=watch_parent, args=(int(sys.argv[2]),), daemon=True).start()
    try:
        index, specs, settings, loads = connection.recv()
    except EOFError:
        return
    import torch

    torch.set_num_threads(settings.threads_per_worker)
    if torch.cuda.is_available():
        torch.cuda.set_device(index % torch.cuda.device_count())
    else:
        keep_freed_memory()
    serve(connection, index, specs, settings, loads)


if __name__ == "__main__":
    main()
