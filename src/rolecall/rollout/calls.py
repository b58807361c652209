"""One call as data: what it asks of the engine, whether a record answers it, and the record that a reply makes."""

from __future__ import annotations

from dataclasses import replace

from rolecall.engines.base import Request, request_seed
from rolecall.errors import ReplayMismatch, RolecallError, WorkflowError, boundary
from rolecall.records import Completion, Key, Messages, Stop, Turn
from rolecall.rollout.storable import checked_claim, checked_messages
from rolecall.rollout.transcript import CallRecord, RoleSettings, Transcript, failure_of
from rolecall.rollout.waves import Pending
from rolecall.workflows.base import Workflow


def build_request(transcript: Transcript, key: Key, settings: RoleSettings, messages: Messages) -> Request:
    """The engine's request for a call on the path of `transcript`; an overlong prompt is cut if the role says so."""
    asked, sampling = checked_messages(key, messages), settings.sampling
    with boundary(WorkflowError, f"rendering the messages of {key}"):
        ids = settings.renderer.encode(asked, enough=sampling.max_prompt_tokens)
        end_ids = settings.renderer.end_ids
    if len(ids) > sampling.max_prompt_tokens and sampling.overlong == "truncate_left":
        ids = ids[-sampling.max_prompt_tokens :]
    lineage = transcript.lineage
    candidate = lineage[-1][1] if lineage and lineage[-1][0] == key else 0
    return Request(
        policy=settings.policy,
        prompt_ids=ids,
        sampling=sampling,
        seed=call_seed(transcript, key, candidate),
        key=key,
        task=transcript.task,
        messages=asked,
        candidate=candidate,
        end_ids=end_ids,
    )


def seed_of(transcript: Transcript, *path: object) -> int:
    """A seed that depends on the run, step, task, episode, attempt and `path` alone."""
    place = (transcript.step, transcript.task.id, transcript.index, transcript.attempt)
    return request_seed(transcript.run_seed, *place, *path)


def call_seed(transcript: Transcript, key: Key, candidate: int) -> int:
    """The seed of a call, whose path is the branch, the key and the candidate."""
    branch = tuple((tuple(at), number) for at, number in transcript.lineage)
    return seed_of(transcript, tuple(key), candidate, *([branch] if branch else []))


def mismatch_of(record: CallRecord, pending: Pending, episode_id: str) -> ReplayMismatch | None:
    """Why `record` does not answer this call; None when it does."""
    pairs = {
        "prompt": (record.prompt_hash, pending.prompt_hash),
        "policy": (record.policy, pending.request.policy),
        "sampling settings": (record.sampling_hash, pending.sampling_hash),
    }
    for name, (old, new) in pairs.items():
        if old != new:
            return ReplayMismatch(
                f"episode {episode_id}: {record.key} was recorded with another {name} ({old}; now {new}). "
                f"Either the configuration or the workflow has changed, or it depends on something that is not "
                f"recorded: try rolecall.testing.check_workflow"
            )
    return None


def in_place(record: CallRecord, pending: Pending) -> CallRecord:
    """A record that answers a call, at the call's place: after an edit, the turns before it have other ids."""
    place = (pending.level, pending.about, pending.parent)
    turn = record.turn
    if turn is None or (record.level, turn.about, turn.parent) == place:
        return record
    return replace(record, level=pending.level, turn=replace(turn, about=pending.about, parent=pending.parent))


def make_record(
    workflow: Workflow,
    settings: RoleSettings,
    transcript: Transcript,
    pending: Pending,
    reply: Completion | RolecallError,
    candidate: int | None = None,
    peers: str | None = None,
) -> CallRecord:
    """The record of a call that got `reply` on the path of `transcript`: a turn with its visible text, or a failure.

    `peers` names the candidates drawn with it; those of one prompt where it is not given."""
    key, request = pending.key, pending.request
    turn = failure = None
    if isinstance(reply, RolecallError):
        failure = failure_of(reply, str(key))
    else:
        with boundary(WorkflowError, f"reading the completion of {key}"):
            wrote = reply.endpoint
            text = wrote.text if wrote is not None else settings.renderer.visible(reply.token_ids, reply.stop)
            claim = checked_claim(key, workflow.claim(key.role, text, reply.stop is not Stop.EOS))
        turn = Turn(
            id=f"{transcript.id}/{key}",
            key=key,
            policy=request.policy,
            messages=request.messages,
            prompt_ids=request.prompt_ids,
            completion=reply,
            text=text,
            claim=claim,
            about=pending.about,
            parent=pending.parent,
            candidate=request.candidate if candidate is None else candidate,
            peers=peers or f"{transcript.task.id}/{key.role}:{key.call}/{pending.prompt_hash}",
        )
    return CallRecord(
        key=key,
        level=pending.level,
        prompt_hash=pending.prompt_hash,
        policy=request.policy,
        sampling_hash=pending.sampling_hash,
        turn=turn,
        failure=failure,
    )
