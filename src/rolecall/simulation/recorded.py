"""The lengths of a role's completions in the episodes of a run folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rolecall.errors import ConfigError
from rolecall.report.read import mapping, parts, read_table, turns_of
from rolecall.simulation.lengths import Recorded


def recorded_lengths(run: Path, role: str) -> Recorded:
    """How many tokens the completions of a role had in training, over all steps that the folder holds."""
    problems: list[str] = []
    files = parts(run / "episodes")
    found = [
        size
        for file in files
        for record in records_of(file, problems)
        for turn in turns_of(record)
        if turn["key"][0] == role and (size := num_tokens(turn)) > 0
    ]
    if not found:
        what = f"; {problems[0]}" if problems else ""
        raise ConfigError(
            f"run folder {str(run)!r} holds no completion of role {role!r} (episode files: {len(files)}{what}); give "
            "a run of the same workflow, or another kind of lengths"
        )
    return Recorded(tuple(sorted(found)))


def records_of(file: Path, problems: list[str]) -> Iterator[Any]:
    table = read_table(file, ["record"], problems)
    if table is not None:
        for text in table.column("record").to_pylist():
            yield json.loads(text)


def num_tokens(turn: dict[str, Any]) -> int:
    ids = mapping(turn.get("completion")).get("token_ids")
    return len(ids) if isinstance(ids, list) else 0
