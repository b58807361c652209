"""The process of one untrusted program: put under its limits, then given the source. It never returns.

File descriptors: 0, 1, 2 the program's own; 3 the job as JSON; 4 the channel, where the job has one.

| mode | what runs |
|---|---|
| program | the source as `__main__`; input and output are 0 and 1 |
| call | the source, then one function with given arguments; its value goes to the channel |
| serve | the source, then calls that come over the channel, until it closes |
| judge | trusted code of a test; the functions that it names are calls over the channel |
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import io
import json
import os
import random
import resource
import struct
import sys
import threading
import traceback
import types
from typing import Any, NoReturn

from rolecall.sandbox.inside import seccomp, values

JOB, CHANNEL = 3, 4
MAX_FRAME = 16 << 20
MIB = 1 << 20
STACK_BYTES = 64 * MIB
EXIT_RAISED = 1
SET_UP = b"1"


_FROM_PROGRAM: list[Exception] = []  # what its judge raised for it, which is not the test's own fault


class ProgramGone(BaseException):
    """The program under test ended while its judge waited for a value."""


def run(limits: dict[str, Any], tell: int, alone: bool) -> NoReturn:
    """Run the job of descriptor 3 under `limits`, and end the process. `tell` is told when all limits hold; `alone`
    says that no namespaces help the filter of system calls."""
    try:
        job = json.loads(_read_all(JOB))
        os.close(JOB)
        _limit(limits)
        seccomp.confine(alone)
    except BaseException as error:  # noqa: BLE001 - whatever it is: nothing untrusted has run yet
        os.write(2, f"{type(error).__name__}: {error}".encode())
        os._exit(EXIT_RAISED)
    os.write(tell, SET_UP)
    os.close(tell)
    _standard_streams()
    random.seed(0)  # the same program gives the same output again
    code = 0
    try:
        _MODES[job["mode"]](job)
        threading._shutdown()  # type: ignore[attr-defined]
    except SystemExit as error:
        code = _exit_code(error)
    except BaseException as error:  # noqa: BLE001 - the program's own
        code = EXIT_RAISED
        _say(error)
    _end(code)


def _limit(limits: dict[str, Any]) -> None:
    cpu = int(limits["cpu_s"]) + 1
    for kind, value in (
        (resource.RLIMIT_AS, limits["memory_mib"] * MIB),
        (resource.RLIMIT_CPU, cpu),
        (resource.RLIMIT_FSIZE, limits["output_bytes"]),
        (resource.RLIMIT_NOFILE, limits["open_files"]),
        (resource.RLIMIT_NPROC, limits["threads"] + 1),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))
    hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
    stack = STACK_BYTES if hard == resource.RLIM_INFINITY else min(STACK_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_STACK, (stack, stack))


def _standard_streams() -> None:
    reader = io.BufferedReader(io.FileIO(0, "rb", closefd=False))
    sys.stdin = io.TextIOWrapper(reader, encoding="utf-8", errors="surrogateescape")
    writers = [io.BufferedWriter(io.FileIO(number, "wb", closefd=False)) for number in (1, 2)]
    sys.stdout = io.TextIOWrapper(writers[0], encoding="utf-8", errors="surrogateescape")
    sys.stderr = io.TextIOWrapper(writers[1], encoding="utf-8", errors="backslashreplace")
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # type: ignore[misc]
    sys.argv = ["program.py"]


def _load(source: str, name: str = "__main__") -> dict[str, Any]:
    """The names of a source that has run as module `name`."""
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(source, "program.py", "exec", dont_inherit=True), module.__dict__)
    return module.__dict__


def _program(job: dict[str, Any]) -> None:
    _load(job["source"])


def _call(job: dict[str, Any]) -> None:
    found = _function(_load(job["source"]), job["function"])
    data = values.dumps(found(*values.loads(job["arguments"], arrays=True)))
    while data:
        data = data[os.write(CHANNEL, data) :]


def _serve(job: dict[str, Any]) -> None:
    names = _load(job["source"])
    while (frame := _receive()) is not None:
        try:
            name, arguments, keywords = values.loads(frame, arrays=True)
            answer = values.dumps(("value", _function(names, name)(*arguments, **keywords)))
        except Exception as error:  # noqa: BLE001 - the judge raises it again
            answer = values.dumps(("raised", type(error).__name__, str(error)[:500]))
        _send(answer)


def _judge(job: dict[str, Any]) -> None:
    """Writes one frame `V` with a pair: did the test pass, and what it said."""
    try:
        code = compile(job["source"], "test.py", "exec", dont_inherit=True)
        names = _load(job["setup"])
    except BaseException as error:  # noqa: BLE001 - the test itself is broken
        _send(b"V" + values.dumps(("broken", f"{type(error).__name__}: {error}"[:500])))
        return
    names.update({name: _proxy(name) for name in job["functions"]})
    passed, detail = "yes", ""
    try:
        exec(code, names)
    except ProgramGone:
        passed, detail = "no", "the program ended"
    except ImportError as error:
        own = not any(error is one for one in _FROM_PROGRAM)
        passed, detail = ("broken" if own else "no"), f"{type(error).__name__}: {error}"[:500]
    except AssertionError as error:
        passed, detail = "no", f"assertion failed: {error}"[:500] if str(error) else _failed_line(error)
    except BaseException as error:  # noqa: BLE001 - a program's exception, or what a wrong value does to the test
        passed, detail = "no", f"{type(error).__name__}: {error}"[:500]
    _send(b"V" + values.dumps((passed, detail)))


def _failed_line(error: BaseException) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == "test.py"]
    return f"assertion failed in line {frames[-1].lineno} of the test" if frames else "assertion failed"


def _proxy(name: str) -> Any:
    def ask(*arguments: Any, **keywords: Any) -> Any:
        _send(b"C" + values.dumps((name, arguments, keywords)))
        frame = _receive()
        if frame is None:
            raise ProgramGone
        kind, *rest = values.loads(frame, arrays=True)
        if kind == "value":
            return rest[0]
        found = getattr(builtins, str(rest[0]), None)
        usual = isinstance(found, type) and issubclass(found, Exception) and not issubclass(found, UnicodeError)
        _FROM_PROGRAM.append((found if usual else RuntimeError)(rest[1]))  # type: ignore[misc]
        raise _FROM_PROGRAM[-1]

    ask.__name__ = name
    return ask


def _function(names: dict[str, Any], name: str) -> Any:
    """A function of the program, or a method of its class `Solution`, by its name."""
    if name in names:
        return names[name]
    found = getattr(names["Solution"](), name, None) if "Solution" in names else None
    if found is None:
        raise NameError(f"the program has no function {name!r}")
    return found


def _send(data: bytes) -> None:
    data = struct.pack("!I", len(data)) + data
    while data:
        data = data[os.write(CHANNEL, data) :]


def _receive() -> bytes | None:
    head = _exactly(4)
    return None if head is None else _exactly(struct.unpack("!I", head)[0])


def _exactly(count: int) -> bytes | None:
    chunks = []
    while count:
        chunk = os.read(CHANNEL, min(count, MIB))
        if not chunk:
            return None
        chunks.append(chunk)
        count -= len(chunk)
    return b"".join(chunks)


def _read_all(descriptor: int) -> bytes:
    with open(descriptor, "rb", closefd=False) as file:
        return file.read()


def _exit_code(error: SystemExit) -> int:
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF
    os.write(2, str(error.code).encode(errors="replace")[:2000])
    return EXIT_RAISED


def _say(error: BaseException) -> None:
    lines = traceback.format_exception(error)
    os.write(2, "".join(line for line in lines if "/inside/" not in line)[-4000:].encode(errors="replace"))


def _end(code: int) -> NoReturn:
    try:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException as error:  # noqa: BLE001 - output past its limit, or closed
        code = code or EXIT_RAISED
        with contextlib.suppress(OSError):
            _say(error)
    os._exit(code)


_MODES = {"program": _program, "call": _call, "serve": _serve, "judge": _judge}
