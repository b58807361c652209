"""The `record` column of episode files: one whole episode at a time, read from the row group that holds it."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rolecall.viewer.parts import Part, Unreadable, unreadable

CACHE_BYTES = 192 * 2**20
BATCH_ROWS = 512


class Records:
    """Reads records, and keeps the row groups read last while they fit into `CACHE_BYTES`."""

    def __init__(self, cache_bytes: int = CACHE_BYTES) -> None:
        self._cache_bytes = cache_bytes
        self._groups: OrderedDict[tuple[Part, int], pa.ChunkedArray] = OrderedDict()
        self._sizes: dict[Part, list[int]] = {}

    def record(self, part: Part, row: int) -> dict[str, Any]:
        """One record as `{"graded", "rewards", "advantages"}`; older ones that hold the graded episode alone too."""
        return parse_record(self._text(part, row), part, row)

    def texts(self, part: Part) -> Iterator[tuple[int, pa.Array]]:
        """All records of a file as text, a batch at a time, with the row of each batch's first."""
        start = 0
        try:
            with pq.ParquetFile(part.path) as file:
                for batch in file.iter_batches(BATCH_ROWS, columns=["record"]):
                    yield start, batch.column(0)
                    start += batch.num_rows
        except FileNotFoundError:
            raise
        except (pa.ArrowException, OSError) as error:
            raise unreadable(part, error) from None

    def _text(self, part: Part, row: int) -> str:
        group, offset = self._group_of(part, row)
        column = self._groups.get((part, group))
        if column is None:
            try:
                with pq.ParquetFile(part.path) as file:
                    column = file.read_row_group(group, columns=["record"]).column(0)
            except FileNotFoundError:
                raise
            except (pa.ArrowException, OSError) as error:
                raise unreadable(part, error) from None
        self._groups[part, group] = column
        self._groups.move_to_end((part, group))
        while len(self._groups) > 1 and sum(kept.nbytes for kept in self._groups.values()) > self._cache_bytes:
            self._groups.popitem(last=False)
        return str(column[offset].as_py())

    def _group_of(self, part: Part, row: int) -> tuple[int, int]:
        """Which row group holds a row, and where in it."""
        if part not in self._sizes:
            try:
                found = pq.read_metadata(part.path)
            except FileNotFoundError:
                raise
            except (pa.ArrowException, OSError) as error:
                raise unreadable(part, error) from None
            self._sizes[part] = [found.row_group(group).num_rows for group in range(found.num_row_groups)]
        for group, size in enumerate(self._sizes[part]):
            if row < size:
                return group, row
            row -= size
        raise Unreadable(f"row {row} is past the end of {part.path.name}")


def parse_record(text: str, part: Part, row: int) -> dict[str, Any]:
    """The record of a row in its present form, whichever it was written in; `Unreadable` when it holds no episode."""
    try:
        found = json.loads(text)
        record = found if "graded" in found else {"graded": found, "rewards": {}, "advantages": {}}
        turns_of(record)
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise Unreadable(
            f"row {row} of {part.path.name} holds no episode ({type(error).__name__}: {error}); shown without turns"
        ) from None
    return dict(record)


def turns_of(record: dict[str, Any]) -> list[dict[str, Any]]:
    """The turns of a record that are counted by it, in the order of their calls."""
    turns: list[dict[str, Any]] = record["graded"]["episode"]["turns"]
    return turns


def context_of(record: dict[str, Any]) -> list[dict[str, Any]]:
    """The turns before a candidate of agentic groups on its path: each is a candidate of its own, and counted there."""
    turns: list[dict[str, Any]] = record["graded"]["episode"].get("context") or []
    return turns


def path_of(record: dict[str, Any]) -> list[dict[str, Any]]:
    """All turns that led to the outcome."""
    return [*context_of(record), *turns_of(record)]
