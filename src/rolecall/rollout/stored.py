"""What a stored episode needs beside its turns so that it can be run again, as plain data, and the transcript back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rolecall.errors import UsageError
from rolecall.records import Episode, Key
from rolecall.rollout.serial import from_dict, to_dict
from rolecall.rollout.transcript import CallRecord, EffectRecord, Transcript


def replay_data(transcript: Transcript) -> dict[str, Any]:
    """A transcript as plain data, without the task and the turns: the episode has those.

    An effect whose value is no plain data makes the episode one that cannot be replayed: `unstored` says why.
    """
    try:
        effects = [to_dict(record) for record in transcript.effects]
    except UsageError as error:
        return {"unstored": str(error)}
    return {
        "run_seed": transcript.run_seed,
        "lineage": [[list(key), candidate] for key, candidate in transcript.lineage],
        "calls": [to_dict(replace(record, turn=None)) for record in transcript.calls],
        "effects": effects,
    }


def transcript_of(episode: Episode, data: Mapping[str, Any] | None) -> Transcript:
    """The transcript of which `replay_data` kept `data`, with the turns of its episode."""
    if not data or "unstored" in data:
        why = data["unstored"] if data else "its row holds no records of calls"
        raise UsageError(f"episode {episode.id} cannot be replayed: {why}; choose another episode")
    turns = {turn.key: turn for turn in episode.path}
    calls = [from_dict(CallRecord, record) for record in data["calls"]]
    return Transcript(
        task=episode.task,
        index=episode.index,
        step=episode.step,
        attempt=episode.attempt,
        run_seed=data["run_seed"],
        lineage=tuple((Key(*key), candidate) for key, candidate in data["lineage"]),
        calls=tuple(replace(record, turn=turns.get(record.key)) for record in calls),
        effects=tuple(from_dict(EffectRecord, record) for record in data["effects"]),
    )
