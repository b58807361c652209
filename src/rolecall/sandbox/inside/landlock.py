"""Landlock: this process and all that it forks may reach the given paths and no others, with no way back.

The kernel says how much it offers by a number, its ABI: 1 (Linux 5.13) knows reading and writing of files, 2 moving
them between folders, 3 (6.2) truncating, 4 (6.7) TCP, 5 (6.10) ioctl of devices, 6 (6.12) signals and abstract sockets.
What no ABI restricts: metadata (stat, chmod, times, extended attributes), of which `seccomp.py` refuses the changes.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Iterable

CREATE, ADD_RULE, RESTRICT = 444, 445, 446  # the same numbers on every machine
VERSION = 1
PATH_BENEATH = 1
WHOLE = 3  # below this a file that may be read may be truncated
NEWEST = 6  # what is newer restricts nothing that is not refused here already

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
REMOVE_DIR, REMOVE_FILE, MAKE_DIR, MAKE_REG, MAKE_SYM = 1 << 4, 1 << 5, 1 << 7, 1 << 8, 1 << 12
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
BIND_TCP, CONNECT_TCP = 1 << 0, 1 << 1
SCOPE_ABSTRACT_SOCKET, SCOPE_SIGNAL = 1 << 0, 1 << 1

READ = READ_FILE | READ_DIR
DEVICE = READ_FILE | WRITE_FILE
FOLDER = READ | WRITE_FILE | TRUNCATE | REFER | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | MAKE_SYM
"""In the one folder: everything but devices, sockets, pipes with names, and running programs."""

_LIBC = ctypes.CDLL(None, use_errno=True)


def abi() -> int:
    """What this kernel offers, at most `NEWEST`; 0 for nothing."""
    if not sys.platform.startswith("linux"):
        return 0  # elsewhere the number is another call's
    found = _LIBC.syscall(CREATE, None, ctypes.c_size_t(0), ctypes.c_uint(VERSION))
    return max(0, min(int(found), NEWEST))


def rights(of: int) -> int:
    """Every right on files that ABI `of` knows, and therefore refuses where no rule gives it.

    >>> rights(3) & TRUNCATE == TRUNCATE, rights(2) & TRUNCATE
    (True, 0)
    """
    last = {1: 12, 2: 13, 3: 14, 4: 14}.get(of, 15)
    return (1 << (last + 1)) - 1


def ruleset(of: int) -> bytes:
    """The kernel's `struct landlock_ruleset_attr`, as long as ABI `of` knows it."""
    fields = [rights(of)]
    if of >= 4:
        fields.append(BIND_TCP | CONNECT_TCP)
    if of >= 6:
        fields.append(SCOPE_ABSTRACT_SOCKET | SCOPE_SIGNAL)
    return struct.pack(f"={len(fields)}Q", *fields)


def restrict(of: int, rules: Iterable[tuple[str, int]]) -> None:
    """From here on only `rules` hold: what may be done at and beneath a path. `OSError` when the kernel refuses; it
    wants `no_new_privs`. A path that is not there is left out."""
    made = ruleset(of)
    handle = _call(CREATE, ctypes.c_char_p(made), ctypes.c_size_t(len(made)), ctypes.c_uint(0))
    try:
        for path, given in rules:
            try:
                place = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            try:
                allowed = struct.pack("=Qi", given & rights(of), place)
                _call(
                    ADD_RULE,
                    ctypes.c_int(handle),
                    ctypes.c_int(PATH_BENEATH),
                    ctypes.c_char_p(allowed),
                    ctypes.c_uint(0),
                )
            finally:
                os.close(place)
        _call(RESTRICT, ctypes.c_int(handle), ctypes.c_uint(0))
    finally:
        os.close(handle)


def _call(number: int, *arguments: object) -> int:
    found = int(_LIBC.syscall(ctypes.c_long(number), *arguments))
    if found < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"Landlock's system call {number}: {os.strerror(code)}")
    return found
