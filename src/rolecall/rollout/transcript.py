"""What is recorded of an episode so that it can be run again: one record per call and per effect.

A transcript without records is an episode to be run; with some, an episode in flight, a fork or an edit; with all of
them, an episode that replays at no engine cost. `level` orders records: a record of a higher level may depend on every
one of a lower level, and records of one level were made side by side.
"""

from __future__ import annotations

import functools
import hashlib
import json
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from rolecall.errors import (
    CallError,
    CallTimeout,
    EffectError,
    EngineError,
    GraderError,
    InvalidEpisode,
    PromptTooLong,
    RolecallError,
    UsageError,
    nearest,
)
from rolecall.records import Claim, Completion, Episode, Failure, Key, Sampling, Stop, Task, Turn
from rolecall.rollout.render import Renderer

_RAISED: dict[str, type[RolecallError]] = {
    kind.kind: kind
    for kind in (CallError, CallTimeout, PromptTooLong, EngineError, EffectError, GraderError, InvalidEpisode)
}


@dataclass(frozen=True, kw_only=True, slots=True)
class RoleSettings:
    """How a role's calls are made: its policy, sampling, renderer, and the seconds that one reply may take."""

    policy: str
    sampling: Sampling
    renderer: Renderer
    deadline_s: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CallRecord:
    """One call of one episode: what was asked (as hashes), and the turn it gave or the failure it raised."""

    key: Key
    level: int
    prompt_hash: str
    policy: str
    sampling_hash: str
    turn: Turn | None = None
    failure: Failure | None = None
    edited: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class EffectRecord:
    """The `call`-th effect of a name: the value it gave (plain data), or the failure it raised."""

    name: str
    call: int
    level: int
    value: Any = None
    failure: Failure | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Transcript:
    """An episode's identity, from which its seeds are made, and its records. `lineage` names the forks that lead here:
    at which call, and which candidate was taken there.

    >>> Transcript(task=Task(id="t", question="1+1", answer="2"), index=3, lineage=((Key("solver", 0, 0), 1),)).id
    't/s0/3+solver:0.c1'
    """

    task: Task
    index: int = 0
    step: int = 0
    attempt: int = 0
    run_seed: int = 0
    lineage: tuple[tuple[Key, int], ...] = ()
    calls: tuple[CallRecord, ...] = ()
    effects: tuple[EffectRecord, ...] = ()

    @property
    def id(self) -> str:
        attempt = f".a{self.attempt}" if self.attempt else ""
        lineage = "".join(f"+{key}.c{candidate}" for key, candidate in self.lineage)
        return f"{self.task.id}/s{self.step}/{self.index}{attempt}{lineage}"

    def call(self, key: Key) -> CallRecord:
        for record in self.calls:
            if record.key == key:
                return record
        known = [str(record.key) for record in self.calls]
        raise UsageError(f"episode {self.id} has no call {key}{nearest(str(key), known)}")

    def with_calls(self, *records: CallRecord) -> Transcript:
        """This transcript with records added, or replaced where it has one of the same key."""
        keys = {record.key for record in records}
        return replace(self, calls=(*(record for record in self.calls if record.key not in keys), *records))

    def branch(self, at: Key, candidate: int) -> Transcript:
        """This transcript under the name of the branch that takes `candidate` at call `at`; 0 is the trunk."""
        return replace(self, lineage=(*self.lineage, (at, candidate))) if candidate else self


@dataclass(frozen=True, kw_only=True, slots=True)
class Finished:
    """An episode that ended, and the transcript that replays it; `num_replayed` calls came from records."""

    episode: Episode
    transcript: Transcript
    num_replayed: int = 0
    num_sampled: int = 0


OnMismatch = Literal["error", "resample"]
Journal = Callable[[str, CallRecord | EffectRecord], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Bounds on one episode; `deadline_s=None` is none, `grace_s` is how long a cancelled workflow may tidy up."""

    deadline_s: float | None = 600.0
    max_calls: int = 1000
    grace_s: float = 1.0


def fork(source: Transcript | Finished, at: Key, candidate: int) -> Transcript:
    """The transcript up to the call `at`, which will be sampled again as candidate number `candidate` (1 or more).

    Calls before `at`, and those made side by side with it, are replayed; everything that may depend on it is not.
    """
    transcript = source.transcript if isinstance(source, Finished) else source
    if candidate < 1:
        raise UsageError(f"a fork of {transcript.id} is candidate {candidate}; wanted 1 or more (0 is the one it has)")
    level = transcript.call(at).level
    calls = tuple(record for record in transcript.calls if record.level <= level and record.key != at)
    effects = tuple(record for record in transcript.effects if record.level < level)
    return replace(transcript, calls=calls, effects=effects).branch(at, candidate)


def edit(
    source: Transcript | Finished,
    at: Key,
    text: str,
    claim: Callable[[str, str | None, bool], Claim | None],
    candidate: int = 1,
) -> Transcript:
    """The transcript with the reply of `at` replaced by a person's `text`; run it with `on_mismatch="resample"`.

    `claim` is the workflow's. An edited turn has no tokens, so it is never trained.
    """
    transcript = source.transcript if isinstance(source, Finished) else source
    record = transcript.call(at)
    if record.turn is None:
        raise UsageError(f"episode {transcript.id}: {at} gave no reply ({record.failure}); choose a call with a turn")
    branch = transcript.branch(at, candidate)
    turn = replace(
        record.turn,
        id=f"{branch.id}/{at}",
        candidate=candidate,
        text=text,
        claim=claim(at.role, text, False),
        completion=Completion(token_ids=(), logprobs=(), versions=(), stop=Stop.EOS),
    )
    return branch.with_calls(replace(record, turn=turn, edited=True))


def failure_of(error: RolecallError, where: str) -> Failure:
    return Failure(kind=error.kind, where=where, detail=str(error))


def raise_again(failure: Failure) -> RolecallError:
    """The exception of a recorded failure, of the same kind."""
    return _RAISED.get(failure.kind, CallError)(failure.detail)


def hash_ids(ids: Sequence[int]) -> str:
    return hashlib.blake2b(array("q", ids).tobytes(), digest_size=12).hexdigest()


@functools.lru_cache(maxsize=256)
def hash_sampling(sampling: Sampling, end_ids: tuple[int, ...]) -> str:
    return hashlib.blake2b(repr((sampling, end_ids)).encode(), digest_size=8).hexdigest()


def task_hash(task: Task) -> str:
    """A hash of all that a task says; tasks of one id must have one hash."""
    said = [task.id, task.question, task.answer, task.source, task.grader, _plain(task.metadata)]
    return hashlib.blake2b(json.dumps(said, default=repr, sort_keys=True).encode(), digest_size=12).hexdigest()


def _plain(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {str(key): value for key, value in metadata.items()}


@dataclass(kw_only=True, slots=True)
class Book:
    """The records of an episode while it runs: what may be replayed, what was made."""

    old_calls: dict[Key, CallRecord] = field(default_factory=dict)
    old_effects: dict[tuple[str, int], EffectRecord] = field(default_factory=dict)
    calls: list[CallRecord] = field(default_factory=list)
    effects: list[EffectRecord] = field(default_factory=list)
    num_replayed: int = 0

    @classmethod
    def of(cls, transcript: Transcript) -> Book:
        return cls(
            old_calls={record.key: record for record in transcript.calls},
            old_effects={(record.name, record.call): record for record in transcript.effects},
        )

    def write(self, transcript: Transcript) -> Transcript:
        """`transcript` with what was made, in canonical order."""
        return replace(
            transcript,
            calls=tuple(sorted(self.calls, key=lambda record: (record.level, record.key))),
            effects=tuple(sorted(self.effects, key=lambda record: (record.level, record.name, record.call))),
        )
