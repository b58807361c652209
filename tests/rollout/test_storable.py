"""What a workflow hands over and cannot be stored, graded or sent fails its episode, in words, and never the run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from rollout_builders import Chain, by_seed, roles_for, say, transcript, workflow_of

from rolecall.engines.scripted import ScriptedEngine
from rolecall.errors import WorkflowError, boundary
from rolecall.records import Claim, ClaimKind, Episode, Outcome, OutcomeClass, Task
from rolecall.rollout.runner import run_episode
from rolecall.rollout.transcript import Limits
from rolecall.workflows.base import Team, Workflow

HALF_A_PAIR = "\ud800"


def episode_of(workflow: Workflow) -> Episode:
    roles, limits = roles_for(workflow), Limits(deadline_s=0.2, grace_s=0.05)
    return run_episode(workflow, transcript(), roles, ScriptedEngine(by_seed), limits=limits).episode


def sending(messages: Any, **options: Any) -> Episode:
    async def run(task: Task, team: Team) -> Outcome:
        return Outcome(answer=(await team["solver"].reply(messages, **options)).text)

    return episode_of(workflow_of(run, "solver"))


def returning(outcome: Outcome) -> Episode:
    async def run(task: Task, team: Team) -> Outcome:
        await team["solver"].reply(say("hello"))
        return outcome

    return episode_of(workflow_of(run, "solver"))


def assert_failed(episode: Episode, words: str) -> None:
    assert episode.outcome_class is OutcomeClass.ERROR
    assert episode.failure is not None
    assert words in episode.failure.detail


@pytest.mark.parametrize("content", [None, 3, [{"type": "text", "text": "x"}], HALF_A_PAIR], ids=str)
def test_a_message_whose_content_is_no_text_fails_its_episode(content: Any) -> None:
    assert_failed(sending([{"role": "user", "content": content}]), "the content of message 0")


@pytest.mark.parametrize("messages", ["hello", None, 3, [], [{"rolle": "user", "content": "x"}], ["hello"]], ids=str)
def test_what_is_no_list_of_messages_fails_its_episode(messages: Any) -> None:
    assert_failed(sending(messages), "solver:0")


def test_a_message_with_a_key_that_the_prompt_cache_does_not_see_fails_its_episode() -> None:
    assert_failed(sending([{"role": "user", "content": "x", "extra": {1, 2}}]), "wanted a dict of role and content")


def test_a_turn_that_is_about_something_that_is_no_reply_fails_its_episode() -> None:
    assert_failed(sending(say("x"), about=3), "about is 3")


@pytest.mark.parametrize("figures", [{"a": "x"}, {"a": None}, {3: 4.0}, {"a": float("nan")}, [1.0]], ids=str)
def test_figures_that_are_no_finite_numbers_fail_their_episode(figures: Any) -> None:
    assert_failed(returning(Outcome(answer="1", figures=figures)), "figure")


def test_an_answer_that_no_file_can_hold_fails_its_episode() -> None:
    assert_failed(returning(Outcome(answer=HALF_A_PAIR)), "wanted a string or None")


@pytest.mark.parametrize(
    "claim",
    ["42", Claim(kind=ClaimKind.ANSWER, value=42), Claim(kind=ClaimKind.VERDICT, value="yes")],  # type: ignore[arg-type]
    ids=["no claim", "a number", "no verdict"],
)
def test_a_claim_that_cannot_be_judged_fails_its_episode(claim: Any) -> None:
    class Claims(Chain):
        def claim(self, role: str, text: str | None, truncated: bool) -> Claim:
            return claim  # type: ignore[no-any-return]

    assert_failed(episode_of(Claims()), "claim of")


def test_a_workflow_that_swallows_every_way_to_end_it_is_given_up() -> None:
    async def run(task: Task, team: Team) -> Outcome:
        while True:
            try:
                await asyncio.sleep(60)
            except BaseException:  # noqa: BLE001 - the kind of workflow that this is about
                continue

    assert episode_of(workflow_of(run, "solver")).outcome_class is OutcomeClass.TIMEOUT


def test_a_panic_of_a_library_in_rust_fails_its_episode() -> None:
    class PanicException(BaseException): ...

    async def run(task: Task, team: Team) -> Outcome:
        raise PanicException("index out of bounds")

    assert_failed(episode_of(workflow_of(run, "solver")), "PanicException: index out of bounds")


@pytest.mark.parametrize("ending", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_ends_a_program_passes_every_boundary(ending: type[BaseException]) -> None:
    with pytest.raises(ending), boundary(WorkflowError, "here"):
        raise ending
