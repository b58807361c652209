"""One grader process seen from the pool: start it, load graders, ask it, kill it."""

from __future__ import annotations

import json
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from typing import Any

from rolecall.errors import ConfigError, GraderError, boundary
from rolecall.grading.wire import MAX_REPLY_BYTES, receive, send
from rolecall.records import Grade, GradeStatus

MAX_STDERR_BYTES = 1 << 20
DEFAULT_MEMORY_MIB = 8192
LEAKED_SHARE = 0.25
WALL_FACTOR = 10  # by the clock an answer may take so many times its deadline, on a machine that is so busy
LOOK_S = 0.05


class WorkerProcess:
    """A process with a socket to it and a file that takes what it prints. POSIX only."""

    def __init__(self, *, memory_mib: int) -> None:
        with boundary(GraderError, "starting a grader process"):  # no descriptors left, or a full disk
            self._printed = tempfile.TemporaryFile(mode="a+b")  # noqa: SIM115 - closed in kill()
            ours, theirs = socket.socketpair()
        self._socket = ours
        self.loaded: dict[str, str] = {}  # grader name -> why it does not load, "" when it does
        self._base_mib = 0.0  # what it held when it had loaded the last of them
        self._memory_mib = memory_mib or DEFAULT_MEMORY_MIB
        command = [sys.executable, "-P", "-m", "rolecall.grading.worker", str(theirs.fileno()), str(memory_mib)]
        with theirs, boundary(GraderError, "starting a grader process"):
            self._process = subprocess.Popen(
                command,
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=self._printed,
                stderr=self._printed,
                env=_environment(),
                start_new_session=True,  # a kill takes a grader's own children; Ctrl-C is for the pool to handle
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def load(self, name: str, timeout_s: float) -> str:
        """Have the grader imported; returns why it cannot be, or ""."""
        if name not in self.loaded:
            reply = self._ask(("load", name), timeout_s)
            with boundary(GraderError, "reading the worker's reply"):
                self.loaded[name] = str(reply["error"])
            self._base_mib = resident_mib(self.pid)
        return self.loaded[name]

    def grade(self, name: str, answer: str, task: bytes, timeout_s: float) -> Grade:
        """One grade; `TimeoutError` or `WorkerGone` when there is none in time: the process is then to be killed."""
        reply = self._ask(("grade", name, answer, task, timeout_s * WALL_FACTOR), timeout_s)
        if os.fstat(self._printed.fileno()).st_size > MAX_STDERR_BYTES:
            os.ftruncate(self._printed.fileno(), 0)
        with boundary(GraderError, "reading the worker's reply"):
            return Grade(status=GradeStatus(reply["status"]), score=reply["score"], detail=reply["detail"])

    @property
    def swollen(self) -> bool:
        """Whether its graders have kept so much memory that a new process is better: a quarter of the bound."""
        return resident_mib(self.pid) > self._base_mib + LEAKED_SHARE * self._memory_mib

    def _ask(self, job: tuple[object, ...], timeout_s: float) -> dict[str, Any]:
        """The reply to a job. `timeout_s` bounds the time that the process runs or sleeps: while it waits for a CPU its
        time stands still, so that a busy machine changes no grade. By the clock it may take `WALL_FACTOR` times that.
        """
        begun, waited = time.monotonic(), self._waited_s()
        send(self._socket, pickle.dumps(job), timeout_s * WALL_FACTOR)
        while True:
            elapsed = time.monotonic() - begun
            left = min(timeout_s - elapsed + self._waited_s() - waited, timeout_s * WALL_FACTOR - elapsed)
            if left <= 0:
                raise TimeoutError("deadline passed")
            if select.select([self._socket], [], [], max(LOOK_S, left))[0]:
                break
        payload = receive(self._socket, timeout_s * WALL_FACTOR, MAX_REPLY_BYTES)
        with boundary(GraderError, "reading the worker's reply"):
            return dict(json.loads(payload))

    def _waited_s(self) -> float:
        """How long the process has waited for a CPU in its life; 0 where the system does not say (Linux does)."""
        try:
            with open(f"/proc/{self._process.pid}/schedstat", encoding="ascii") as file:
                return int(file.read().split()[1]) / 1e9
        except (OSError, IndexError, ValueError):
            return 0.0

    def last_words(self) -> str:
        """How the process ended and the end of what it printed."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=1.0)
        code, tail = self._process.returncode, ""
        with suppress(ValueError):  # the pool closed it while we looked
            size = os.fstat(self._printed.fileno()).st_size
            tail = os.pread(self._printed.fileno(), 300, max(0, size - 300)).decode(errors="replace").strip()
        return f"exit code {code}" + (f", last words: {tail}" if tail else "")

    def kill(self) -> None:
        """End the process and its children, and reap it."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._socket.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=10.0)
        if not self._printed.closed:
            self._printed.close()


def resident_mib(pid: int) -> float:
    """What a process holds in memory; 0 when it is gone, or where the system does not say."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
    except (OSError, IndexError, ValueError):
        return 0.0


def _environment() -> dict[str, str]:
    """The worker imports what this process can import, the working directory included, with one thread a library."""
    paths = [path or os.getcwd() for path in sys.path]
    paths += [] if os.getcwd() in paths else [os.getcwd()]
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    return {**os.environ, **threads, "PYTHONPATH": os.pathsep.join(paths)}


def check_settings(workers: int, deadline_s: float, start_deadline_s: float, memory_mib: int) -> None:
    """`ConfigError` that names the setting of a pool which cannot be."""
    for name, value, least in (("workers", workers, 1), ("memory_mib", memory_mib, 0)):
        if value < least:
            raise ConfigError(f"GraderPool {name} is {value}; wanted at least {least}")
    for name, seconds in (("deadline_s", deadline_s), ("start_deadline_s", start_deadline_s)):
        if not seconds > 0:
            raise ConfigError(f"GraderPool {name} is {seconds}; wanted more than 0 seconds")
