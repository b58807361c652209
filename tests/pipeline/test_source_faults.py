"""What goes wrong in a tick: engines, deadlines, workflows, graders, prompts that are too long, Ctrl-C, blocked loops.

Nothing is lost without a count, nothing hangs, and what ends the run says why.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
from pipeline_builders import (
    SVC,
    UNGRADABLE,
    again,
    by_candidate,
    engine_of,
    learn,
    saved,
    source,
    source_of,
    steps,
    turn_of,
    turns,
)

from rolecall.engines.base import Request
from rolecall.engines.scripted import Answer, ScriptedEngine
from rolecall.errors import BlockedLoop, CheckpointError, EngineError, InvalidEpisode, WorkflowError
from rolecall.pipeline.schedule import Schedule
from rolecall.pipeline.stuck import SchedulerStuck
from rolecall.records import Claim, ClaimKind, Completion, Outcome, OutcomeClass, Sampling, Stop, Task
from rolecall.rewards.agent_specific import AgentSpecific
from rolecall.rollout.agentic import AgenticGroups
from rolecall.workflows.base import Team, Workflow

SMALL = AgenticGroups(n=4, k=2, stages=3)
OVERLAPPED = Schedule(mode="overlapped", update_rows=8, max_staleness=1)


def say(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


# -- engines ----------------------------------------------------------------------------------------------------------


class Flaky(ScriptedEngine):
    """Fails for some requests, the first `times` times that it sees each."""

    def __init__(self, fails: Any, times: int = 1, error: Answer | None = None) -> None:
        super().__init__(self.answer)
        self.fails, self.times, self.error = fails, times, error
        self.seen: Counter[int] = Counter()

    def answer(self, request: Request) -> Answer:
        self.seen[request.seed] += 1
        if self.fails(request) and self.seen[request.seed] <= self.times:
            return self.error if self.error is not None else EngineError("out of luck")
        return by_candidate(request)


def first_two(request: Request) -> bool:
    return request.candidate < 2


@pytest.mark.parametrize("mode", ["pipeline", "pipeline_segments"])
def test_a_row_that_the_engine_failed_on_is_asked_for_again_with_its_own_seed(mode):
    schedule = Schedule(mode=mode, segment_tokens=64 if mode == "pipeline_segments" else None)
    with source(Flaky(first_two), schedule=schedule, sampler=SMALL, tasks_per_step=2, max_retries=1) as made:
        found = steps(made, 3)
        assert set(made.engine.seen.values()) == {1, 2}
    with source(engine_of(), sampler=SMALL, tasks_per_step=2) as made:
        wanted = steps(made, 1)
    first = [turn for turn in turns(found) if turn.id in {other.id for other in turns(wanted)}]
    assert sorted(first, key=lambda turn: turn.id) == sorted(turns(wanted), key=lambda turn: turn.id)
    assert all(one.metrics["calls/failed"] == one.outcomes["error"] == 0 for one in found)
    assert found[0].metrics["calls/retried"] == 4 if mode == "pipeline" else 8
    assert found[0].metrics["calls/ended"] == (8 if mode == "pipeline" else 12)  # in segments, a tick later


def test_a_row_that_fails_for_good_is_counted_and_its_group_goes_on_without_it():
    engine = Flaky(lambda request: request.key.role == "solver" and request.candidate == 1, times=99)
    with source(engine, sampler=SMALL, tasks_per_step=2, max_retries=2) as made:
        one, two = steps(made, 2)
    assert one.outcomes == {"ok": 6, "truncated": 0, "invalid": 0, "error": 2, "timeout": 0}
    assert one.metrics["calls/failed"] == 2
    assert one.metrics["calls/retried"] == 4
    assert one.metrics["calls/ended"] == 6
    assert {turn.candidate for turn in turns(one)} == {0, 2, 3}
    assert len([turn for turn in turns(two) if turn.role == "verifier"]) == 2 * 8


def test_a_group_of_failures_ends_its_chain_and_the_run_goes_on():
    engine = Flaky(lambda request: request.task.id == "t0", times=99)
    with source(engine, num_tasks=3, sampler=SMALL, tasks_per_step=3, max_retries=0) as made:
        found = steps(made, 3)
    assert {one.episode.task.id for step in found for one in step.graded} == {"t1", "t2"}
    assert found[0].metrics["chains/ended_failed"] == 1
    assert found[0].outcomes["error"] == 4
    assert found[-1].metrics["chains/ended"] == 3  # one failed, two came to their last stage


@pytest.mark.parametrize("schedule", [Schedule(), Schedule(mode="pipeline"), OVERLAPPED], ids=lambda one: one.mode)
def test_steps_in_which_everything_fails_are_empty_and_come_to_an_end(schedule):
    engine = Flaky(lambda request: True, times=99)
    with source(engine, schedule=schedule, sampler=SMALL, tasks_per_step=2, max_retries=1) as made:
        found = steps(made, 3)
    assert [len(one.graded) for one in found] == [0, 0, 0]
    assert all(one.outcomes["error"] == 8 for one in found)
    assert schedule.mode == "overlapped" or made.forest.groups == {}


def test_an_aborted_completion_is_a_failure_and_not_a_reply():
    gone = Completion(token_ids=(65,), logprobs=(-1.0,), versions=(0,), stop=Stop.ABORT)
    with source(Flaky(first_two, error=gone), sampler=SMALL, tasks_per_step=1, max_retries=0) as made:
        found = made.collect(1)
    assert found.outcomes["error"] == 2
    assert {turn.candidate for turn in turns(found)} == {2, 3}


def test_a_broken_engine_ends_the_run_by_name():
    class Broken(ScriptedEngine):
        async def generate(self, requests: Any) -> Any:
            raise OSError("the driver is gone")

    for settings in ({}, {"deterministic": False}, {"schedule": OVERLAPPED}):
        with (
            source(Broken(by_candidate), **settings) as made,
            pytest.raises(EngineError, match="the engine raised OSError: the driver is gone"),
        ):
            made.collect(1)


def test_an_engine_that_answers_too_little_ends_the_run_by_name():
    class Short(ScriptedEngine):
        async def generate(self, requests: Any) -> Any:
            return (await super().generate(requests))[1:]

    with source(Short(by_candidate)) as made, pytest.raises(EngineError, match="answered 24 requests with 23 replies"):
        made.collect(1)


def test_a_call_past_its_deadline_is_a_timeout_that_is_not_made_again():
    def slow(request: Request) -> float:
        return 60.0 if request.candidate == 1 else 0.0

    with source(
        engine_of(latency=slow),
        sampler=SMALL,
        tasks_per_step=2,
        deterministic=False,
        max_retries=3,
        roles={"deadline_s": 1.5},
    ) as made:
        found = made.collect(1)
    assert found.outcomes == {"ok": 6, "truncated": 0, "invalid": 0, "error": 0, "timeout": 2}
    assert found.metrics["calls/failed"] == 2
    assert found.metrics["calls/retried"] == 0


def test_a_deadline_does_not_count_when_deterministic():
    with source(
        engine_of(latency=lambda request: 0.2), sampler=SMALL, tasks_per_step=1, roles={"deadline_s": 0.01}
    ) as made:
        assert made.collect(1).outcomes["ok"] == 4


# -- workflows --------------------------------------------------------------------------------------------------------


def workflow_of(run_it: Any, *names: str) -> Workflow:
    """A workflow from a function, in which every reply is an answer."""

    @dataclass(frozen=True, kw_only=True)
    class FromFunction(Workflow):
        roles: ClassVar[tuple[str, ...]] = names or ("solver", "judge")

        async def run(self, task: Task, team: Team) -> Outcome:
            outcome: Outcome = await run_it(task, team)
            return outcome

        def claim(self, role: str, text: str | None, truncated: bool) -> Claim:
            return Claim(kind=ClaimKind.ANSWER, value=text)

    return FromFunction()


def answers(request: Request) -> str:
    return str(request.task.answer) if request.candidate % 2 else "-1"


@pytest.mark.parametrize("first", [True, False], ids=["at_the_start", "after_a_reply"])
def test_calls_side_by_side_are_named_with_the_way_out(first):
    async def votes(task: Task, team: Team) -> Outcome:
        if not first:
            await team["solver"].reply(say("draft"))
        replies = await asyncio.gather(*[agent.reply(say("vote")) for agent in team.copies("judge", 2)])
        return Outcome(answer=replies[0].text)

    with (
        source(engine_of(answers), workflow=workflow_of(votes), sampler=SMALL) as made,
        pytest.raises(WorkflowError) as error,
    ):
        made.collect(1)
    words = str(error.value)
    assert "workflow FromFunction makes the calls judge:0, judge.1:0 side by side" in words
    assert "await them one after the other, or use an algorithm of independent episodes" in words


def test_a_workflow_that_raises_after_a_reply_is_counted_and_its_turn_earns_what_the_reward_says():
    async def picky(task: Task, team: Team) -> Outcome:
        reply = await team["solver"].reply(say(task.question))
        if reply.text == "-1":
            raise ValueError("never negative")
        more = await team["judge"].reply(say(reply.text or ""))
        return Outcome(answer=more.text)

    with source(engine_of(answers), workflow=workflow_of(picky), sampler=SMALL, tasks_per_step=2) as made:
        one, two = steps(made, 2)
    failed = [each for each in one.graded if each.episode.failure is not None]
    assert len(failed) == 4
    assert one.outcomes["error"] == 4
    assert "never negative" in failed[0].episode.failure.detail
    assert AgentSpecific()(failed[0])[turn_of(failed[0]).id].parts == {"correct": 0.0, "failed": 1.0}
    judged = [
        each.episode.turn(turn_of(each).parent or "").text for each in two.graded if turn_of(each).role == "judge"
    ]
    assert judged
    assert "-1" not in judged
    assert one.metrics["reward/team"] == 0.0  # the paths that ended here are the failed ones


def test_turns_after_which_the_workflow_failed_are_dropped_where_that_is_set():
    async def picky(task: Task, team: Team) -> Outcome:
        reply = await team["solver"].reply(say(task.question))
        if reply.text == "-1":
            raise ValueError("never negative")
        return Outcome(answer=reply.text)

    for drops in (False, True):
        with source(
            engine_of(answers), workflow=workflow_of(picky), sampler=SMALL, tasks_per_step=2, drop_failed=drops
        ) as made:
            found = made.collect(1)
        assert [turn_of(one).candidate for one in found.trained] == [1, 3] * 2 if drops else [0, 1, 2, 3] * 2
        assert found.metrics["calls/dropped"] == 4 * drops
        assert len(found.graded) == 8


def test_a_workflow_that_declares_its_episode_invalid_is_counted_so():
    async def invalid(task: Task, team: Team) -> Outcome:
        await team["solver"].reply(say(task.question))
        raise InvalidEpisode("not a word of sense")

    with source(engine_of(answers), workflow=workflow_of(invalid), sampler=SMALL, tasks_per_step=1) as made:
        found = made.collect(1)
    assert found.outcomes["invalid"] == 4
    assert found.metrics["chains/ended_no_candidate"] == 1


async def calls_nobody(task: Task, team: Team) -> Outcome:
    if int(task.id[1:]) % 2:
        raise RuntimeError("odd")
    return Outcome(answer=task.answer)


@pytest.mark.parametrize("mode", ["barrier", "pipeline"])
def test_tasks_on_which_the_workflow_calls_nobody_are_counted_and_the_step_ends(mode):
    with source(
        workflow=workflow_of(calls_nobody), schedule=Schedule(mode=mode), num_tasks=4, tasks_per_step=4
    ) as made:
        found = made.collect(1)
    assert found.metrics["chains/ended_no_call"] == 4
    assert found.metrics["chains/ended"] == 4
    assert found.outcomes == {"ok": 2, "truncated": 0, "invalid": 0, "error": 2, "timeout": 0}


def test_overlapped_a_task_set_of_which_nothing_can_be_generated_ends_in_an_error():
    with (
        source(workflow=workflow_of(calls_nobody), schedule=OVERLAPPED, sampler=SMALL, num_tasks=5) as made,
        pytest.raises(SchedulerStuck, match=r"before its first call on . tasks in a row.*nothing to generate"),
    ):
        made.collect(1)


def test_refilling_a_step_of_tasks_that_call_nobody_comes_to_an_end():
    with source(workflow=workflow_of(calls_nobody), sampler=SMALL, num_tasks=4, tasks_per_step=2, refill=True) as made:
        found = made.collect(1)
    assert found.metrics["chains/admitted"] == 4
    assert found.metrics["chains/refilled"] == 2


# -- prompts, truncation, grades --------------------------------------------------------------------------------------


def wordy(request: Request) -> str:
    """Wrong solutions are long: the next prompt would be too long for them."""
    text = by_candidate(request)
    return " " * 200 + text if request.key.role == "solver" and text == "-1" else text


def test_a_candidate_whose_next_prompt_would_be_too_long_is_not_picked_and_keeps_its_own_reward():
    """No reward flows upstream: that the verifier cannot be asked is not what the solution is judged by."""
    sampling = Sampling(max_tokens=300, max_prompt_tokens=100)
    with source(engine_of(wordy), sampler=SMALL, tasks_per_step=2, sampling=sampling) as made:
        one, two = steps(made, 2)
    assert one.metrics["calls/overlong"] == 4
    assert one.outcomes == {"ok": 8, "truncated": 0, "invalid": 0, "error": 0, "timeout": 0}
    rewards = {turn_of(each).candidate: AgentSpecific()(each)[turn_of(each).id] for each in one.graded}
    assert [rewards[candidate].parts for candidate in range(4)] == [{"correct": 0.0}, {"correct": 1.0}] * 2
    judged = [
        each.episode.turn(turn_of(each).about or "").text for each in two.graded if turn_of(each).role == "verifier"
    ]
    assert len(judged) == 2 * 8
    assert not any((text or "").startswith(" ") for text in judged)
    assert one.metrics["reward/team"] == 0.0
    ended = next(each.episode for each in one.graded if turn_of(each).candidate == 0)
    assert ended.outcome is not None
    assert "too long" in ended.outcome.reason


def test_a_right_solution_that_is_too_long_for_the_verifier_is_right_all_the_same():
    def long_and_right(request: Request) -> str:
        return " " * 200 + by_candidate(request)

    sampling = Sampling(max_tokens=300, max_prompt_tokens=100)
    with source(engine_of(long_and_right), sampler=SMALL, tasks_per_step=1, sampling=sampling) as made:
        found = made.collect(1)
    rewards = {turn_of(one).candidate: AgentSpecific()(one)[turn_of(one).id].total for one in found.graded}
    assert rewards == {0: 0.0, 1: 1.0, 2: 0.0, 3: 1.0}
    assert found.metrics["chains/ended_no_candidate"] == 1


def test_a_workflow_may_catch_that_a_prompt_is_too_long_and_go_on():
    async def patient(task: Task, team: Team) -> Outcome:
        from rolecall.errors import CallError

        reply = await team["solver"].reply(say(task.question))
        try:
            last = await team["judge"].reply(say("x" * 500))
        except CallError:
            last = await team["judge"].reply(say(f"short: {reply.text}"))
        return Outcome(answer=last.text)

    sampling = Sampling(max_tokens=20, max_prompt_tokens=100)
    options: dict[str, Any] = {"workflow": workflow_of(patient), "sampling": sampling, "sampler": SMALL}
    with source(engine_of(answers), tasks_per_step=1, **options) as made:
        one = made.collect(1)
        learn(made)
        state, versions = saved(made), dict(made.scheduler.versions)
        two = made.collect(2)
    assert one.metrics["calls/overlong"] == 0
    assert {(turn.role, turn.key.call) for turn in turns(two)} == {("solver", 0), ("judge", 1)}
    other = again(state, versions, engine_of(answers), tasks_per_step=1, **options)
    try:
        assert other.collect(2).graded == two.graded
    finally:
        other.close()


def test_a_first_prompt_that_is_too_long_is_a_task_without_a_call():
    with source(sampler=SMALL, tasks_per_step=2, sampling=Sampling(max_prompt_tokens=5)) as made:
        found = made.collect(1)
    assert found.metrics["chains/ended_no_call"] == 2
    assert found.outcomes["invalid"] == 2


def test_a_truncated_report_goes_to_the_corrector_and_is_trained_with_a_reward_of_0():
    def endless(request: Request) -> str:
        return "Verdict: wrong " * 20 if request.key.role == "verifier" else by_candidate(request)

    with source(engine_of(endless), sampler=SMALL, tasks_per_step=1) as made:
        found = steps(made, 3)
    reports = [one for one in found[1].graded if turn_of(one).role == "verifier"]
    assert {AgentSpecific()(one)[turn_of(one).id].total for one in reports} == {0.0}
    assert found[1].outcomes["truncated"] == 8
    assert len([turn for turn in turns(found[2]) if turn.role == "corrector"]) == 8
    assert found[1].metrics["picks/corrector/shortfall"] == 2  # none of them was right


def test_answers_that_no_grader_can_read_have_no_reward_and_are_picked_last():
    def unreadable(request: Request) -> str:
        return UNGRADABLE if request.key.role == "solver" and request.candidate < 3 else by_candidate(request)

    with source(engine_of(unreadable), sampler=SMALL, tasks_per_step=1) as made:
        one, two = steps(made, 2)
    rewards = {turn_of(each).candidate: AgentSpecific()(each)[turn_of(each).id].total for each in one.graded}
    assert rewards == {0: None, 1: None, 2: None, 3: 1.0}
    assert one.metrics["grading/failed"] == 3
    judged = {
        each.episode.turn(turn_of(each).about or "").candidate
        for each in two.graded
        if turn_of(each).role == "verifier"
    }
    assert 3 in judged
    assert one.metrics["picks/verifier/shortfall"] == 2
    assert "reward/team" not in one.metrics
    assert one.metrics["chains/flat"] == 1  # a single grade has no spread


# -- the ends of a run ------------------------------------------------------------------------------------------------


@pytest.fixture
def listening():
    """Ctrl-C as in a terminal: a process that a shell script put into the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    "settings", [{}, {"deterministic": False}, {"schedule": OVERLAPPED}], ids=["waves", "rows", "overlapped"]
)
@pytest.mark.usefixtures("listening")
def test_ctrl_c_in_the_middle_of_a_tick_ends_what_is_under_way(settings):
    import _thread

    pressed = []

    def wait(request: Request) -> float:
        if not pressed:
            pressed.append(True)
            _thread.interrupt_main()
        return 30.0

    made = source_of(engine_of(latency=wait), sampler=SMALL, tasks_per_step=2, **settings)
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        made.collect(1)
    assert made.active
    made.close()
    assert not made.active
    made.close()
    assert time.monotonic() - begun < 25


def test_closing_after_a_failure_beside_others_that_run_is_quiet(caplog, recwarn):
    """One row ends the run; others that wait are cancelled, and others that failed too are not reported again."""

    class Broken(ScriptedEngine):
        async def generate(self, requests: Any) -> Any:
            if requests[0].candidate < 2:
                raise OSError("gone")
            return await super().generate(requests)

    made = source_of(
        Broken(by_candidate, latency=lambda request: 30.0), sampler=SMALL, tasks_per_step=2, deterministic=False
    )
    with pytest.raises(EngineError, match="gone"):
        made.collect(1)
    made.close()
    del made
    assert caplog.records == []
    assert not recwarn.list


def test_a_workflow_that_blocks_the_loop_is_found_by_the_watchdog(capfd):
    async def blocks(task: Task, team: Team) -> Outcome:
        reply = await team["solver"].reply(say(task.question))
        if reply.text == "-1":
            until = time.monotonic() + 60
            while time.monotonic() < until:
                time.sleep(0.01)
        return Outcome(answer=reply.text)

    with source(
        engine_of(answers), workflow=workflow_of(blocks), sampler=SMALL, tasks_per_step=1, watchdog_s=1.0
    ) as made:
        begun = time.monotonic()
        with pytest.raises(BlockedLoop, match="has blocked the event loop"):
            made.collect(1)
        assert time.monotonic() - begun < 30
    assert "blocks" in capfd.readouterr().err


def test_a_workflow_that_was_changed_since_the_checkpoint_is_refused():
    sampler = AgenticGroups(n=4, k=1, stages=5)
    with source(sampler=sampler, tasks_per_step=1) as made:
        steps(made, 3)
        state = saved(made)
    with pytest.raises(CheckpointError, match="the workflow ends where the checkpoint has a call of it under way"):
        again(state, {"shared": 3}, sampler=sampler, tasks_per_step=1, workflow=replace(SVC, max_rounds=1))


def test_effects_made_after_a_reply_are_kept_in_the_checkpoint_and_not_made_again():
    """A tool between two calls; the stage waits for a sibling across the checkpoint, and the tool ran already."""
    ran: list[str] = []

    async def with_tool(task: Task, team: Team) -> Outcome:
        first = await team["solver"].reply(say(task.question))
        second = await team["judge"].reply(say(first.text or ""))

        def tool() -> str:
            ran.append(second.turn_id)
            return f"run {len(ran)}"

        found = await team.effect("tool", tool)
        last = await team["solver"].reply(say(f"{second.text} {found}"))
        return Outcome(answer=last.text)

    def ragged(request: Request) -> str:
        judges = request.key.role == "judge"
        return "0" * (len(request.prompt_ids) % 3 * 8 if judges else request.candidate) + answers(request)

    options: dict[str, Any] = {
        "workflow": workflow_of(with_tool),
        "sampler": SMALL,
        "schedule": Schedule(mode="pipeline_segments", segment_tokens=8),
        "tasks_per_step": 1,
    }
    kept = 0
    with source(engine_of(ragged), **options) as made:
        for step in range(1, 6):
            found = made.collect(step)
            learn(made)
            state, versions, before = saved(made), dict(made.scheduler.versions), len(ran)
            after = [one for group in state["forest"]["groups"] for one in group["after"].values()]
            kept += sum(len(one["effects"]) for one in after)
            other = again(state, versions, engine_of(ragged), **options)
            try:
                assert saved(other) == state
            finally:
                other.close()
            assert len(ran) == before
        assert len(ran) == len(set(ran))
    assert kept > 0, "no stage waited with effects behind it: this test tests nothing"
    assert {one.episode.outcome_class for one in found.graded} == {OutcomeClass.OK}
