"""Where an engine puts weight files for its workers: a folder in shared memory that a killed run does not leave behind.

Each folder holds a lock for as long as its engine lives. A new engine removes those whose lock is free.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from rolecall.files import hold

SHARED_MEMORY = Path("/dev/shm")
PREFIX = "rolecall-weights-"
LOCK = ".lock"


class WeightsFolder:
    """A temporary folder; `cleanup` removes it, and so does the next engine if this process is killed."""

    def __init__(self, root: str | Path | None = None) -> None:
        self.root = Path(root or weights_root() or tempfile.gettempdir())
        sweep(self.root)
        self.name = tempfile.mkdtemp(prefix=PREFIX, dir=self.root)
        fresh = Path(self.name) / f"{LOCK}.new"
        self._lock = fresh.open("w")
        hold(self._lock)  # on a file system without locks sweep leaves the folder alone
        fresh.rename(fresh.with_name(LOCK))  # seen by others only once it is held

    def cleanup(self) -> None:
        self._lock.close()
        shutil.rmtree(self.name, ignore_errors=True)


def sweep(root: Path) -> None:
    """Remove this user's folders whose engine is gone. One without a lock file has no weights in it yet."""
    for folder in root.glob(f"{PREFIX}*"):
        with suppress(OSError):
            if folder.stat().st_uid != os.getuid():
                continue
            with (folder / LOCK).open("r+") as lock:
                if hold(lock):
                    shutil.rmtree(folder, ignore_errors=True)


def weights_root() -> str | None:
    """Where weight files live: shared memory if there is any to write to, else the usual temporary folder."""
    usable = SHARED_MEMORY.is_dir() and os.access(SHARED_MEMORY, os.W_OK)
    return str(SHARED_MEMORY) if usable and shutil.disk_usage(SHARED_MEMORY).free > 1 << 28 else None
