"""Freed memory stays in a training process, where glibc allocates it."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys, torch
from rolecall.allocator import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(8):
        torch.ones(1 << 24)  # 64 MiB, freed at once
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults()
print(faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the allocator of glibc is asked")
def test_memory_that_is_freed_and_asked_for_again_costs_no_page_faults():
    faults = {
        how: int(subprocess.run([sys.executable, "-c", SCRIPT, how], capture_output=True, text=True, check=True).stdout)
        for how in ("keep", "plain")
    }
    assert faults["keep"] < 40_000 < 100_000 < faults["plain"]  # of 131,072; a block may move
