"""Run, resume, fork, edit: one primitive, a transcript that is run until it ends or reaches its frontier.

    finished = run_episode(workflow, Transcript(task=task), roles, engine)        # a fresh episode
    again = run_episode(workflow, finished.transcript, roles, engine)             # a replay: no engine call
    other = run_episode(workflow, fork(finished, at=key, candidate=1), roles, engine)
    frontier = run_to_frontier(workflow, transcript, roles)                       # the calls that wait

An episode ends in exactly one outcome class; what a workflow raised is data in `Episode.failure`. What is not: a
`ReplayMismatch` in recovery, a broken engine and a blocked loop are raised to the caller.
"""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rolecall.engines.base import Engine, Request
from rolecall.errors import (
    BlockedLoop,
    CallTimeout,
    EpisodeTimeout,
    InvalidEpisode,
    PromptTooLong,
    ReplayMismatch,
    RolecallError,
    UsageError,
    WorkflowError,
    boundary,
    nearest,
)
from rolecall.records import Claim, ClaimKind, Completion, Episode, Failure, Key, Outcome, OutcomeClass, Turn
from rolecall.rollout.calls import call_seed, make_record
from rolecall.rollout.loop import Branch, EpisodeTask, LoopRunner, current_loop
from rolecall.rollout.session import EpisodeSession
from rolecall.rollout.storable import checked_outcome
from rolecall.rollout.transcript import Finished, Limits, OnMismatch, RoleSettings, Transcript
from rolecall.rollout.waves import FrontierPort, Pending, WavePort
from rolecall.workflows.base import Team, Workflow

Absences = Sequence[tuple[str, int | None]]
_CLASSES = (
    ((CallTimeout, EpisodeTimeout), OutcomeClass.TIMEOUT),
    ((InvalidEpisode, PromptTooLong), OutcomeClass.INVALID),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Frontier:
    """Where an episode stands when every one of its coroutines waits: the calls without a reply, sorted by key.

    Sample any number of completions for a call; each one goes on in a transcript of its own:
    `frontier.advance((key, completion, candidate))`.
    """

    transcript: Transcript
    pending: tuple[Pending, ...]
    session: EpisodeSession

    @property
    def keys(self) -> tuple[Key, ...]:
        return tuple(pending.key for pending in self.pending)

    @property
    def turns(self) -> tuple[Turn, ...]:
        return turns_of(self.transcript)

    def request(self, key: Key, candidate: int = 0) -> Request:
        """The engine's request for candidate number `candidate` of a waiting call, with a seed of its own."""
        branch = self.transcript.branch(key, candidate)
        seed = call_seed(branch, key, candidate)
        return replace(self._waiting(key).request, candidate=candidate, seed=seed)

    def advance(self, *answers: tuple[Key, Completion | RolecallError, int], peers: str | None = None) -> Transcript:
        """The transcript in which waiting calls got these replies, each with its candidate number.

        The turn of a candidate has one id on every path that takes it, as long as one call is answered at a time.
        `peers` names the candidates that were drawn with it (None: the turns of this call and prompt).
        """
        transcript = self.transcript
        for key, reply, candidate in answers:
            pending = self._waiting(key)
            transcript = transcript.branch(key, candidate)
            settings = self.session.roles[key.role]
            record = make_record(self.session.workflow, settings, transcript, pending, reply, candidate, peers)
            transcript = transcript.with_calls(record)
        return transcript

    def _waiting(self, key: Key) -> Pending:
        for pending in self.pending:
            if pending.key == key:
                return pending
        raise UsageError(f"{key} does not wait at this frontier{nearest(str(key), map(str, self.keys))}")


def run_episode(
    workflow: Workflow,
    transcript: Transcript,
    roles: Mapping[str, RoleSettings],
    engine: Engine,
    *,
    limits: Limits = Limits(),  # noqa: B008 - immutable
    on_mismatch: OnMismatch = "error",
    without: Absences = (),
) -> Finished:
    """Run a transcript to its end; calls that it has records of cost nothing."""

    async def main() -> Finished:
        loop = current_loop()
        broken: list[BaseException] = []

        def give_up(error: BaseException) -> None:
            broken.append(error)
            session.stop()

        port = WavePort(engine, loop, give_up)
        session = EpisodeSession(
            workflow=workflow, transcript=transcript, roles=roles, port=port, limits=limits, on_mismatch=on_mismatch
        )
        loop.idle_selector.watchers.append(port.at_idle)
        try:
            finished = await drive(session, without)
        finally:
            loop.idle_selector.watchers.remove(port.at_idle)
        if broken:
            raise broken[0]
        return finished

    with LoopRunner() as runner:
        return runner.run(main())


def run_to_frontier(
    workflow: Workflow,
    transcript: Transcript,
    roles: Mapping[str, RoleSettings],
    *,
    limits: Limits = Limits(),  # noqa: B008 - immutable
    on_mismatch: OnMismatch = "error",
    without: Absences = (),
) -> Frontier | Finished:
    """Replay a transcript until every coroutine waits for a reply that is not recorded, or the episode ends."""
    with LoopRunner() as runner:
        return runner.run(
            run_to_frontier_async(workflow, transcript, roles, limits=limits, on_mismatch=on_mismatch, without=without)
        )


async def run_to_frontier_async(
    workflow: Workflow,
    transcript: Transcript,
    roles: Mapping[str, RoleSettings],
    *,
    limits: Limits = Limits(),  # noqa: B008 - immutable
    on_mismatch: OnMismatch = "error",
    without: Absences = (),
) -> Frontier | Finished:
    """As `run_to_frontier`, on a running `EpisodeLoop`; any number may run side by side."""
    loop = current_loop()
    session = EpisodeSession(
        workflow=workflow, transcript=transcript, roles=roles, port=FrontierPort(), limits=limits,
        on_mismatch=on_mismatch,
    )  # fmt: skip
    reached: list[tuple[Pending, ...]] = []

    def at_idle() -> bool:
        if reached or session.num_effects or not session.pending or loop.holds(session):
            return False
        reached.append(tuple(sorted(session.pending.values(), key=lambda pending: pending.key)))
        session.stop()
        return True

    loop.idle_selector.watchers.append(at_idle)
    try:
        finished = await drive(session, without)
    finally:
        loop.idle_selector.watchers.remove(at_idle)
    if not reached:
        return finished
    return Frontier(transcript=session.book.write(transcript), pending=reached[0], session=session)


async def drive(session: EpisodeSession, without: Absences = ()) -> Finished:
    """Run a session's workflow to its end, its deadline, or until somebody stops it; then say how it ended."""
    name, loop, limits = type(session.workflow).__name__, session.loop, session.limits
    ended: asyncio.Future[None] = loop.create_future()
    root: EpisodeTask[Outcome] = EpisodeTask(
        _outcome_of(session, name, without), loop=loop, name=f"workflow {name} on {session.transcript.id}"
    )
    root.branch = Branch(session)
    session.attach(root, ended)
    try:
        await ended
    finally:
        session.stop()
    error = None if not root.done() or root.cancelled() else root.exception()
    if isinstance(error, BlockedLoop):
        raise error
    if session.expired:
        error = EpisodeTimeout(
            f"workflow {name} did not end within {limits.deadline_s:g} s (deadline_s); "
            f"waiting for: {session.waited_for or 'nothing that rolecall knows of'}"
        )
    elif root.cancelled():
        error = WorkflowError(f"workflow {name} was cancelled from inside")
    if error is not None and not isinstance(error, RolecallError):
        raise error
    if session.mismatch is not None:
        raise session.mismatch
    return _finish(session, None if error is not None or not root.done() else root.result(), error)


async def _outcome_of(session: EpisodeSession, name: str, without: Absences) -> Outcome:
    """What the workflow returns, checked; whatever it raises comes out as a `RolecallError`."""
    team = Team(roles=session.workflow.roles, session=session)
    for role, copy in without:
        team = team.without(role, copy)
    with boundary(WorkflowError, f"workflow {name}"):
        try:
            running: Any = session.workflow.run(session.transcript.task, team)
            if not inspect.isawaitable(running):
                raise WorkflowError(
                    f"{name}.run gave {type(running).__name__}; wanted `async def run(self, task, team)`"
                )
            outcome = await running
        except SystemExit as error:
            raise WorkflowError(f"workflow {name} called sys.exit({error.code})") from error
        except ExceptionGroup as group:
            raise _leading(group) from group
    checked = checked_outcome(name, outcome)
    if session.waits_for:
        raise WorkflowError(f"workflow {name} returned while {session.waits_for} had no reply; await every call")
    return checked


def _leading(group: BaseExceptionGroup[Any]) -> Exception:
    """Of a TaskGroup's failures the one that names the episode's class: rolecall's own first, then by their words."""
    leaves: list[Exception] = []
    for error in group.exceptions:
        leaves.append(_leading(error) if isinstance(error, BaseExceptionGroup) else error)
    return min(leaves, key=lambda error: (not isinstance(error, RolecallError), str(error)))


def _finish(session: EpisodeSession, outcome: Outcome | None, error: RolecallError | None) -> Finished:
    transcript = session.book.write(session.transcript)
    unused = session.book.old_calls.keys() - {record.key for record in transcript.calls}
    if unused and session.on_mismatch == "error" and error is None and outcome is not None:
        raise ReplayMismatch(
            f"episode {transcript.id} ended without the recorded calls {', '.join(map(str, sorted(unused)))}: "
            f"the workflow took another path; try rolecall.testing.check_workflow"
        )
    turns = turns_of(transcript)
    failure = _failure(session, error) if error is not None else None
    if outcome is not None and not outcome.valid:
        failure = Failure(kind=InvalidEpisode.kind, where="workflow", detail=outcome.reason or "declared invalid")
    episode = Episode(
        id=transcript.id,
        task=transcript.task,
        index=transcript.index,
        turns=turns,
        outcome=outcome,
        outcome_class=_classify(outcome, error, turns),
        failure=failure,
        attempt=transcript.attempt,
        step=transcript.step,
    )
    num_replayed = session.book.num_replayed
    num_sampled = len(transcript.calls) - num_replayed
    return Finished(episode=episode, transcript=transcript, num_replayed=num_replayed, num_sampled=num_sampled)


def turns_of(transcript: Transcript) -> tuple[Turn, ...]:
    """The turns of a transcript, in the order of their calls."""
    ordered = sorted(transcript.calls, key=lambda record: (record.level, record.key))
    return tuple(record.turn for record in ordered if record.turn is not None)


def _failure(session: EpisodeSession, error: RolecallError) -> Failure:
    """Where it failed: at the call or effect whose failure was not caught, else in the workflow, with the line."""
    where = next((where for where, raised in reversed(session.raised) if raised is error), "workflow")
    detail = str(error)
    frames = traceback.extract_tb(error.__cause__.__traceback__) if error.__cause__ is not None else []
    if frames:
        detail += f" (line {frames[-1].lineno} of {frames[-1].filename}, in {frames[-1].name})"
    return Failure(kind=error.kind, where=where, detail=detail)


def _classify(outcome: Outcome | None, error: RolecallError | None, turns: Sequence[Turn]) -> OutcomeClass:
    if error is not None:
        return next((found for kinds, found in _CLASSES if isinstance(error, kinds)), OutcomeClass.ERROR)
    if outcome is None:
        return OutcomeClass.ERROR
    if not outcome.valid:
        return OutcomeClass.INVALID
    return OutcomeClass.TRUNCATED if _rests_on_truncation(outcome, turns) else OutcomeClass.OK


def _rests_on_truncation(outcome: Outcome, turns: Sequence[Turn]) -> bool:
    """Whether every turn that claims the outcome's answer was cut off; if none claims it, whether the last turn was."""
    wanted = Claim(kind=ClaimKind.ANSWER, value=outcome.answer)
    resting = [turn for turn in turns if turn.claim == wanted] or list(turns[-1:])
    return bool(resting) and all(turn.truncated for turn in resting)
