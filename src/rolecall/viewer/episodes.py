"""The episodes of one run: an index from the small columns; filters, order, pages, neighbours in a filtered list."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rolecall.viewer.arrays import floats, integers, scalar, truths
from rolecall.viewer.metrics import finite
from rolecall.viewer.parts import NotThere, Part, Unreadable, named_parts, read_columns, step_parts
from rolecall.viewer.records import Records, context_of, parse_record, path_of, turns_of

COLUMNS = ("step", "episode", "task", "outcome", "answer", "team_score", "num_turns")
TRAINING = "training"
ORDERS = ("newest", "oldest", "turns")


@dataclass(frozen=True, kw_only=True, slots=True)
class Query:
    """Which episodes: every field that is set must hold. `role` alone asks that the role acted; with a bound, that one
    of its turns has such a reward (without `role`: any turn). `text` looks in question, answer and all turns."""

    source: str = TRAINING
    step_min: int | None = None
    step_max: int | None = None
    outcome: str = ""
    team: str = ""  # right, wrong, failed
    task: str = ""
    role: str = ""
    reward_min: float | None = None
    reward_max: float | None = None
    text: str = ""
    order: str = "newest"

    @property
    def deep(self) -> bool:
        """Whether the records must be read, beyond the index columns."""
        return bool(self.role) or self.reward_min is not None or self.reward_max is not None


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """Some of the matching episodes. `total` is None while a text search has not come to the end."""

    rows: list[dict[str, Any]]
    total: int | None
    more: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnTable:
    """Of every turn in a file: its row, its role (an index into `roles`) and its reward (nan: none)."""

    roles: list[str]
    row: NDArray[np.int64]
    role: NDArray[np.int64]
    reward: NDArray[np.float64]


class Episodes:
    """The episodes of one run, over training and evaluations. A file that vanishes while it is used (it was folded into
    another) raises FileNotFoundError: refresh, and ask again."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.records = Records()
        self.problems: list[str] = []
        self._index: dict[Part, pa.Table] = {}
        self._turns: dict[Part, TurnTable] = {}
        self._parts: dict[str, list[Part]] = {}

    def refresh(self) -> None:
        """Look at the folders again and read the index columns of files that are new or changed."""
        parts = {TRAINING: step_parts(self.run / "episodes")}
        parts |= {name: [part] for name, part in named_parts(self.run / "evaluations").items()}
        problems: list[str] = []
        index = {part: self._read(part, problems) for files in parts.values() for part in files}
        self._parts, self._index, self.problems = parts, index, problems
        self._turns = {part: table for part, table in self._turns.items() if part in index}

    def sources(self) -> dict[str, int]:
        """Training and the evaluations of the run, with their numbers of episodes."""
        return {name: sum(self._index[part].num_rows for part in parts) for name, parts in self._parts.items()}

    def page(self, query: Query, offset: int, limit: int) -> Page:
        """`limit` matching episodes from `offset` on, each as a row of the list."""
        self._known(query.source)
        if query.text:
            found = list(_take(self._matches(query), offset + limit + 1))
            total = None if len(found) > offset + limit else len(found)
        else:
            found = list(self._matches(query))
            total = len(found)
        shown = found[offset : offset + limit]
        return Page(rows=[self.row(part, row) for part, row in shown], total=total, more=len(found) > offset + limit)

    def locate(self, source: str, episode: str) -> tuple[Part, int]:
        """Where an episode is; `NotThere` names the run's sources and an id that exists."""
        for part in reversed(self._known(source)):
            row = pc.index(self._index[part]["episode"], scalar(episode)).as_py()
            if row >= 0:
                return part, row
        raise NotThere(f"there is no episode {episode!r} among the {self.sources()[source]} of {source!r} in this run")

    def neighbours(self, query: Query, at: tuple[Part, int]) -> tuple[str | None, str | None]:
        """The episodes before and after one in a filtered list; None at its ends, or when it is not in the list."""
        before: tuple[Part, int] | None = None
        matches = self._matches(query)
        for found in matches:
            if found == at:
                return self._id(before), self._id(next(matches, None))
            before = found
        return None, None

    def step_of(self, at: tuple[Part, int]) -> int:
        """The step in which an episode was run."""
        return int(self._index[at[0]]["step"][at[1]].as_py())

    def siblings(self, source: str, step: int, task: str, peers: str | None = None) -> list[dict[str, Any]]:
        """All episodes of one task in one step: what an episode was compared with. Of a candidate, those whose turn was
        drawn with its own, by the name of these `peers`."""
        found: list[dict[str, Any]] = []
        for part in self._parts.get(source, []):
            table = self._index[part]
            same = pc.and_(pc.equal(table["task"], scalar(task)), pc.equal(table["step"], scalar(step)))
            rows = np.flatnonzero(truths(same)).tolist()
            if peers is not None:
                rows = [row for row in rows if self._peers(part, row) == peers]
            chosen = table.select(["episode", "outcome", "team_score"])
            found += [one for row in rows for one in _plain(chosen.slice(row, 1))]
        return found

    def _peers(self, part: Part, row: int) -> str | None:
        try:
            return str(turns_of(self.records.record(part, row))[-1]["peers"])
        except (Unreadable, LookupError):
            return None

    def step(self, step: int) -> list[dict[str, Any]]:
        """The index rows of one training step."""
        rows: list[dict[str, Any]] = []
        for part in self._parts.get(TRAINING, []):
            if part.span[0] <= step <= part.span[1]:
                table = self._index[part]
                rows += _plain(table.filter(pc.equal(table["step"], scalar(step))))
        return rows

    def row(self, part: Part, row: int) -> dict[str, Any]:
        """One row of the list: the index columns, the question, and each turn's role, reward and grade in short."""
        (found,) = _plain(self._index[part].slice(row, 1))
        try:
            record = self.records.record(part, row)
        except Unreadable as error:
            return found | {"question": "", "turns": [], "context": 0, "problem": str(error)}
        question = record["graded"]["episode"]["task"]["question"]
        turns = [_short(turn, record) for turn in turns_of(record)]
        return found | {"question": question, "turns": turns, "context": len(context_of(record))}

    def _known(self, source: str) -> list[Part]:
        if source not in self._parts:
            raise NotThere(f"the run has no episodes of {source!r}; it has {', '.join(self._parts)}")
        return self._parts[source]

    def _read(self, part: Part, problems: list[str]) -> pa.Table:
        if part in self._index and self._index[part].num_rows:
            return self._index[part]
        try:
            return read_columns(part, COLUMNS).combine_chunks()
        except Unreadable as error:
            problems.append(str(error))
            return pa.table({name: pa.array([], pa.string()) for name in COLUMNS})

    def _id(self, at: tuple[Part, int] | None) -> str | None:
        return None if at is None else str(self._index[at[0]]["episode"][at[1]].as_py())

    def _matches(self, query: Query) -> Iterator[tuple[Part, int]]:
        """Matching episodes in the order asked for. By step, files are looked at one after the other, only as far as
        the reader goes."""
        parts = [part for part in self._parts.get(query.source, []) if self._index[part].num_rows]
        if query.order == "turns":
            ranked = [
                (-int(turns), -index, int(row))
                for index, part in enumerate(parts)
                for row, turns in _with_column(self._index[part], self._rows(part, query), "num_turns")
            ]
            for _, index, row in sorted(ranked):
                if not query.text or self._holds(parts[-index], row, query.text):
                    yield parts[-index], row
            return
        for part in parts if query.order == "oldest" else reversed(parts):
            rows = self._rows(part, query)
            steps = integers(self._index[part]["step"])[rows]
            order = np.argsort(steps if query.order == "oldest" else -steps, kind="stable")
            for row in rows[order]:
                if not query.text or self._holds(part, int(row), query.text):
                    yield part, int(row)

    def _rows(self, part: Part, query: Query) -> NDArray[np.int64]:
        """The rows of a file that match; of a text, those that may: `_holds` has the last word."""
        table = self._index[part]
        mask = np.ones(table.num_rows, bool)
        steps = integers(table["step"])
        if query.step_min is not None:
            mask &= steps >= query.step_min
        if query.step_max is not None:
            mask &= steps <= query.step_max
        if query.outcome:
            mask &= truths(pc.equal(table["outcome"], scalar(query.outcome)))
        if query.task:
            mask &= truths(pc.equal(table["task"], scalar(query.task)))
        if query.team:
            mask &= _team_mask(table["team_score"], query.team)
        if query.deep and mask.any():
            mask &= self._turn_mask(part, query)
        if query.text and mask.any():
            mask &= self._text_mask(part, query.text)
        return np.flatnonzero(mask)

    def _turn_mask(self, part: Part, query: Query) -> NDArray[np.bool_]:
        turns = self._turn_table(part)
        chosen = np.ones(len(turns.row), bool)
        if query.role:
            chosen &= turns.role == (turns.roles.index(query.role) if query.role in turns.roles else -1)
        if query.reward_min is not None:
            chosen &= turns.reward >= query.reward_min
        if query.reward_max is not None:
            chosen &= turns.reward <= query.reward_max
        mask = np.zeros(self._index[part].num_rows, bool)
        mask[turns.row[chosen]] = True
        return mask

    def _turn_table(self, part: Part) -> TurnTable:
        """Read once a file: it takes all of its records."""
        known = self._turns.get(part)
        if known is not None:
            return known
        roles: dict[str, int] = {}
        rows: list[tuple[int, int, float]] = []
        for start, texts in self.records.texts(part):
            for at, text in enumerate(texts.to_pylist(), start):
                try:
                    record = parse_record(text, part, at)
                except Unreadable:
                    continue  # its row in the list says what is wrong
                for turn in turns_of(record):
                    total = record["rewards"].get(turn["id"], {}).get("total")
                    role = roles.setdefault(turn["key"][0], len(roles))
                    rows.append((at, role, np.nan if total is None else total))
        row, role_of, reward = np.array(rows, float).reshape(-1, 3).T
        table = TurnTable(roles=list(roles), row=row.astype(np.int64), role=role_of.astype(np.int64), reward=reward)
        self._turns[part] = table
        return table

    def _text_mask(self, part: Part, text: str) -> NDArray[np.bool_]:
        """Rows whose stored record holds a text somewhere: quick, and sometimes true of a name that nobody reads."""
        if not text.isascii():  # the two cases of other letters are stored as unlike escapes
            return np.ones(self._index[part].num_rows, bool)
        stored = json.dumps(text)[1:-1]
        found = [pc.match_substring(texts, stored, ignore_case=True) for _, texts in self.records.texts(part)]
        return np.concatenate([truths(mask) for mask in found])

    def _holds(self, part: Part, row: int, text: str) -> bool:
        """Whether a person who reads the episode meets a text, in any case of its letters."""
        try:
            return text.casefold() in _words(self.records.record(part, row))
        except Unreadable:
            return False


def _team_mask(scores: pa.ChunkedArray, team: str) -> NDArray[np.bool_]:
    """right: a whole score; wrong: less; failed: no grade could be given."""
    values = floats(scores)
    masks = {"failed": np.isnan(values), "right": values >= 1.0, "wrong": values < 1.0}
    return masks[team]


def _words(record: dict[str, Any]) -> str:
    """Everything in a record that a person reads, in one case."""
    episode = record["graded"]["episode"]
    words = [episode["task"]["question"], (episode["outcome"] or {}).get("answer")]
    for turn in path_of(record):
        words += [turn["text"], *(message["content"] for message in turn["messages"])]
    return "\n".join(str(word) for word in words if word).casefold()


def _short(turn: dict[str, Any], record: dict[str, Any]) -> dict[str, Any]:
    reward = record["rewards"].get(turn["id"], {})
    grade = record["graded"]["answers"].get(turn["id"])
    claim = turn["claim"]
    return {
        "role": turn["key"][0],
        "copy": turn["key"][1],
        "call": turn["key"][2],
        "claim": claim and claim["value"],
        "kind": claim and claim["kind"],
        "grade": grade and grade["status"],
        "reward": finite(reward.get("total")),
        "advantage": finite(record["advantages"].get(turn["id"])),
        "stop": turn["completion"]["stop"],
    }


def _plain(table: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.to_pylist()
    for row in rows:
        row["team_score"] = finite(row["team_score"])
    return rows


def _with_column(table: pa.Table, rows: NDArray[np.int64], name: str) -> Iterator[tuple[int, int]]:
    return zip(rows.tolist(), integers(table[name])[rows].tolist(), strict=True)


def _take(items: Iterator[tuple[Part, int]], number: int) -> Iterator[tuple[Part, int]]:
    for _, item in zip(range(number), items, strict=False):
        yield item
