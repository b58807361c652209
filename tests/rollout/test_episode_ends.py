from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest
from rollout_builders import Chain, by_seed, refusing, replies, roles_for, say, transcript, workflow_of

from rolecall.engines.scripted import Scripted, ScriptedEngine
from rolecall.errors import EngineError, InvalidEpisode
from rolecall.records import Episode, Outcome, OutcomeClass, Sampling, Task
from rolecall.rollout.runner import run_episode
from rolecall.rollout.transcript import Limits
from rolecall.workflows.base import Team


def ends(run: Callable[[Task, Team], Any], engine: ScriptedEngine | None = None, **limits: Any) -> Episode:
    workflow = workflow_of(run, "solver", "checker")
    engine = engine if engine is not None else ScriptedEngine(by_seed)
    return run_episode(workflow, transcript(), roles_for(workflow), engine, limits=Limits(**limits)).episode


async def raises(task: Task, team: Team) -> Outcome:
    await team["solver"].reply(say("hello"))
    raise KeyError("shape")


async def returns_nothing(task: Task, team: Team) -> None:
    await team["solver"].reply(say("hello"))


async def returns_text(task: Task, team: Team) -> str:
    return "42"


async def returns_a_number(task: Task, team: Team) -> Outcome:
    return Outcome(answer=42)  # type: ignore[arg-type]


def is_not_async(task: Task, team: Team) -> Outcome:
    return Outcome(answer="42")


async def asks_a_stranger(task: Task, team: Team) -> Outcome:
    await team["solvr"].reply(say("hello"))
    return Outcome(answer="42")


async def asks_twice_at_once(task: Task, team: Team) -> Outcome:
    agent = team["solver"]
    await asyncio.gather(agent.reply(say("a")), agent.reply(say("b")))
    return Outcome(answer="42")


async def leaves_a_call(task: Task, team: Team) -> Outcome:
    left = asyncio.create_task(team["solver"].reply(say("a")))
    await asyncio.sleep(0)
    return Outcome(answer=str(left.done()))


async def sends_text(task: Task, team: Team) -> Outcome:
    await team["solver"].reply("hello")  # type: ignore[arg-type]
    return Outcome(answer="42")


async def exits(task: Task, team: Team) -> Outcome:
    sys.exit(3)


async def cancels_itself(task: Task, team: Team) -> Outcome:
    raise asyncio.CancelledError


async def never_ends(task: Task, team: Team) -> Outcome:
    while True:
        await team["solver"].reply(say("again"))


async def breaks_an_effect(task: Task, team: Team) -> Outcome:
    await team.effect("tool", lambda: 1 // 0)
    return Outcome(answer="42")


@pytest.mark.parametrize(
    ("run", "kind", "words"),
    [
        (raises, "workflow", "raised KeyError: 'shape' (line"),
        (returns_nothing, "workflow", "returned None; wanted Outcome(answer=...)"),
        (returns_text, "workflow", "returned '42'; wanted Outcome"),
        (returns_a_number, "workflow", "returned the answer 42; wanted a string or None"),
        (is_not_async, "workflow", "gave Outcome; wanted `async def run(self, task, team)`"),
        (asks_a_stranger, "workflow", "the team has no role 'solvr'; did you mean 'solver'?"),
        (asks_twice_at_once, "workflow", "two calls of 'solver' copy 0 at once"),
        (leaves_a_call, "workflow", "returned while solver:0 had no reply; await every call"),
        (sends_text, "workflow", "solver:0: reply() got a string"),
        (exits, "workflow", "called sys.exit(3)"),
        (cancels_itself, "workflow", "was cancelled from inside"),
        (never_ends, "workflow", "one more than max_calls=50"),
        (breaks_an_effect, "effect", "effect 'tool' raised ZeroDivisionError"),
    ],
)
def test_a_workflow_that_breaks_is_an_error_with_one_clear_message(run: Any, kind: str, words: str) -> None:
    episode = ends(run, max_calls=50)
    assert episode.outcome_class is OutcomeClass.ERROR
    assert episode.outcome is None
    assert episode.failure is not None
    assert episode.failure.kind == kind
    assert words in episode.failure.detail, episode.failure.detail


def test_turns_before_a_failure_are_kept() -> None:
    assert [turn.role for turn in ends(raises).turns] == ["solver"]


@pytest.mark.parametrize("nap_s", [0.0, 100.0])
def test_a_workflow_that_sleeps_for_ever_without_a_call_ends_at_its_deadline(nap_s: float) -> None:
    async def sleeps(task: Task, team: Team) -> Outcome:
        while True:
            await asyncio.sleep(nap_s)

    episode = ends(sleeps, deadline_s=0.1)
    assert episode.outcome_class is OutcomeClass.TIMEOUT
    assert episode.failure is not None
    assert "did not end within 0.1 s" in episode.failure.detail


def test_a_workflow_that_will_not_be_cancelled_is_given_up() -> None:
    async def stubborn(task: Task, team: Team) -> Outcome:
        while True:
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                continue

    episode = ends(stubborn, deadline_s=0.1, grace_s=0.1)
    assert episode.outcome_class is OutcomeClass.TIMEOUT


def test_an_episode_is_invalid_when_its_workflow_says_so_or_a_prompt_is_too_long() -> None:
    async def declares(task: Task, team: Team) -> Outcome:
        return Outcome(answer=None, valid=False, reason="no board")

    async def raises_invalid(task: Task, team: Team) -> Outcome:
        raise InvalidEpisode("no board")

    for run in (declares, raises_invalid):
        episode = ends(run)
        assert episode.outcome_class is OutcomeClass.INVALID
        assert episode.failure is not None
        assert episode.failure.detail == "no board"

    roles = roles_for(Chain(), Sampling(max_prompt_tokens=20))
    episode = run_episode(Chain(), transcript(), roles, refusing()).episode
    assert episode.outcome_class is OutcomeClass.INVALID
    assert episode.failure is not None
    assert (episode.failure.kind, episode.failure.where) == ("prompt_too_long", "first:0")
    assert "has 27 tokens or more, and the role's max_prompt_tokens is 20" in episode.failure.detail


def test_a_prompt_that_is_too_long_loses_its_oldest_tokens_when_the_role_says_so() -> None:
    roles = roles_for(Chain(), Sampling(max_prompt_tokens=20, overlong="truncate_left"))
    episode = run_episode(Chain(), transcript(), roles, ScriptedEngine(by_seed)).episode
    assert episode.outcome_class is OutcomeClass.OK
    assert episode.turns[0].prompt_ids == tuple(b"user: question 0\nassistant:")[-20:]


def test_an_answer_that_rests_on_a_cut_off_completion_is_truncated() -> None:
    table = {"first": "1", "second": "2", "third": Scripted(text="3", cut_off=True)}
    assert _chain(table).outcome_class is OutcomeClass.TRUNCATED
    table = {"first": Scripted(text="1", cut_off=True), "second": "2", "third": "3"}
    assert _chain(table).outcome_class is OutcomeClass.OK


def _chain(table: Any) -> Episode:
    return run_episode(Chain(), transcript(), roles_for(Chain()), ScriptedEngine(replies(table))).episode


def test_a_request_that_the_engine_cannot_answer_fails_its_episode_at_that_call() -> None:
    episode = _chain({"first": "1", "second": EngineError("no slot for policy 'second'")})
    assert episode.outcome_class is OutcomeClass.ERROR
    assert episode.failure is not None
    assert (episode.failure.kind, episode.failure.where) == ("engine", "second:0")


def test_an_engine_that_raises_ends_the_run() -> None:
    class Broken(ScriptedEngine):
        async def generate(self, requests: Any) -> Any:
            raise MemoryError("device")

    with pytest.raises(EngineError, match="the engine raised MemoryError: device"):
        run_episode(Chain(), transcript(), roles_for(Chain()), Broken(by_seed))


def test_of_several_failures_of_a_task_group_the_one_of_rolecall_names_the_class() -> None:
    async def run(task: Task, team: Team) -> Outcome:
        async with asyncio.TaskGroup() as group:
            group.create_task(team["solver"].reply(say("x" * 200)))
            group.create_task(team["checker"].reply(say("y")))
        return Outcome(answer="1")

    workflow = workflow_of(run, "solver", "checker")
    roles = roles_for(workflow, Sampling(max_prompt_tokens=100))
    episode = run_episode(workflow, transcript(), roles, ScriptedEngine(by_seed)).episode
    assert episode.outcome_class is OutcomeClass.INVALID
    assert episode.failure is not None
    assert episode.failure.where == "solver:0"


def test_a_conversation_keeps_the_agents_own_history() -> None:
    async def run(task: Task, team: Team) -> Outcome:
        talk = team["solver"].conversation({"role": "system", "content": "be brief"})
        await talk.say("one")
        reply = await talk.say("two")
        return Outcome(answer=reply.text)

    episode = ends(run)
    first, second = episode.turns
    assert [message["role"] for message in second.messages] == ["system", "user", "assistant", "user"]
    assert second.messages[2]["content"] == first.text


def test_a_team_that_is_used_outside_its_episode_is_an_error() -> None:
    kept: list[Team] = []

    async def run(task: Task, team: Team) -> Outcome:
        kept.append(team)
        reply = await kept[0]["solver"].reply(say("x"))
        return Outcome(answer=reply.text)

    workflow = workflow_of(run)
    roles = roles_for(workflow)
    assert run_episode(workflow, transcript(), roles, ScriptedEngine(by_seed)).episode.outcome_class is OutcomeClass.OK
    episode = run_episode(workflow, transcript(index=1), roles, ScriptedEngine(by_seed)).episode
    assert episode.outcome_class is OutcomeClass.ERROR
