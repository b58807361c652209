"""Finds one recorded episode in a run folder."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from rolecall.errors import UsageError, boundary
from rolecall.records import GradedEpisode, Reward
from rolecall.rollout.serial import from_dict
from rolecall.rollout.stored import transcript_of
from rolecall.rollout.transcript import Transcript
from rolecall.run_folder import RunFolder

TRAINING = "training"


@dataclass(frozen=True, kw_only=True, slots=True)
class Stored:
    """An episode as it was recorded; `source` is `training` or the name of an evaluation."""

    graded: GradedEpisode
    rewards: Mapping[str, Reward]
    advantages: Mapping[str, float]
    source: str
    replay: Mapping[str, Any] | None

    @property
    def transcript(self) -> Transcript:
        """`UsageError` when the row does not hold what a replay needs."""
        return transcript_of(self.graded.episode, self.replay)


def find_episode(folder: RunFolder, episode: str, source: str | None = None) -> Stored:
    """The episode of that id; the ids of evaluations repeat, and then `source` must say which is meant."""
    files = list(_files(folder.path))
    sources = sorted({name for name, _ in files})
    if source is not None and source not in sources:
        raise UsageError(f"--from is {source!r}; the run has {', '.join(sources) or 'no episodes yet'}")
    found: dict[str, str] = {}
    for name, file in files:
        if source in (None, name):
            for record in _column(file, "record", episode):
                found[name] = record
    if not found:
        raise UsageError(_no_such(folder, episode, [file for name, file in files if source in (None, name)]))
    if len(found) > 1:
        raise UsageError(
            f"episode {episode!r} is in {' and in '.join(found)}; say which, e.g. --from {next(iter(found))}"
        )
    name, record = next(iter(found.items()))
    with boundary(UsageError, f"reading the record of episode {episode!r}"):
        data = json.loads(record)
        return Stored(
            graded=from_dict(GradedEpisode, data["graded"]),
            rewards={turn: from_dict(Reward, reward) for turn, reward in data["rewards"].items()},
            advantages=data["advantages"],
            source=name,
            replay=data.get("replay"),
        )


def _files(run: Path) -> Iterator[tuple[str, Path]]:
    for file in sorted((run / "episodes").glob("[0-9]*.parquet")):
        yield TRAINING, file
    for file in sorted((run / "evaluations").glob("[!.]*.parquet")):
        yield file.stem, file


def _column(file: Path, column: str, episode: str | None = None) -> list[str]:
    """One column of an episodes file, of one episode or of all."""
    wanted = None if episode is None else [("episode", "=", episode)]
    try:
        with boundary(UsageError, f"reading {str(file)!r}"):
            return list(pq.read_table(file, columns=[column], filters=wanted)[column].to_pylist())
    except UsageError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return []  # folded into another file since it was listed: the run goes on
        raise UsageError(f"{error}; the file is damaged: move it away, or restore it") from None


def _no_such(folder: RunFolder, episode: str, files: list[Path]) -> str:
    ids = sorted({name for file in files for name in _column(file, "episode")})
    if not ids:
        return f"run {str(folder.path)!r} has no episodes yet"
    close = difflib.get_close_matches(episode, ids[:20000], n=3, cutoff=0.6) or ids[:3]
    return f"run {str(folder.path)!r} has no episode {episode!r} among {len(ids)}; there are {', '.join(close)}"
