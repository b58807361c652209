"""From a frontier to candidates: the requests of a group, and where the workflow stands after each reply."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rolecall.engines.base import Request
from rolecall.errors import EngineError, RolecallError, WorkflowError
from rolecall.records import (
    ClaimKind,
    Completion,
    Episode,
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
from rolecall.rollout.transcript import Finished, Limits, RoleSettings, Transcript
from rolecall.workflows.base import Workflow


@dataclass(frozen=True, kw_only=True, slots=True)
class Play:
    """How the calls of a workflow are made."""

    workflow: Workflow
    roles: Mapping[str, RoleSettings]
    limits: Limits

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

    def request(self, number: int, segment_tokens: int | None) -> Request:
        """The engine's request for a row: at most `segment_tokens` more, after what it has."""
        request = self.frontier.request(self.key, number)
        done = self.completions[number]
        size = len(done.token_ids) if done is not None else 0
        most = request.sampling.max_tokens
        limit = most if segment_tokens is None else min(most, size + segment_tokens)
        return replace(request, prefix=done, sampling=replace(request.sampling, max_tokens=limit))

    def take(self, number: int, completion: Completion, segment_tokens: int | None) -> bool:
        """Keep what a row has now; True when it has ended: by itself, at its limit, or at its model's."""
        before = self.completions[number]
        asked = self.request(number, segment_tokens).sampling.max_tokens
        if before is not None and completion.token_ids[: len(before.token_ids)] != before.token_ids:
            raise EngineError(
                f"the engine answered {self.key} of {self.frontier.transcript.id} with other tokens than those it was "
                f"given to go on from ({len(before.token_ids)} tokens); a completion goes on where it was cut"
            )
        self.completions[number] = completion
        most = self.frontier.request(self.key, number).sampling.max_tokens
        return completion.stop is Stop.EOS or asked >= most or len(completion.token_ids) < asked

    def transcript(self, number: int) -> Transcript:
        """The path up to a row that has ended, in its completion or in its failure."""
        reply = self.completions[number] if self.errors[number] is None else self.errors[number]
        assert reply is not None
        return self.frontier.advance((self.key, reply, number), peers=f"{self.frontier.transcript.id}/{self.key}")

    def turn(self, number: int) -> Turn | None:
        return self.transcript(number).call(self.key).turn

    def episode(self, number: int, stand: Frontier | Finished) -> Episode:
        """The candidate as an episode of one turn: its outcome is the workflow's where that has ended, else the last
        answer on its path."""
        transcript = self.transcript(number)
        turn = transcript.call(self.key).turn
        assert turn is not None
        context = self.frontier.turns
        outcome: Outcome | None
        if isinstance(stand, Finished):
            ended = stand.episode
            outcome, kind, failure = ended.outcome, ended.outcome_class, ended.failure
        else:
            outcome, failure = Outcome(answer=answer_so_far((*context, turn)), reason="the path goes on"), None
            kind = OutcomeClass.TRUNCATED if turn.truncated else OutcomeClass.OK
        return Episode(
            id=turn.id,
            task=self.task,
            index=number,
            turns=(turn,),
            outcome=outcome,
            outcome_class=kind,
            failure=failure,
            step=transcript.step,
            context=context,
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data for a checkpoint."""
        return {
            "transcript": to_dict(self.frontier.transcript),
            "completions": [to_dict(one) if one is not None else None for one in self.completions],
            "errors": [str(one) if one is not None else None for one in self.errors],
            "attempts": self.attempts,
            "graded": [to_dict(one) if one is not None else None for one in self.graded],
            "pooled": self.pooled,
        }

    @classmethod
    async def from_dict(cls, play: Play, data: Mapping[str, Any]) -> GroupWork:
        """The group of a checkpoint: its workflow runs again up to the frontier, at no engine cost."""
        frontier = await play.stand(from_dict(Transcript, data["transcript"]))
        assert isinstance(frontier, Frontier)
        work = cls.at(frontier, len(data["completions"]))
        work.completions = [from_dict(Completion, one) if one is not None else None for one in data["completions"]]
        work.errors = [EngineError(one) if one is not None else None for one in data["errors"]]
        work.attempts = list(data["attempts"])
        work.graded = [from_dict(GradedEpisode, one) if one is not None else None for one in data["graded"]]
        work.pooled = data["pooled"]
        if any(work.graded) and not work.pooled:
            await stand_after([work], play)
        return work


async def stand_after(works: Sequence[GroupWork], play: Play) -> None:
    """Run the workflow on after every completion of complete groups."""
    places = [
        (work, number)
        for work in works
        for number, done in enumerate(work.completions)
        if done is not None and work.errors[number] is None
    ]
    found = await asyncio.gather(*[play.stand(work.transcript(number)) for work, number in places])
    for (work, number), stand in zip(places, found, strict=True):
        work.stands[number] = stand


def answer_so_far(turns: Sequence[Turn]) -> str | None:
    """What the last turn that claims an answer says."""
    for turn in reversed(turns):
        if turn.claim is not None and turn.claim.kind is ClaimKind.ANSWER:
            return turn.claim.value
    return None
