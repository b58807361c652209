"""The Parquet files of a run as they are on disk now: which count, when each changed, and what cannot be read.

A run writes files aside and renames them, and folds many small ones into a large one. So a listing may hold a small
file whose rows are in a large one already, and a file that was listed may be gone a moment later.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rolecall.errors import UsageError


class Unreadable(UsageError):
    """A file of a run that is there and cannot be read, e.g. because it is cut short."""

    kind = "unreadable"


class NotThere(UsageError):
    """What a page asks for does not exist: a run, a step, an episode, a turn."""

    kind = "not_there"


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One Parquet file at one moment; another stamp (time in ns, size) means other contents.

    >>> Part(path=Path("metrics/00000003-00000008.parquet"), stamp=(0, 0)).span
    (3, 8)
    """

    path: Path
    stamp: tuple[int, int]

    @property
    def span(self) -> tuple[int, int]:
        """First and last step in the file, from its name."""
        first, _, last = self.path.stem.partition("-")
        return int(first), int(last or first)


def step_parts(folder: Path) -> list[Part]:
    """The files `<first>-<last>.parquet` of a folder by step, without those whose span lies inside another's."""
    found = [part for part in (_part(path) for path in folder.glob("[0-9]*.parquet") if _is_span(path.stem)) if part]
    found.sort(key=lambda part: (part.span[0], -part.span[1]))
    kept: list[Part] = []
    for part in found:
        if not kept or part.span[1] > kept[-1].span[1]:
            kept.append(part)
    return kept


def named_parts(folder: Path) -> dict[str, Part]:
    """The files `<name>.parquet` of a folder, by name; files still being written begin with a dot and are left out."""
    found = {path.stem: _part(path) for path in sorted(folder.glob("*.parquet")) if not path.name.startswith(".")}
    return {name: part for name, part in found.items() if part}


def read_columns(part: Part, columns: Sequence[str]) -> pa.Table:
    """Some columns of a file; `Unreadable` says which file and why."""
    try:
        with pq.ParquetFile(part.path) as file:
            return file.read(columns=list(columns), use_threads=False)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise unreadable(part, error) from None


def unreadable(part: Part, error: Exception) -> Unreadable:
    """The words for a file that cannot be read."""
    words = str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else type(error).__name__
    where = f"{part.path.parent.name}/{part.path.name}"
    return Unreadable(f"{where} cannot be read and is left out; wanted a whole Parquet file, got: {words}")


def _is_span(stem: str) -> bool:
    first, _, last = stem.partition("-")
    return first.isdecimal() and (not last or last.isdecimal())


def _part(path: Path) -> Part | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return Part(path=path, stamp=(found.st_mtime_ns, found.st_size))
