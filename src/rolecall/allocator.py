"""What a process on a CPU does with memory that PyTorch frees: keep it, for the next batch asks for as much again."""

from __future__ import annotations

import ctypes
import platform
from functools import cache

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # of malloc.h
KEPT_BYTES = 2**31 - 1
AHEAD_BYTES = 1 << 26


@cache
def keep_freed_memory() -> bool:
    """Tell glibc's allocator not to give freed memory back to the system; whether it took it.

    By itself it returns every large block at once, and its pages are cleared again one fault at a time when the next
    batch asks for them: a sixth of an update at a million parameters. The process stays at its peak size. Elsewhere
    (musl, macOS, Windows), and under another allocator, this does nothing.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    settings = ((M_MMAP_THRESHOLD, 1 << 30), (M_TRIM_THRESHOLD, KEPT_BYTES), (M_TOP_PAD, AHEAD_BYTES))
    taken = [mallopt(name, value) == 1 for name, value in settings]
    return all(taken)
