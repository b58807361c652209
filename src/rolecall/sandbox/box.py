"""A sandbox that stays warm: one process inside, which forks a child for each program."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from rolecall.errors import SandboxError
from rolecall.sandbox.inside.zygote import STARVED
from rolecall.sandbox.library import new_home, remove
from rolecall.sandbox.limits import Job, Limits, Ran
from rolecall.sandbox.protection import Protection, protection, zygote_command

START_S = 60.0
LEAST_S = 0.01
GRACE_S = 5.0  # what the sandbox may take beyond a program's wall time
MAX_STDERR_CHARS = 8000


class BoxLost(SandboxError):
    """The sandbox itself ended or did not answer: nothing is known of the program."""


class Box:
    """One sandbox. Start and use it from one thread, which must outlive it; `abort` may be called from any.

    >>> with Box() as box:
    ...     box.run(Job(source="print(6 * 7)")).stdout
    '42\\n'
    """

    def __init__(self, made: Protection | None = None, label: str = "") -> None:
        self.protection = made or protection()
        self.label = label
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._lock = threading.Lock()
        self._home: Path | None = None
        self.inner_pid: int | None = None  # of the first process inside
        self._job = 0
        self.starts = 0

    def __enter__(self) -> Box:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        """Start the sandbox when it is not running; `BoxLost` when it does not start."""
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        home = None if self.protection.name == "bubblewrap" else self._new_home()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        told, tell = os.pipe()
        with theirs:
            try:
                command, environ = zygote_command(self.protection, theirs.fileno(), tell, self.label, home)
                self._process = subprocess.Popen(
                    command,
                    pass_fds=(theirs.fileno(), tell),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    env=environ,
                    start_new_session=True,
                )
            except OSError as error:
                ours.close()
                os.close(told)
                raise BoxLost(f"the sandbox does not start: {error}") from error
            finally:
                os.close(tell)
        self._control = ours
        self.starts += 1
        try:
            if not self._answer(START_S).get("ready"):
                raise self._lost("it answered something else than that it is ready")
            self.inner_pid = self._process.pid if home else int(json.loads(os.read(told, 4096))["child-pid"])
        finally:
            os.close(told)

    def _new_home(self) -> Path:
        try:
            self._home = new_home()
        except OSError as error:
            raise BoxLost(f"the sandbox does not start: no temporary folder can be made: {error}") from error
        return self._home

    def submit(self, job: Job, channel: socket.socket | int | None = None) -> Pending:
        """Start a program; `channel` is what it gets as descriptor 4. Ask the result with `Pending.result`."""
        self.start()
        assert self._control is not None
        self._job += 1
        body = {
            "mode": job.mode,
            "source": job.source,
            "function": job.function,
            "arguments": job.arguments,
            "setup": job.setup,
            "functions": job.functions,
        }
        pending = Pending(self, self._job, job)
        files = [_file(job.stdin.encode(errors="surrogateescape")), pending.stdout, pending.stderr]
        files += [_file(json.dumps(body).encode())]
        try:
            given = [] if channel is None else [channel if isinstance(channel, int) else channel.fileno()]
            header = json.dumps({"job": self._job, "limits": job.limits.record()}).encode()
            socket.send_fds(self._control, [header], files + given)
        except OSError as error:
            pending.close()
            raise self._lost(f"it takes no program: {error}") from error
        finally:
            os.close(files[0])
            os.close(files[3])
        return pending

    def run(self, job: Job, started: Callable[[Pending], None] | None = None) -> Ran:
        """Run one program to its end; `BoxLost` when the sandbox fails. `started` is told when it has begun."""
        value = _file(b"")  # where a call writes what its function gave
        try:
            pending = self.submit(job, value)
            if started is not None:
                started(pending)
            return replace(pending.result(), value=_content(value, job.limits.output_bytes))
        finally:
            os.close(value)

    def abort(self, number: int, why: str = "abort") -> None:
        """End program `number` (of `Pending.number`) if it still runs."""
        with self._lock, suppress(OSError):
            if self._control is not None:
                self._control.send(json.dumps({"abort": number, "why": why}).encode())

    def waited_s(self) -> float:
        """How long the program that runs now has waited for a CPU; 0 where the system does not say."""
        found = [0.0]
        with suppress(OSError, ValueError, IndexError):
            first = f"/proc/{self.inner_pid}"
            for child in Path(f"{first}/task/{self.inner_pid}/children").read_text().split():
                threads = Path(f"/proc/{child}/task").iterdir()
                found += [int((thread / "schedstat").read_text().split()[1]) / 1e9 for thread in threads]
        return max(found)

    def _answer(self, timeout_s: float) -> dict[str, Any]:
        """The next message; `TimeoutError` is a lost sandbox unless `timeout_s` is 0, which only looks."""
        assert self._control is not None
        self._control.settimeout(timeout_s)
        try:
            message = self._control.recv(65536)
        except BlockingIOError:
            return {}
        except OSError as error:  # a deadline, or the socket is gone
            raise self._lost(f"it did not answer in {timeout_s:g} s ({error})") from error
        if not message:
            raise self._lost("it ended")
        answer: dict[str, Any] = json.loads(message)
        return answer

    def _lost(self, why: str) -> BoxLost:
        said = ""
        if self._process is not None and self._process.stderr is not None:
            self._kill()
            os.set_blocking(self._process.stderr.fileno(), False)
            said = (self._process.stderr.read() or b"")[-500:].decode(errors="replace").strip()
        self.close()
        return BoxLost(f"the sandbox was lost: {why}{'; ' + said if said else ''}")

    def _kill(self) -> None:
        assert self._process is not None
        if self.inner_pid is not None and self._process.poll() is None:  # then its number is still its own
            with suppress(ProcessLookupError, PermissionError):
                os.kill(self.inner_pid, signal.SIGKILL)  # the first process inside: all others end with it
        self.inner_pid = None
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait(timeout=10.0)

    def close(self) -> None:
        """End the sandbox and everything in it."""
        with self._lock:
            if self._control is not None:
                self._control.close()
                self._control = None
        if self._process is not None:
            self._kill()
            if self._process.stderr is not None:
                self._process.stderr.close()
            self._process = None
        if self._home is not None:
            remove(self._home)
            self._home = None


class Pending:
    """A program that runs in a `Box`."""

    def __init__(self, box: Box, number: int, job: Job) -> None:
        self.box, self.number, self.job = box, number, job
        self.stdout, self.stderr = _file(b""), _file(b"")
        self._started = time.monotonic()
        self._report: dict[str, Any] | None = None

    def look(self) -> None:
        """End the program where it has slept past its wall time; `BoxLost` when the sandbox fails. For a host that
        waits for something else than `result`."""
        while self._report is None and (message := self.box._answer(0.0)):
            self._heard(message)

    def _heard(self, message: dict[str, Any]) -> None:
        """The report, or that the program is late: then the time for which it waited for a CPU is not its own."""
        if "late" not in message:
            self._report = message
        elif message["late"] == self.number:
            own = time.monotonic() - self._started - self.box.waited_s()
            if own >= self.job.limits.wall_s:
                self.box.abort(self.number, "wall")

    def result(self) -> Ran:
        """Wait for the end; `BoxLost` when the sandbox fails."""
        try:
            until = self._started + longest_s(self.job.limits)
            while self._report is None:
                self._heard(self.box._answer(max(LEAST_S, until - time.monotonic())))
            report = self._report
            if report.get("job") != self.number:
                raise self.box._lost("it answered for another program")
            if not report["clean"]:
                self.box.close()
            stderr = _content(self.stderr, self.job.limits.output_bytes)[-MAX_STDERR_CHARS:].decode(errors="replace")
            if not report["set_up"] and report["killed"] != "abort":  # or it was not asked for any longer
                raise self.box._lost(f"its limits could not be set: {stderr[-500:]}")
            return Ran(
                code=report["code"],
                killed=report["killed"],
                stdout=_content(self.stdout, self.job.limits.output_bytes).decode(errors="replace"),
                stderr=stderr,
                cpu_s=report["cpu_s"],
                wall_s=report["wall_s"],
                peak_kib=report["peak_kib"],
            )
        finally:
            self.close()

    def close(self) -> None:
        os.close(self.stdout)
        os.close(self.stderr)


def longest_s(limits: Limits) -> float:
    """After how many seconds a program has been ended for sure, or its sandbox is lost."""
    return max(limits.wall_s, limits.cpu_s / STARVED) + GRACE_S


def _file(data: bytes) -> int:
    """A file in memory that holds `data` and is read from its start; what has content cannot be changed."""
    descriptor = os.memfd_create("rolecall", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    if data:
        os.truncate(descriptor, len(data))
        os.pwrite(descriptor, data, 0)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    return descriptor


def _content(descriptor: int, limit: int) -> bytes:
    return os.pread(descriptor, limit, 0)
