"""The filter of system calls as the kernel reads it, for both machines: each instruction run by hand, each number
looked up in the kernel's own headers where they are installed."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from rolecall.sandbox.inside import calls, seccomp

PID = 1234
ALLOWED, REFUSED, MISSING, KILLED = "allowed", "EPERM", "ENOSYS", "killed"
WORDS = {0x7FFF0000: ALLOWED, 0x50001: REFUSED, 0x50026: MISSING, 0x80000000: KILLED}
ARGUMENT_NAMES = ("kill", "tgkill", "prlimit64", "clone", "fcntl", "ioctl", "prctl")
HEADERS = {
    "x86_64": (Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), r"#define __NR_(\w+)\s+(\d+)"),
    "aarch64": (Path("/usr/include/asm-generic/unistd.h"), r"#define __NR(?:3264)?_(\w+)\s+(\d+)"),
}
SINCE_HEADERS = 440  # older headers do not know later calls

Ask = Callable[..., str]


@pytest.fixture(params=["x86_64", "aarch64"])
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(seccomp.platform, "machine", lambda: request.param)
    return str(request.param)


def asked(machine: str, alone: bool) -> Ask:
    """What the filter says to a call, by its number (or name) and arguments."""
    data = seccomp.program_filter(PID, alone)
    code = [struct.unpack_from("=HBBI", data, at) for at in range(0, len(data), 8)]
    arch, table, of_alone = calls.ARCHES[machine]
    known = {**table, **of_alone, **calls.SINCE_5, **calls.ALONE_SINCE_5}
    known |= dict(zip(ARGUMENT_NAMES, calls.ARGUMENT_CALLS[machine], strict=True))

    def ask(call: str | int, *arguments: int, arch: int = arch) -> str:
        number = known[call] if isinstance(call, str) else call
        given = [*arguments, 0, 0, 0, 0, 0, 0][:6]
        seen = struct.pack("=iIQ6Q", number, arch, 0, *given)
        value = at = 0
        while True:
            operation, if_true, if_false, constant = code[at]
            at += 1
            if operation == seccomp.LOAD:
                (value,) = struct.unpack_from("=I", seen, constant)
            elif operation == seccomp.RETURN:
                return WORDS[constant]
            else:
                tests = {
                    seccomp.JUMP_EQUAL: value == constant,
                    seccomp.JUMP_ABOVE: value >= constant,
                    seccomp.JUMP_SET: bool(value & constant),
                }
                at += if_true if tests[operation] else if_false

    return ask


@pytest.mark.parametrize("alone", [False, True])
def test_the_filter_says_no_to_what_leaves_the_process_and_yes_to_the_rest(machine: str, alone: bool) -> None:
    ask = asked(machine, alone)
    assert ask(0 if machine == "x86_64" else 63) == ALLOWED  # read
    assert {ask(name) for name in (*calls.ARCHES[machine][1], *calls.SINCE_5)} == {REFUSED}
    for name in ("kill", "tgkill"):
        assert [ask(name, pid, 9) for pid in (PID, 1, 0, (1 << 64) - 1)] == [ALLOWED, REFUSED, REFUSED, REFUSED]
    assert [ask("prlimit64", pid) for pid in (0, PID, 1)] == [ALLOWED, ALLOWED, REFUSED]
    assert [ask("clone", flags) for flags in (0x10000, 0x3D0F00, 17, 0)] == [ALLOWED, ALLOWED, REFUSED, REFUSED]
    assert ask(calls.CLONE3) == MISSING
    assert [ask("fcntl", 5, command) for command in (0, 3, 8, 15, 1024)] == [ALLOWED, ALLOWED] + [REFUSED] * 3
    assert ask(0, arch=0x40000003) == KILLED  # a program for another machine
    if machine == "x86_64":
        assert ask(0x40000000) == REFUSED  # x32


def test_without_namespaces_it_refuses_what_landlock_does_not_know(machine: str) -> None:
    inside, alone = asked(machine, False), asked(machine, True)
    for name in (*calls.ARCHES[machine][2], *calls.ALONE_SINCE_5):
        assert (inside(name), alone(name)) == (ALLOWED, REFUSED), name
    for option, words in ((1, REFUSED), (36, REFUSED), (15, ALLOWED), (38, ALLOWED)):
        assert (inside("prctl", option), alone("prctl", option)) == (ALLOWED, words)
    assert [alone("ioctl", 1, request) for request in (0x5401, 0x541B, 0x40086602, 0x8901)] == [ALLOWED] * 2 + [
        REFUSED
    ] * 2
    assert [inside("ioctl", 1, request) for request in (0x5401, 0x40086602, 0x8901)] == [ALLOWED, ALLOWED, REFUSED]


@pytest.mark.parametrize("name", HEADERS)
def test_numbers_are_those_of_the_kernels_headers(name: str) -> None:
    header, pattern = HEADERS[name]
    if not header.is_file():
        pytest.skip(f"{header} is not installed")
    listed: dict[str, int] = {}
    for found in re.finditer(pattern, header.read_text()):
        listed.setdefault(found[1], int(found[2]))
    _, table, of_alone = calls.ARCHES[name]
    ours = {**table, **of_alone, **calls.SINCE_5, **calls.ALONE_SINCE_5}
    ours |= dict(zip(ARGUMENT_NAMES, calls.ARGUMENT_CALLS[name], strict=True))
    assert len(ours) > 90
    wrong = {call: number for call, number in ours.items() if listed.get(call, number) != number}
    assert wrong == {}
    assert [call for call, number in ours.items() if call not in listed and number < SINCE_HEADERS] == []
