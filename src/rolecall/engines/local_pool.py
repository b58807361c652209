"""One worker seen from the engine: started, spoken to, noticed when it dies, and started again."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from rolecall.engines.local_scheduler import Job
from rolecall.engines.local_worker import Loads, serve
from rolecall.engines.specs import LocalSettings, PolicySpec
from rolecall.errors import EngineError, RolecallError

CLOSE_S = 5.0
START_S = 600.0

Manifest = dict[str, tuple[dict[str, tuple[int, ...]], dict[str, str]]]  # policy -> `Host.shapes`, `Host.optional`


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """A load or a score that waits for its answer; a load is answered by a restart too, which loads what is current."""

    future: Future[Any]
    is_load: bool


class Worker:
    """A process (or a thread) that hosts all policies. Everything here is safe to call from any thread."""

    def __init__(
        self, index: int, specs: Sequence[PolicySpec], settings: LocalSettings, loads: Callable[[], Loads]
    ) -> None:
        self.index, self.specs, self.settings, self.loads = index, tuple(specs), settings, loads
        self.lock = threading.RLock()
        self.sending = threading.Lock()
        self.numbers = itertools.count(1)
        self.jobs: dict[int, tuple[Job, Future[Any]]] = {}
        self.cost = 0  # columns that the jobs in its hands may fill
        self.calls: dict[int, Call] = {}
        self.ready: Future[Manifest] = Future()
        self.closing = False
        self.broken: RolecallError | None = None
        self.restarts = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.up = False
        self.connection: Connection
        self.start()
        self.reader = threading.Thread(target=self.read, name=f"rolecall-engine-{index}", daemon=True)
        self.reader.start()

    def start(self) -> None:
        self.up = False
        ours, theirs = multiprocessing.Pipe()
        if self.settings.mode == "inline":
            arguments = (theirs, self.index, self.specs, self.settings, dict(self.loads()))
            self.thread = threading.Thread(target=run_inline, args=arguments, daemon=True)
            self.thread.start()
        else:
            threads = str(self.settings.threads_per_worker)
            environment = os.environ | {
                "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                "OMP_NUM_THREADS": threads,
                "MKL_NUM_THREADS": threads,
            }
            command = [sys.executable, "-m", "rolecall.engines.local_worker", str(theirs.fileno()), str(os.getpid())]
            self.process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], env=environment, stdin=subprocess.DEVNULL
            )
            theirs.close()
            ours.send((self.index, self.specs, self.settings, dict(self.loads())))
        self.connection = ours

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process is not None else None

    def send(self, message: tuple[str, int, Any]) -> None:
        """Outside `lock`, which the reader needs: a full pipe must not stop both ends. A worker that has just died is
        noticed by the reader, which answers for it."""
        with self.sending, contextlib.suppress(OSError):
            self.connection.send(message)

    def generate(self, jobs: Sequence[Job]) -> list[Future[Any]]:
        futures: list[Future[Any]] = [Future() for _ in jobs]
        with self.lock:
            self.check_up()
            self.jobs.update({job.id: (job, future) for job, future in zip(jobs, futures, strict=True)})
            self.cost += sum(job.cost for job in jobs)
        self.send(("generate", 0, list(jobs)))
        return futures

    def abort(self, ids: Sequence[int]) -> None:
        if ids and self.broken is None and not self.closing:
            self.send(("abort", 0, list(ids)))

    def call(self, kind: str, payload: Any) -> Future[Any]:
        call = Call(future=Future(), is_load=kind == "load")
        with self.lock:
            self.check_up()
            number = next(self.numbers)
            self.calls[number] = call
        self.send((kind, number, payload))
        return call.future

    def check_up(self) -> None:
        if self.broken is not None:
            raise self.broken
        if self.closing:
            raise EngineError(f"worker {self.index} of the local engine is closed; make a new engine")

    def read(self) -> None:
        """The reader thread: replies to futures, until the worker is closed or cannot be started."""
        while True:
            try:
                kind, number, payload = self.connection.recv()
            except (EOFError, OSError):
                if self.closing or not self.restart():
                    return
                continue
            with self.lock:
                if kind == "ready":
                    self.up = True
                    self.answer_loads()
                    if not self.ready.done():
                        self.ready.set_result(payload)
                elif kind == "failed":
                    self.broken = payload
                elif kind == "done":
                    for job_id, reply in payload:
                        if job_id in self.jobs:
                            job, future = self.jobs.pop(job_id)
                            self.cost -= job.cost
                            settle(future, reply)
                elif number in self.calls:
                    settle(self.calls.pop(number).future, payload)

    def answer_loads(self) -> None:
        """A worker that started has loaded what is current, whatever became of the message that asked for it."""
        for number, call in list(self.calls.items()):
            if call.is_load and self.restarts:
                settle(self.calls.pop(number).future, None)

    def restart(self) -> bool:
        """After a death: fail what it had in hand, naming it, and start it again with the current weights. A worker
        that died while it started would die again: it stays down, and the engine says why."""
        code = self.process.wait() if self.process is not None else None
        name = f"worker {self.index} of the local engine (process {self.pid})"
        with self.lock:
            if not self.up and self.broken is None:
                self.broken = EngineError(f"{name} ended with exit code {code} while it started; was memory short?")
            words = f"{name} died with exit code {code}; its requests are lost, and it starts again"
            for _, future in self.jobs.values():
                settle(future, self.broken or EngineError(words))
            self.jobs.clear()
            self.cost = 0
            for number, call in list(self.calls.items()):
                if not call.is_load or self.broken is not None:
                    settle(self.calls.pop(number).future, self.broken or EngineError(words))
            if self.broken is not None:
                if not self.ready.done():
                    self.ready.set_exception(self.broken)
                return False
            self.restarts += 1
            self.connection.close()
            self.start()
            return True

    def close(self) -> None:
        """End the worker: asked first, then made to. Its open requests fail."""
        with self.lock:
            if self.closing:
                return
            self.closing = True
        self.send(("close", 0, None))
        if self.process is not None:
            for stop in (None, self.process.terminate, self.process.kill):
                if stop is not None:
                    stop()
                try:
                    self.process.wait(CLOSE_S)
                    break
                except subprocess.TimeoutExpired:
                    continue
        else:
            self.thread.join(CLOSE_S)
        self.reader.join(CLOSE_S)
        with self.lock:
            open_futures = [future for _, future in self.jobs.values()] + [call.future for call in self.calls.values()]
            for future in open_futures:
                settle(future, EngineError(f"worker {self.index} of the local engine was closed with requests open"))
            self.jobs.clear()
            self.cost = 0
            self.calls.clear()
            self.connection.close()


def settle(future: Future[Any], value: Any) -> None:
    """Give a future its value (an `EngineError` is a reply like any other), unless whoever waited has gone."""
    if future.set_running_or_notify_cancel():
        future.set_result(value)


def run_inline(connection: Connection, index: int, specs: Any, settings: LocalSettings, loads: Loads) -> None:
    with connection:
        serve(connection, index, specs, settings, loads)
