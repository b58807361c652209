from __future__ import annotations

import json
import pickle

import pytest
from rollout_builders import Vote, by_seed, refusing, roles_for, transcript, workflow_of

from rolecall.engines.scripted import ScriptedEngine
from rolecall.errors import UsageError
from rolecall.records import Episode, Key, Outcome, Task
from rolecall.rollout.runner import run_episode
from rolecall.rollout.serial import from_dict, to_dict
from rolecall.rollout.transcript import Finished, Transcript, fork
from rolecall.workflows.base import Team


def finished() -> Finished:
    source = transcript(lineage=((Key("chair", 0, 0), 2),))
    return run_episode(Vote(), source, roles_for(Vote()), ScriptedEngine(by_seed))


def test_a_transcript_and_an_episode_survive_json() -> None:
    one = finished()
    assert from_dict(Transcript, json.loads(json.dumps(to_dict(one.transcript)))) == one.transcript
    assert from_dict(Episode, json.loads(json.dumps(to_dict(one.episode)))) == one.episode


def test_a_stored_transcript_replays() -> None:
    one = finished()
    stored = from_dict(Transcript, json.loads(json.dumps(to_dict(one.transcript))))
    assert run_episode(Vote(), stored, roles_for(Vote()), refusing()).episode == one.episode
    assert fork(stored, at=Key("voter", 0, 1), candidate=1).call(Key("voter", 0, 0)).turn is not None


def test_records_can_be_pickled() -> None:
    one = finished()
    assert pickle.loads(pickle.dumps(one)) == one


def test_an_effect_with_a_value_that_cannot_be_stored_says_so() -> None:
    async def run(task: Task, team: Team) -> Outcome:
        await team.effect("open", lambda: object())
        return Outcome(answer="1")

    workflow = workflow_of(run)
    one = run_episode(workflow, transcript(), roles_for(workflow), refusing())
    with pytest.raises(UsageError, match=r"effects\[0\].value is object .* an effect returns plain data"):
        to_dict(one.transcript)


def test_a_stored_record_with_an_unknown_field_is_an_error() -> None:
    plain = to_dict(finished().transcript)
    plain["attemp"] = plain.pop("attempt")
    with pytest.raises(UsageError, match="has 'attemp', which the record has not; did you mean 'attempt'"):
        from_dict(Transcript, plain)
