"""The filter of system calls of an untrusted program: one process, no exec, no network, no signals to others.

A refused call fails with EPERM, which Python raises as `PermissionError`. Numbers: Linux's tables of x86-64 and of
arm64. The filter is classic BPF (seccomp(2)).
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Sequence

from rolecall.sandbox.inside.calls import ALONE_SINCE_5, ARCHES, ARGUMENT_CALLS, CLONE3, SINCE_5

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38
SECCOMP_MODE_FILTER = 2
ALLOW, KILL, REFUSE = 0x7FFF0000, 0x80000000, 0x00050000
EPERM, ENOSYS = 1, 38
CLONE_THREAD = 0x10000
X32 = 0x40000000
LOAD, JUMP_EQUAL, JUMP_ABOVE, JUMP_SET, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NR, ARCH, ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data

OWNER_FCNTL, OWNER_IOCTL = (8, 15), (0x8901, 0x8902)  # F_SETOWN, F_SETOWN_EX; FIOSETOWN, SIOCSPGRP: signals by kernel
LEASES = (1024, 1026)  # F_SETLEASE, F_NOTIFY
TERMINAL_IOCTL = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)  # TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIO(N)CLEX
ENDING_PRCTL = (1, 36)  # PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER: what ends a program with its sandbox


def supported() -> bool:
    return platform.machine() in ARCHES


def program_filter(pid: int, alone: bool = False) -> bytes:
    """The filter of a program that runs as process `pid`, which it may signal; `alone` where it shares the machine's
    namespaces. `KeyError` on another machine."""
    machine = platform.machine()
    arch, calls, of_alone = ARCHES[machine]
    kill, tgkill, prlimit, clone, fcntl, ioctl, prctl_number = ARGUMENT_CALLS[machine]
    refused = {*calls.values(), *SINCE_5.values()}
    if alone:
        refused |= {*of_alone.values(), *ALONE_SINCE_5.values()}
    out = [_op(LOAD, ARCH), _op(JUMP_EQUAL, arch, 1, 0), _op(RETURN, KILL), _op(LOAD, NR)]
    if machine == "x86_64":
        out += [_op(JUMP_ABOVE, X32, 0, 1), _op(RETURN, REFUSE | EPERM)]
    for number in sorted(refused):
        out += [_op(JUMP_EQUAL, number, 0, 1), _op(RETURN, REFUSE | EPERM)]
    out += [
        _op(JUMP_EQUAL, CLONE3, 0, 1),
        _op(RETURN, REFUSE | ENOSYS),
    ]  # its flags are in memory: libc then uses clone
    out += _only(kill, 0, [pid]) + _only(tgkill, 0, [pid]) + _only(prlimit, 0, [0, pid])
    out += [_op(JUMP_EQUAL, clone, 0, 4), _op(LOAD, ARGUMENTS), _op(JUMP_SET, CLONE_THREAD, 0, 1)]
    out += [_op(RETURN, ALLOW), _op(RETURN, REFUSE | EPERM)]
    if alone:
        out += _only(ioctl, 1, TERMINAL_IOCTL) + _never(prctl_number, 0, ENDING_PRCTL)
    else:
        out += _never(ioctl, 1, OWNER_IOCTL)
    out += _never(fcntl, 1, OWNER_FCNTL + LEASES)
    return b"".join([*out, _op(RETURN, ALLOW)])


def _only(number: int, argument: int, allowed: Sequence[int]) -> list[bytes]:
    """Refuse call `number` unless its argument is one of `allowed`."""
    tests = [_op(JUMP_EQUAL, value, len(allowed) - index, 0) for index, value in enumerate(allowed)]
    body = [_op(LOAD, ARGUMENTS + 8 * argument), *tests, _op(RETURN, REFUSE | EPERM), _op(RETURN, ALLOW)]
    return [_op(JUMP_EQUAL, number, 0, len(body)), *body]


def _never(number: int, argument: int, refused: Sequence[int]) -> list[bytes]:
    """Refuse call `number` when its argument is one of `refused`."""
    tests = [_op(JUMP_EQUAL, value, len(refused) - index, 0) for index, value in enumerate(refused)]
    body = [_op(LOAD, ARGUMENTS + 8 * argument), *tests, _op(RETURN, ALLOW), _op(RETURN, REFUSE | EPERM)]
    return [_op(JUMP_EQUAL, number, 0, len(body)), *body]


def _op(code: int, k: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, k)


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


_LIBC = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, *arguments: int | ctypes.c_void_p) -> None:
    """`OSError` when the kernel refuses."""
    if _LIBC.prctl(option, *arguments, *[0] * (4 - len(arguments))) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl({option}): {os.strerror(code)}")


def confine(alone: bool = False) -> None:
    """From here on this process is under `program_filter`, with no way back."""
    rules = program_filter(os.getpid(), alone)
    buffer = ctypes.create_string_buffer(rules, len(rules))
    program = _Program(len(rules) // 8, ctypes.cast(buffer, ctypes.c_void_p))
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.cast(ctypes.pointer(program), ctypes.c_void_p))
