"""Which episodes a reader should see: the same test task before and after, and peers of one task that won and lost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rolecall.report.read import RunData, number_of, parts, read_records, read_table, turns_of

COLUMNS = ("step", "episode", "task", "outcome", "team_score", "num_turns")
MAX_TURNS = 24


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One line of an episodes file, without the episode itself."""

    step: int
    episode: str
    task: str
    outcome: str
    score: float | None
    num_turns: int

    @property
    def won(self) -> bool:
        return self.score is not None and self.score >= 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    """An episode to show: its record as stored, and a heading such as `before training`."""

    heading: str
    row: Row
    record: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Episodes of one task side by side, and what they are an example of."""

    title: str
    shown: tuple[Shown, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """Rows to be read later from `part`, by heading."""

    title: str
    rows: tuple[tuple[str, Path, Row], ...]


def rows_of(part: Path, problems: list[str]) -> list[Row]:
    """The rows of an episodes file without the episodes themselves."""
    table = read_table(part, COLUMNS, problems)
    if table is None:
        return []
    columns = (table.column(name).to_pylist() for name in COLUMNS)
    return [
        Row(
            step=int(step or 0),
            episode=str(episode),
            task=str(task),
            outcome=str(outcome),
            score=number_of(score),
            num_turns=int(num_turns or 0),
        )
        for step, episode, task, outcome, score, num_turns in zip(*columns, strict=True)
    ]


def examples(run: RunData, problems: list[str]) -> list[Group]:
    """The groups of episodes for the page; each kind of which the run has none is left out."""
    return _read([*_evaluation_choices(run, problems), *_training_choices(run, problems)], problems)


KINDS = (
    ("Lost before, won after", False, True, 2),
    ("Won before, lost after", True, False, 1),
    ("Lost before and after", False, False, 1),
    ("Won before and after", True, True, 1),
)


def _evaluation_choices(run: RunData, problems: list[str]) -> Iterable[Choice]:
    """Pairs of episodes on one test task, before and after, of the four kinds; the longest path first, since the
    later roles act there."""
    files = {when: run.path / "evaluations" / f"{when}.parquet" for when in ("before", "after")}
    first = {when: _first_of_task(rows_of(part, problems)) for when, part in files.items() if part.is_file()}
    if len(first) < 2:
        return
    both = [(first["before"][task], first["after"][task]) for task in first["before"] if task in first["after"]]
    usual = len(run.roles)
    both.sort(key=lambda pair: sum(abs(row.num_turns - usual) for row in pair))
    for title, before, after, count in KINDS:
        alike = [pair for pair in both if (pair[0].won, pair[1].won) == (before, after)]
        name = f"{title}: {len(alike)} of {len(both)} test tasks"
        for old, new in alike[:count]:
            yield Choice(
                title=name,
                rows=(("before training", files["before"], old), ("after training", files["after"], new)),
            )
            name = ""


def _first_of_task(rows: Iterable[Row]) -> dict[str, Row]:
    found: dict[str, Row] = {}
    for row in rows:
        found.setdefault(row.task, row)
    return found


def _training_choices(run: RunData, problems: list[str]) -> Iterable[Choice]:
    """One task in the first and in the last step of training, won by one episode and lost by another."""
    files = parts(run.path / "episodes")
    if not files:
        return
    done: set[int] = set()
    for part, which in ((files[-1], "last"), (files[0], "first")):
        rows = rows_of(part, problems)
        if not rows:
            continue
        step = max(row.step for row in rows) if which == "last" else min(row.step for row in rows)
        if step in done:
            continue
        done.add(step)
        pair = _peers([row for row in rows if row.step == step], len(run.roles))
        if pair:
            names = [f"training, step {step}: {'won' if row.won else 'lost'}" for row in pair]
            yield Choice(
                title=f"One task in step {step}: what each turn was paid",
                rows=tuple((name, part, row) for name, row in zip(names, pair, strict=True)),
            )


def _peers(rows: Sequence[Row], usual: int) -> tuple[Row, ...]:
    """A won and a lost episode of one task, where the step has such a task; else one episode."""
    by_task: dict[str, list[Row]] = {}
    for row in rows:
        by_task.setdefault(row.task, []).append(row)
    best: tuple[int, tuple[Row, ...]] | None = None
    for own in by_task.values():
        near = sorted(own, key=lambda row: abs(row.num_turns - usual))
        won, lost = (next((row for row in near if row.won is side), None) for side in (True, False))
        pair = tuple(row for row in (won, lost) if row is not None)
        rank = sum(abs(row.num_turns - usual) for row in pair) + (1000 if len(pair) < 2 else 0)
        if best is None or rank < best[0]:
            best = (rank, pair)
    return best[1] if best else ()


def _read(choices: Sequence[Choice], problems: list[str]) -> list[Group]:
    """The chosen episodes, each file read once."""
    wanted: dict[Path, set[str]] = {}
    for choice in choices:
        for _, part, row in choice.rows:
            wanted.setdefault(part, set()).add(row.episode)
    records: dict[tuple[Path, str], Mapping[str, Any]] = {}
    for part, names in wanted.items():
        for name, record in read_records(part, names, problems):
            if turns_of(record):
                records[part, name] = record
            else:
                problems.append(f"an episode in {part.parent.name}/{part.name} has no turns that can be shown")
    groups = []
    for choice in choices:
        shown = tuple(
            Shown(heading=heading, row=row, record=records[part, row.episode])
            for heading, part, row in choice.rows
            if (part, row.episode) in records
        )
        if shown:
            groups.append(Group(title=choice.title, shown=shown))
    return groups
