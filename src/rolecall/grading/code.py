"""One test of one program: run it in a sandbox and compare what came out, outside of it.

Expected output and expected values never enter the sandbox of the program. Where a test is code (HumanEval, MBPP), that
code runs in a second sandbox, and each call of the program's function goes from one to the other.
"""

from __future__ import annotations

import math
import re
import select
import socket
import struct
import threading
import time
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from rolecall.code_problems import CallTest, CodeProblem, CodeTest, ScriptTest, StdioTest
from rolecall.errors import GraderError, SandboxError
from rolecall.sandbox.box import Box, Pending, longest_s
from rolecall.sandbox.inside import values
from rolecall.sandbox.limits import Job, Limits, Ran
from rolecall.sandbox.protection import Protection

MAX_FRAME_BYTES = 16 << 20
MAX_CALLS = 200_000
MAX_DEPTH = 100
LOOK_S = 0.5
_HEAD = struct.Struct("!I")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")


class BrokenTest(GraderError):
    """The test itself does not run: nothing is known of the program."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """Did the program pass a test, and in a few words why not.

    >>> Verdict(passed=False, detail="wrong output").passed
    False
    """

    passed: bool
    detail: str = ""


class Bench:
    """The sandboxes of one worker: one for programs and, where tests are code, one for tests. One thread owns it."""

    def __init__(self, made: Protection, label: str = "") -> None:
        self.program = Box(made, label)
        self.judge = Box(made, label)
        self._lock = threading.Lock()
        self._running: list[Pending] = []
        self._owner: object = None
        self._stopped = False

    def try_test(self, source: str, test: CodeTest, problem: CodeProblem, owner: object = None) -> Verdict:
        """Run one test, for `owner`. `SandboxError` when a sandbox fails or `stop` was called, `BrokenTest` when the
        test fails to run."""
        with self._lock:
            self._owner, self._stopped, self._running = owner, False, []
        verdict = self._verdict(source, test, problem)
        with self._lock:
            self._owner, self._running = None, []
            if self._stopped:
                raise SandboxError("the test was stopped")
        return verdict

    def stop(self, owner: object = None) -> None:
        """From any thread: end what runs now for `owner`; when it has ended already, nothing is stopped."""
        with self._lock:
            if self._owner is not owner:
                return
            self._stopped = True
            running = list(self._running)
        for pending in running:
            pending.box.abort(pending.number)

    def _verdict(self, source: str, test: CodeTest, problem: CodeProblem) -> Verdict:
        limits = Limits(**dict(problem.limits))  # type: ignore[arg-type]
        if isinstance(test, StdioTest):
            ran = self._run(Job(source=source, stdin=test.stdin, limits=limits))
            return Verdict(passed=False, detail=ran.reason) if not ran.ok else _same_output(ran, test, problem)
        if isinstance(test, CallTest):
            arguments = values.dumps(list(test.arguments)).decode()
            job = Job(source=source, mode="call", function=test.function, arguments=arguments, limits=limits)
            ran = self._run(job)
            return Verdict(passed=False, detail=ran.reason) if not ran.ok else _same_value(ran, test, problem)
        return self._script(source, test, limits)

    def close(self) -> None:
        self.program.close()
        self.judge.close()

    def _run(self, job: Job) -> Ran:
        return self.program.run(job, lambda pending: self._started([pending]))

    def _started(self, running: list[Pending]) -> None:
        with self._lock:
            self._running = list(running)
            stopped = self._stopped
        for pending in running if stopped else ():
            pending.box.abort(pending.number)

    def _script(self, source: str, test: ScriptTest, limits: Limits) -> Verdict:
        pairs = [socket.socketpair(), socket.socketpair()]
        ours = [pair[0] for pair in pairs]
        running: list[Pending] = []
        try:
            serve = Job(source=source, mode="serve", limits=limits)
            judge = Job(
                source=test.script, mode="judge", setup=test.setup, functions=test.functions, limits=_doubled(limits)
            )
            running.append(self.program.submit(serve, pairs[0][1]))
            running.append(self.judge.submit(judge, pairs[1][1]))
            self._started(running)
            for _, theirs in pairs:
                theirs.close()
            talk = _Talk(ours[0], ours[1], running, time.monotonic() + longest_s(limits))
            said = talk.converse()
            for end in ours:
                end.close()
            for pending in running:
                pending.box.abort(pending.number)  # what still runs has nothing more to say
            judged, ran = running.pop().result(), running.pop().result()
        finally:
            for pair in pairs:
                for end in pair:
                    end.close()
            for pending in running:
                pending.box.close()
                pending.close()
        return _ruling(said, ran, judged)


def _doubled(limits: Limits) -> Limits:
    """A test's own limits: it waits for the program."""
    record = limits.record()
    return Limits(**{**record, "cpu_s": 2 * limits.cpu_s, "wall_s": longest_s(limits)})


@dataclass(frozen=True, slots=True)
class _Talk:
    """What a test and a program say to each other, over two sockets, until `deadline`."""

    program: socket.socket
    judge: socket.socket
    running: list[Pending]
    deadline: float

    def converse(self) -> tuple[str, str] | None:
        """Carry the test's calls to the program and its values back; what the test said at its end, or None."""
        for _ in range(MAX_CALLS):
            frame = self._receive(self.judge)
            if frame is None:
                return None
            if frame[:1] == b"V":
                passed, detail = values.loads(frame[1:])
                return str(passed), str(detail)
            if not self._send(self.program, frame[1:]):
                return None
            answer = self._receive(self.program)
            if answer is None or not self._send(self.judge, answer):
                return None
        return "no", f"the test called the program more than {MAX_CALLS} times"

    def _send(self, end: socket.socket, frame: bytes) -> bool:
        data = memoryview(_HEAD.pack(len(frame)) + frame)
        while data:
            if not self._wait(end, write=True):
                return False
            try:
                data = data[end.send(data, socket.MSG_DONTWAIT) :]
            except BlockingIOError:
                continue
            except OSError:  # closed
                return False
        return True

    def _receive(self, end: socket.socket) -> bytes | None:
        head = self._exactly(end, _HEAD.size)
        if head is None:
            return None
        (length,) = _HEAD.unpack(head)
        return None if length > MAX_FRAME_BYTES else self._exactly(end, length)

    def _exactly(self, end: socket.socket, count: int) -> bytes | None:
        chunks: list[bytes] = []
        while count:
            if not self._wait(end, write=False):
                return None
            try:
                chunk = end.recv(min(count, 1 << 20))
            except OSError:
                return None
            if not chunk:
                return None
            chunks.append(chunk)
            count -= len(chunk)
        return b"".join(chunks)

    def _wait(self, end: socket.socket, write: bool) -> bool:
        """Whether the socket can be used before the deadline; meanwhile programs that sleep too long are ended."""
        while (left := self.deadline - time.monotonic()) > 0:
            sides = ([], [end]) if write else ([end], [])
            if any(select.select(*sides, [], min(left, LOOK_S))):
                return True
            for pending in self.running:
                pending.look()
        return False


def _ruling(said: tuple[str, str] | None, ran: Ran, judged: Ran) -> Verdict:
    if said is None:
        if ran.reason:
            return Verdict(passed=False, detail=ran.reason)
        if judged.killed:
            return Verdict(passed=False, detail="the program's values kept the test busy past its limits")
        return Verdict(passed=False, detail="the program ended before its test did, or its value was too large")
    passed, detail = said
    if passed == "broken":
        raise BrokenTest(f"the test does not run: {detail}")
    if passed != "yes" and detail == "the program ended":
        return Verdict(passed=False, detail=ran.reason or detail)
    return Verdict(passed=passed == "yes", detail=detail)


def _same_output(ran: Ran, test: StdioTest, problem: CodeProblem) -> Verdict:
    if same_text(ran.stdout, test.stdout, problem.tolerance):
        return Verdict(passed=True)
    return Verdict(passed=False, detail=f"wrong output {_brief(ran.stdout)} for input {_brief(test.stdin)}")


def _same_value(ran: Ran, test: CallTest, problem: CodeProblem) -> Verdict:
    try:
        value = values.loads(ran.value)
        same = same_value(value, test.expected, problem.tolerance)
        if not same and test.wrapped and isinstance(test.expected, list) and len(test.expected) == 1:
            same = same_value(value, test.expected[0], problem.tolerance)
    except (ValueError, TypeError, KeyError, RecursionError):  # bytes that the program wrote itself
        return Verdict(passed=False, detail=f"the program's value cannot be read: {_brief(ran.value)}")
    return Verdict(passed=same, detail="" if same else f"wrong value {_brief(value)} of {test.function}")


def same_text(seen: str, wanted: str, tolerance: float) -> bool:
    """Equal but for white space at the ends of lines and of the text; else token by token, numbers as numbers."""
    a, b = ([line.rstrip() for line in text.strip().splitlines()] for text in (seen, wanted))
    if a == b:
        return True
    if len(a) != len(b):
        return False
    return all(_same_line(x.split(), y.split(), tolerance) for x, y in zip(a, b, strict=True))


def _same_line(seen: list[str], wanted: list[str], tolerance: float) -> bool:
    if len(seen) != len(wanted):
        return False
    return all(x == y or _same_number(x, y, tolerance) for x, y in zip(seen, wanted, strict=True))


def _same_number(seen: str, wanted: str, tolerance: float) -> bool:
    """Integers exactly; where either is written with a point or an exponent, to the tolerance."""
    if len(seen) > 400 or len(wanted) > 400 or not (_NUMBER.fullmatch(seen) and _NUMBER.fullmatch(wanted)):
        return False
    try:
        x, y = Decimal(seen), Decimal(wanted)
    except InvalidOperation:
        return False
    if x == y:
        return True
    written_as_integers = not set(wanted) & set(".eE")
    return not written_as_integers and abs(x - y) <= Decimal(tolerance) * max(Decimal(1), abs(y))


def same_value(seen: Any, wanted: Any, tolerance: float, depth: int = 0) -> bool:
    """Equal values of built-in types; tuples equal lists, because test files (JSON) have only lists."""
    if depth > MAX_DEPTH:
        return False
    if isinstance(seen, bool) or isinstance(wanted, bool):
        return isinstance(seen, bool) and isinstance(wanted, bool) and seen == wanted
    if isinstance(seen, float) or isinstance(wanted, float):
        return _same_float(seen, wanted, tolerance)
    if isinstance(wanted, list | tuple):
        if not isinstance(seen, list | tuple) or len(seen) != len(wanted):
            return False
        return all(same_value(x, y, tolerance, depth + 1) for x, y in zip(seen, wanted, strict=True))
    if isinstance(wanted, dict):
        if not isinstance(seen, dict) or len(seen) != len(wanted):
            return False
        keyed = {key if isinstance(key, str) else str(key): value for key, value in seen.items()}  # JSON's keys
        return all(
            str(key) in keyed and same_value(keyed[str(key)], wanted[key], tolerance, depth + 1) for key in wanted
        )
    return type(seen) is type(wanted) and bool(seen == wanted)


def _same_float(seen: Any, wanted: Any, tolerance: float) -> bool:
    numbers = [value for value in (seen, wanted) if isinstance(value, int | float)]
    if len(numbers) != 2 or any(isinstance(n, int) and abs(n) > 1 << 1000 for n in numbers):
        return False
    x, y = (float(number) for number in numbers)
    return (math.isnan(x) and math.isnan(y)) or x == y or math.isclose(x, y, rel_tol=tolerance, abs_tol=tolerance)


def _brief(value: object) -> str:
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number of too many digits, or too deep
        text = f"of type {type(value).__name__}, which is too large to show"
    return text if len(text) <= 80 else text[:77] + "..."
