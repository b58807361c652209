"""From a frontier to candidates: the requests of a group, and where the workflow stands after each reply."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rolecall.engines.base import Request
from rolecall.errors import CheckpointError, EngineError, PromptTooLong, RolecallError, WorkflowError
from rolecall.records import (
    ClaimKind,
    Completion,
    Episode,
    Failure,
    GradedEpisode,
    Key,
    Outcome,
    OutcomeClass,
    Stop,
    Task,
    Turn,
)
from rolecall.rollout.runner import Frontier, run_to_frontier_async
from rolecall.rollout.serial import from_dict, to_dict
from rolecall.rollout.transcript import CallRecord, EffectRecord, Finished, Limits, RoleSettings, Transcript
from rolecall.workflows.base import Workflow

GOES_ON = "the path goes on"
TOO_LONG = "the path ends here: the prompt of the next call is too long"
"""Reasons in the outcome of a candidate whose workflow has not ended by itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Play:
    """How the calls of a workflow are made. `whole` names the policies whose completions cannot be cut into segments:
    an endpoint writes a reply in one piece."""

    workflow: Workflow
    roles: Mapping[str, RoleSettings]
    limits: Limits
    whole: frozenset[str] = frozenset()

    async def stand(self, transcript: Transcript) -> Frontier | Finished:
        """Where the workflow stands after a transcript: at one call, or at its end."""
        where = await run_to_frontier_async(self.workflow, transcript, self.roles, limits=self.limits)
        if isinstance(where, Frontier) and len(where.pending) > 1:
            name, keys = type(self.workflow).__name__, ", ".join(map(str, where.keys))
            raise WorkflowError(
                f"workflow {name} makes the calls {keys} side by side, and agentic groups draw candidates for one call "
                f"at a time; await them one after the other, or use an algorithm of independent episodes"
            )
        return where


@dataclass(slots=True)
class GroupWork:
    """What a group of the scheduler stands for: the call that waits at a frontier, and its completions so far."""

    frontier: Frontier
    completions: list[Completion | None]
    errors: list[RolecallError | None]
    attempts: list[int]
    graded: list[GradedEpisode | None] = field(default_factory=list)
    stands: list[Frontier | Finished | None] = field(default_factory=list)
    paths: dict[int, Transcript] = field(default_factory=dict)  # up to a completion, made once
    children: dict[int, Any] = field(default_factory=dict)  # groups that follow from candidates, by their number
    pooled: bool = False

    @classmethod
    def at(cls, frontier: Frontier, num_rows: int) -> GroupWork:
        return cls(
            frontier=frontier,
            completions=[None] * num_rows,
            errors=[None] * num_rows,
            attempts=[0] * num_rows,
            graded=[None] * num_rows,
            stands=[None] * num_rows,
        )

    @property
    def key(self) -> Key:
        return self.frontier.keys[0]

    @property
    def task(self) -> Task:
        return self.frontier.transcript.task

    @property
    def max_tokens(self) -> int:
        """Most tokens of a completion, all of its segments together."""
        return self.frontier.pending[0].request.sampling.max_tokens

    def request(self, number: int, segment_tokens: int | None) -> Request:
        """The engine's request for a row: at most `segment_tokens` more, after what it has."""
        request = self.frontier.request(self.key, number)
        limit = self._limit(self.completions[number], segment_tokens)
        return replace(request, prefix=self.completions[number], sampling=replace(request.sampling, max_tokens=limit))

    def take(self, number: int, completion: Completion, segment_tokens: int | None) -> bool:
        """Keep what a row has now; True when it has ended: by itself, at its limit, or at its model's."""
        before = self.completions[number]
        if before is not None and not goes_on_from(completion, before):
            raise EngineError(
                f"the engine answered {self.key} of {self.frontier.transcript.id} with other tokens, log-probabilities "
                f"or versions than those of the {len(before.token_ids)} tokens it was given to go on from; a "
                f"completion goes on where it was cut"
            )
        self.completions[number] = completion
        asked = self._limit(before, segment_tokens)
        return completion.stop is Stop.EOS or asked >= self.max_tokens or len(completion.token_ids) < asked

    def _limit(self, before: Completion | None, segment_tokens: int | None) -> int:
        """Most tokens that a completion may have after the next segment, in all."""
        size = len(before.token_ids) if before is not None else 0
        return self.max_tokens if segment_tokens is None else min(self.max_tokens, size + segment_tokens)

    def transcript(self, number: int) -> Transcript:
        """The path up to a completion that has ended."""
        if number not in self.paths:
            done = self.completions[number]
            assert done is not None
            peers = f"{self.frontier.transcript.id}/{self.key}"
            self.paths[number] = self.frontier.advance((self.key, done, number), peers=peers)
        return self.paths[number]

    def stood(self, number: int) -> Transcript:
        """The path up to a completion, and what the workflow recorded on its way to where it stands now."""
        stand = self.stands[number]
        return stand.transcript if stand is not None else self.transcript(number)

    def episode(self, number: int) -> Episode:
        """The candidate as an episode of one turn, after the context of its path."""
        stand, transcript = self.stands[number], self.transcript(number)
        turn = transcript.call(self.key).turn
        assert stand is not None
        assert turn is not None
        outcome, kind, failure = ending_of(stand, (*self.frontier.turns, turn))
        return Episode(
            id=turn.id,
            task=self.task,
            index=transcript.index,
            turns=(turn,),
            outcome=outcome,
            outcome_class=kind,
            failure=failure,
            step=transcript.step,
            context=self.frontier.turns,
        )

    def has_to_be_graded(self, number: int) -> bool:
        """Whether a completion, which has ended, has no grade yet."""
        return self.completions[number] is not None and self.errors[number] is None and self.graded[number] is None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for a checkpoint."""
        return {
            "transcript": to_dict(self.frontier.transcript),
            "completions": [to_dict(one) if one is not None else None for one in self.completions],
            "errors": [str(one) if one is not None else None for one in self.errors],
            "attempts": self.attempts,
            "graded": [to_dict(one) if one is not None else None for one in self.graded],
            "after": {str(number): self._after(number) for number, one in enumerate(self.stands) if one is not None},
            "pooled": self.pooled,
        }

    def _after(self, number: int) -> dict[str, list[Any]]:
        """What the workflow recorded after a completion, on its way to where it stands: effects, calls that failed."""
        path, stand = self.transcript(number), self.stood(number)
        keys, names = {one.key for one in path.calls}, {(one.name, one.call) for one in path.effects}
        return {
            "calls": [to_dict(one) for one in stand.calls if one.key not in keys],
            "effects": [to_dict(one) for one in stand.effects if (one.name, one.call) not in names],
        }

    @classmethod
    async def from_dict(cls, play: Play, data: Mapping[str, Any]) -> GroupWork:
        """The group of a checkpoint: its workflow runs again up to the frontier, at no engine cost."""
        transcript = from_dict(Transcript, data["transcript"])
        frontier = await play.stand(transcript)
        if not isinstance(frontier, Frontier):
            raise CheckpointError(
                f"the workflow ends where the checkpoint has a call of it under way, after {transcript.id}: it was "
                "changed since, or depends on something that is not recorded. Put it back, or begin the run anew"
            )
        work = cls.at(frontier, len(data["completions"]))
        work.completions = [from_dict(Completion, one) if one is not None else None for one in data["completions"]]
        work.errors = [EngineError(one) if one is not None else None for one in data["errors"]]
        work.attempts = list(data["attempts"])
        work.graded = [from_dict(GradedEpisode, one) if one is not None else None for one in data["graded"]]
        work.pooled = data["pooled"]
        paths = {
            int(number): with_records(work.transcript(int(number)), after) for number, after in data["after"].items()
        }
        stands = await asyncio.gather(*[play.stand(path) for path in paths.values()])
        for number, stand in zip(paths, stands, strict=True):
            work.stands[number] = stand
        return work


async def stand_after(places: Sequence[tuple[GroupWork, int]], play: Play) -> None:
    """Run the workflow on after completions that have ended."""
    found = await asyncio.gather(*[play.stand(work.transcript(number)) for work, number in places])
    for (work, number), stand in zip(places, found, strict=True):
        work.stands[number] = stand


def with_records(path: Transcript, after: Mapping[str, Any]) -> Transcript:
    """A path with what `GroupWork.to_dict` kept of its records after the completion."""
    calls = [from_dict(CallRecord, one) for one in after["calls"]]
    effects = [from_dict(EffectRecord, one) for one in after["effects"]]
    return replace(path, calls=(*path.calls, *calls), effects=(*path.effects, *effects))


def goes_on_from(completion: Completion, before: Completion) -> bool:
    """Whether `completion` begins with all of `before`."""
    size = len(before.token_ids)
    begin = (completion.token_ids[:size], completion.logprobs[:size], completion.versions[:size])
    return begin == (before.token_ids, before.logprobs, before.versions)


def ending_of(stand: Frontier | Finished, path: Sequence[Turn]) -> tuple[Outcome | None, OutcomeClass, Failure | None]:
    """How a candidate ended, the last turn of `path`: as the workflow did, where that has ended. Where it goes on, the
    last answer on the path is the outcome's. Where the next prompt is too long there is none, and that is no failure of
    the turn: what it earns by itself stands."""
    kind = OutcomeClass.TRUNCATED if path[-1].truncated else OutcomeClass.OK
    if isinstance(stand, Frontier):
        return Outcome(answer=answer_so_far(path), reason=GOES_ON), kind, None
    if ends_too_long(stand):
        return Outcome(answer=None, reason=TOO_LONG), kind, None
    return stand.episode.outcome, stand.episode.outcome_class, stand.episode.failure


def ends_too_long(stand: Frontier | Finished | None) -> bool:
    """Whether a workflow ended since the prompt of its next call was too long."""
    failure = stand.episode.failure if isinstance(stand, Finished) else None
    return failure is not None and failure.kind == PromptTooLong.kind


def answer_so_far(turns: Sequence[Turn]) -> str | None:
    """What the last turn that claims an answer says."""
    for turn in reversed(turns):
        if turn.claim is not None and turn.claim.kind is ClaimKind.ANSWER:
            return turn.claim.value
    return None
