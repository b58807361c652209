"""Tasks from a JSONL file: one JSON object a line, with named fields."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rolecall.errors import TaskError
from rolecall.tasks.rows import ExactFloat, Row, RowSource, brief


@dataclass(frozen=True, kw_only=True, slots=True)
class Jsonl(RowSource):
    """A JSONL file, e.g. `Jsonl(path="aime.jsonl", question="query", answer="ans_box", id="qid")`.

    UTF-8, with or without a byte-order mark; blank lines are skipped. Every error names the line.
    """

    path: str

    @property
    def label(self) -> str:
        return f"jsonl {Path(self.path).name}"

    @property
    def prefix(self) -> str:
        return f"jsonl:{Path(self.path).stem}"

    def rows(self) -> Iterator[Row]:
        try:
            with Path(self.path).open("rb") as lines:
                for number, line in enumerate(lines, start=1):
                    data = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
                    if data.strip():
                        yield Row(number, f"line {number}", self._parse(data, number))
        except OSError as error:
            raise TaskError(f"jsonl {self.path!r} cannot be read: {error.strerror}; check `path`") from error

    def _parse(self, data: bytes, number: int) -> dict[str, Any]:
        try:
            value = json.loads(data.decode("utf-8"), parse_float=ExactFloat, parse_constant=_no_number)
        except UnicodeDecodeError as error:
            raise TaskError(f"{self.label}, line {number} is not UTF-8 ({error}); save the file as UTF-8") from error
        except RecursionError as error:
            raise TaskError(f"{self.label}, line {number} nests too deep to be read") from error
        except ValueError as error:
            raise TaskError(
                f"{self.label}, line {number} is not JSON: {error}; wanted one JSON object a line"
            ) from error
        if b"\\u" in data and any("\ud800" <= letter <= "\udfff" for letter in json.dumps(value, ensure_ascii=False)):
            raise TaskError(
                f"{self.label}, line {number} holds half of a surrogate pair (\\ud800 to \\udfff), no character: "
                f"correct the row"
            )
        if not isinstance(value, dict):
            raise TaskError(f"{self.label}, line {number} is {brief(value)}; wanted one JSON object a line")
        return value


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no JSON number")
