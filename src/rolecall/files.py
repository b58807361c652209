"""Files that are written whole or not at all, files that one process holds, and the named points at which tests kill
the process or fill the disk."""

from __future__ import annotations

import errno
import fcntl
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

FAULT = "ROLECALL_FAULT"
POINTS = (
    "config",
    "environment",
    "trackers",
    "tensorboard",
    "inflight",
    "partners",
    "episodes",
    "metrics",
    "alarms",
    "compact",
    "compact/delete",
    "forget",
    "evaluation/episodes",
    "evaluation",
    "checkpoint/weights",
    "checkpoint/learner",
    "checkpoint/rng",
    "checkpoint/extra",
    "checkpoint/manifest",
    "checkpoint/rename",
    "checkpoint/best",
    "checkpoint/prune",
    "checkpoint/prune/delete",
    "summary",
    "matrix",
)
KILLED = 137

_passed: Counter[str] = Counter()


def writing(point: str) -> None:
    """Called where a run changes its files. A test arms one point: `ROLECALL_FAULT=kill:metrics:2` ends the process
    when it comes to "metrics" for the second time, `full:metrics` raises there as a full disk does."""
    assert point in POINTS, point
    how, _, rest = os.environ.get(FAULT, "").partition(":")
    where, _, nth = rest.partition(":")
    if where != point:
        return
    _passed[point] += 1
    if _passed[point] != int(nth or 1):
        return
    if how == "kill":
        os._exit(KILLED)
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def write_aside(target: Path, point: str, write: Callable[[Path], object]) -> None:
    """Have `write` fill a file beside `target`, flush it and rename it: a kill leaves the old file or the new one."""
    aside = target.with_name(f".{target.name}.tmp")
    try:
        write(aside)
        writing(point)
        flush(aside)
        os.replace(aside, target)
    except OSError:
        aside.unlink(missing_ok=True)
        raise


def write_flushed(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def flush(path: Path) -> None:
    """See that a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def hold(file: IO[Any] | int) -> bool | None:
    """Lock an open file for this process until it is closed, however the process ends. True: held; False: another one
    holds it; None: the file system knows no locks, and nobody can tell."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
