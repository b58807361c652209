from __future__ import annotations

import asyncio
import datetime
import gc
import random
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from rollout_builders import Chain, Patient, Vote, say, task, workflow_of

from rolecall.engines.base import Reply, Request
from rolecall.engines.scripted import Scripted, ScriptedEngine
from rolecall.errors import EngineError, WorkflowError
from rolecall.records import Completion, Outcome, Sampling, Task
from rolecall.testing import check_engine, check_workflow
from rolecall.workflows.base import Team
from rolecall.workflows.single_agent import SingleAgent
from rolecall.workflows.solve_verify_correct import SolveVerifyCorrect

TASKS = [task(0), task(1)]


@pytest.mark.parametrize(
    "workflow",
    [SolveVerifyCorrect(), SolveVerifyCorrect(mode="system", passes=2), SingleAgent(), Vote(), Chain(), Patient()],
    ids=lambda workflow: type(workflow).__name__,
)
def test_workflows_that_keep_the_rules_pass(workflow: Any) -> None:
    check_workflow(workflow, TASKS, rounds=2)


async def is_collected_in(task: Task, team: Team) -> Outcome:
    reply = await team["solver"].reply(say(task.question))
    gc.collect()
    return Outcome(answer=reply.text)


def reads_a_clock_when_garbage_is_collected(phase: str, info: dict[str, int]) -> None:
    time.perf_counter()


def test_what_the_garbage_collector_runs_is_not_blamed_on_the_workflow() -> None:
    gc.callbacks.append(reads_a_clock_when_garbage_is_collected)
    gc.freeze()  # a collection over all that other tests have left takes longer than an episode may
    try:
        check_workflow(workflow_of(is_collected_in), TASKS, rounds=1)
    finally:
        gc.unfreeze()
        gc.callbacks.remove(reads_a_clock_when_garbage_is_collected)


async def draws(task: Task, team: Team) -> Outcome:
    reply = await team["solver"].reply(say(str(random.random())))
    return Outcome(answer=reply.text)


async def draws_an_id(task: Task, team: Team) -> Outcome:
    reply = await team["solver"].reply(say(str(uuid.uuid4())))
    return Outcome(answer=reply.text)


async def draws_from_its_own(task: Task, team: Team) -> Outcome:
    own = random.Random()
    return Outcome(answer=own.choice(["a", "b"]))


@pytest.mark.parametrize("run", [draws, draws_an_id, draws_from_its_own])
def test_a_workflow_that_draws_its_own_random_numbers_is_caught_on_the_line(run: Any) -> None:
    with pytest.raises(
        WorkflowError, match=r"draws random numbers of its own \(line \d+ of .*test_conformance"
    ) as seen:
        check_workflow(workflow_of(run), TASKS)
    assert f"in {run.__name__})" in str(seen.value)
    assert "Draw random numbers from team.rng" in str(seen.value)


async def reads_the_time(task: Task, team: Team) -> Outcome:
    started = time.monotonic()
    reply = await team["solver"].reply(say(task.question))
    return Outcome(answer=reply.text if time.monotonic() - started < 60 else None)


async def reads_the_date(task: Task, team: Team) -> Outcome:
    reply = await team["solver"].reply(say(task.question, str(datetime.datetime.now().year)))
    return Outcome(answer=reply.text)


@pytest.mark.parametrize("run", [reads_the_time, reads_the_date])
def test_a_workflow_that_reads_a_clock_is_caught_on_the_line(run: Any) -> None:
    with pytest.raises(WorkflowError, match=r"reads a clock \(line \d+"):
        check_workflow(workflow_of(run), TASKS)


def test_clocks_and_random_numbers_inside_an_effect_are_allowed() -> None:
    async def roll() -> float:
        return random.random() + time.time()

    async def run(task: Task, team: Team) -> Outcome:
        await team.effect("roll", roll)
        reply = await team["solver"].reply(say(str(team.rng.random())))
        return Outcome(answer=reply.text)

    with pytest.raises(WorkflowError, match="gives another episode when run a second time") as seen:
        check_workflow(workflow_of(run), TASKS)  # the value differs from run to run, as a roll does
    assert "first difference: the effects" in str(seen.value)


def test_a_workflow_that_keeps_state_between_episodes_is_caught() -> None:
    count = [0]

    async def run(task: Task, team: Team) -> Outcome:
        count[0] += 1
        reply = await team["solver"].reply(say(f"attempt {count[0]}"))
        return Outcome(answer=reply.text)

    with pytest.raises(WorkflowError, match=r"first difference: the messages to solver:0: .*attempt 1"):
        check_workflow(workflow_of(run), TASKS)


def test_state_that_only_shows_in_the_order_of_episodes_is_caught() -> None:
    seen: dict[str, str] = {}

    async def run(task: Task, team: Team) -> Outcome:
        reply = await team["solver"].reply(say(task.question))
        before = next(iter(seen), "")
        seen[task.id] = reply.text or ""
        if len(seen) == len(TASKS):
            seen.clear()
        reply = await team["solver"].reply(say(before))
        return Outcome(answer=reply.text)

    with pytest.raises(WorkflowError, match=r"gives another episode when .*nothing between episodes"):
        check_workflow(workflow_of(run), TASKS, episodes=1)


def test_a_workflow_that_depends_on_who_answers_first_is_caught() -> None:
    async def run(task: Task, team: Team) -> Outcome:
        calls = [agent.reply(say(task.question)) for agent in team.copies("solver", 3)]
        order = [await done for done in asyncio.as_completed(calls)]
        first = order[0]
        reply = await team["judge"].reply(say(first.text or ""))
        return Outcome(answer=reply.text)

    with pytest.raises(WorkflowError, match="judge:0"):
        check_workflow(workflow_of(run, "solver", "judge"), TASKS, rounds=8)


def test_a_workflow_with_a_timer_of_its_own_is_caught() -> None:
    async def run(task: Task, team: Team) -> Outcome:
        async with asyncio.timeout(30):
            reply = await team["solver"].reply(say(task.question))
        return Outcome(answer=reply.text)

    with pytest.raises(WorkflowError, match=r"set 4 timers or threads of its own"):
        check_workflow(workflow_of(run), TASKS)


def test_a_workflow_that_raises_or_never_ends_is_reported() -> None:
    async def breaks(task: Task, team: Team) -> Outcome:
        raise IndexError("three")

    async def hangs(task: Task, team: Team) -> Outcome:
        await asyncio.Event().wait()
        return Outcome(answer="")

    with pytest.raises(WorkflowError, match=r"in class 'error': .*IndexError: three"):
        check_workflow(workflow_of(breaks), TASKS)
    with pytest.raises(WorkflowError, match=r"in class 'timeout': .*waiting for: nothing that rolecall knows of"):
        check_workflow(workflow_of(hangs), TASKS, deadline_s=0.2)


PROMPTS = [(1, 2, 3), (4, 5), (6,)]


def test_the_scripted_engine_keeps_the_contract() -> None:
    check_engine(ScriptedEngine(lambda r: f"n{r.seed % 97}", policies={"p": 3}), "p", PROMPTS, end_ids=(256,))


class Altered(ScriptedEngine):
    """Changes completions after the fact."""

    def __init__(self, **changes: Any) -> None:
        super().__init__(lambda r: f"n{r.seed % 97}", policies={"p": 0})
        self.changes = changes

    async def generate(self, requests: Sequence[Request]) -> list[Reply]:
        done = await super().generate(requests)
        return [replace(one, **self.changes) if isinstance(one, Completion) else one for one in done]


class Loose(ScriptedEngine):
    """Seeds by slot; serves any policy; loses replies; scores otherwise."""

    def __init__(self, fault: str) -> None:
        super().__init__(lambda r: f"n{r.seed % 97}", policies=None if fault == "base" else {"p": 0})
        self.fault = fault

    async def generate(self, requests: Sequence[Request]) -> list[Reply]:
        if self.fault == "slot":
            requests = [replace(request, seed=slot) for slot, request in enumerate(requests)]
        done = await super().generate(requests)
        return done[1:] if self.fault == "lost" and done else done

    async def score(self, policy: str, sequences: Any, temperature: float = 1.0) -> list[list[float]]:
        rows = await super().score(policy, sequences, temperature)
        return [[value - 0.01 for value in row] for row in rows] if self.fault == "score" else rows


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        (Altered(versions=(9,), token_ids=(256,), logprobs=(-1.0,)), "has versions {9}; wanted 0 for all"),
        (Altered(versions=(0,), token_ids=(256,), logprobs=(0.5,)), "log-probabilities [0.5]; wanted finite"),
        (Altered(versions=(0,), token_ids=(5,), logprobs=(-1.0,)), "stops at 5; wanted one of the end ids (256,)"),
        (Altered(versions=(), token_ids=(), logprobs=()), "has 0 tokens; wanted 1 to max_tokens=16"),
        (Loose("slot"), "gave other tokens in another batch; wanted the same: make random numbers from request.seed"),
        (Loose("base"), "a request for an unknown policy gave"),
        (Loose("lost"), "3 requests got 2; wanted one each"),
        (Loose("score"), "sampled and scored log-probabilities differ by 0.01; wanted at most 0.0001"),
    ],
)
def test_an_engine_that_breaks_its_contract_is_told_how(engine: ScriptedEngine, words: str) -> None:
    with pytest.raises(EngineError) as seen:
        check_engine(engine, "p", PROMPTS, end_ids=(256,))
    assert words in str(seen.value)


def test_a_short_completion_that_claims_the_length_limit_is_caught() -> None:
    engine = ScriptedEngine(lambda _: Scripted(text="ab", cut_off=True), policies={"p": 0})
    with pytest.raises(EngineError, match="stops for length at 2; wanted 16 tokens"):
        check_engine(engine, "p", PROMPTS, sampling=Sampling(max_tokens=16))


def test_replies_can_be_given_to_take_a_workflow_down_a_certain_path() -> None:
    table: Mapping[str, str] = {"solver": r"\boxed{1}", "verifier": "Verdict: wrong", "corrector": r"\boxed{2}"}
    roles_seen: set[str] = set()

    def reply(request: Request) -> str:
        roles_seen.add(request.key.role)
        return table[request.key.role]

    check_workflow(SolveVerifyCorrect(), TASKS, reply, rounds=1)
    assert roles_seen == set(table)
