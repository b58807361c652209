"""Overlapped: generation beside the learner, within a bound on staleness; nothing lost, nothing counted twice."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pipeline_builders import again, by_candidate, engine_of, learn, saved, source, source_of, steps, turn_of, turns

from rolecall.engines.base import Reply, Request
from rolecall.engines.scripted import ScriptedEngine
from rolecall.errors import EngineError
from rolecall.pipeline.schedule import Schedule
from rolecall.records import Turn
from rolecall.rollout.agentic import AgenticGroups
from rolecall.rollout.steps import StepEpisodes

SMALL = AgenticGroups(n=4, k=2, stages=3)


class Late(ScriptedEngine):
    """Samples at once, under the version of that moment, and answers after a while."""

    def __init__(self, seconds: Callable[[Request], float] = lambda request: 0.0) -> None:
        super().__init__(by_candidate)
        self.seconds = seconds

    async def generate(self, requests: Sequence[Request]) -> list[Reply]:
        replies = await super().generate(requests)
        await self.wait(requests[0])
        return replies

    async def wait(self, request: Request) -> None:
        await asyncio.sleep(self.seconds(request))


class Held(Late):
    """Holds back one reply at a time, until three more versions are published."""

    held = False

    async def wait(self, request: Request) -> None:
        if self.held or request.candidate:
            return
        self.held, wanted = True, self.version(request.policy) + 3
        while self.version(request.policy) < wanted:
            await asyncio.sleep(0.001)
        self.held = False


def overlapped(**settings: Any) -> Schedule:
    return Schedule(**{"mode": "overlapped", "update_rows": 8, "max_staleness": 2, **settings})


def uneven(request: Request) -> float:
    """Most replies are quick, one in sixteen takes long."""
    return 0.03 if request.seed % 16 == 0 else request.seed % 5 / 2000


def run(made: Any, num: int, *, first: int = 1, work_s: float = 0.01, policies: Any = None) -> list[StepEpisodes]:
    """Steps with a learner that takes a while, during which completions are generated."""
    found = []
    for step in range(first, first + num):
        found.append(made.collect(step))
        made.beside(lambda: time.sleep(work_s))
        learn(made, policies)
    return found


def ages(found: list[StepEpisodes], *, first: int = 0) -> list[int]:
    """Staleness of every trained candidate, from the versions of its tokens: step i was learned under version i."""
    return [
        first + number - min(turn.completion.versions)
        for number, one in enumerate(found)
        for turn in (turn_of(each) for each in one.trained)
    ]


@pytest.mark.parametrize("bound", [0, 1, 2])
@pytest.mark.parametrize("segment_tokens", [None, 5])
def test_no_completion_is_older_than_the_bound_and_each_is_trained_once(bound, segment_tokens):
    schedule = overlapped(max_staleness=bound, segment_tokens=segment_tokens)
    with source(Late(uneven), schedule=schedule, sampler=SMALL, tasks_per_step=4) as made:
        found = run(made, 12)
    assert max(ages(found)) <= bound
    assert max(ages(found)) == bound or bound > 1  # it is used
    ids = [turn.id for turn in turns(found)]
    assert len(ids) == len(set(ids))
    assert all(len(one.graded) >= 8 for one in found)
    assert {(turn.role, turn.key.call) for turn in turns(found)} == {
        ("solver", 0),
        ("verifier", 0),
        ("corrector", 0),
    }
    assert max(one.metrics["staleness/shared/max"] for one in found) == max(ages(found))


def test_completions_are_generated_while_the_learner_works_and_none_while_it_publishes():
    during: list[int] = []
    schedule = overlapped(max_staleness=20)
    with source(Late(lambda request: 0.002), schedule=schedule, sampler=SMALL) as made:
        made.collect(1)

        def work() -> None:
            before = made.engine.num_calls
            time.sleep(0.1)
            during.append(made.engine.num_calls - before)
            assert threading.current_thread() is not threading.main_thread()

        made.beside(work)
        before = made.engine.num_calls
        time.sleep(0.05)
        assert made.engine.num_calls == before
    assert during[0] > 0


def test_what_happened_beside_the_learner_is_counted_in_the_next_step():
    """Tokens, tasks, calls and picks of the whole run add up to what the engine did."""
    with source(Late(uneven), schedule=overlapped(), sampler=SMALL, tasks_per_step=4) as made:
        found = run(made, 10)
        tail = made.tick
        everything = [
            done
            for group in made.forest.groups.values()
            for done in group.data.completions
            if done is not None and not group.rows[0].trained
        ]
        trained = sum(turn.completion.num_tokens for turn in turns(found))
        assert sum(one.tokens for one in found) + tail.tokens == trained + sum(done.num_tokens for done in everything)
        assert sum(one.metrics["chains/admitted"] for one in found) + tail.admitted == made.forest.num_chains
        assert (
            sum(one.metrics["calls/ended"] for one in found) + sum(tail.ended.values()) == made.scheduler.counts.ended
        )
        assert sum(one.metrics["chains/ended"] for one in found) + sum(tail.chains_ended.values()) == (
            made.forest.num_chains - len(made.forest.chains)
        )
    for one in found:
        assert one.times["generate"] >= 0
        assert one.times["grade"] >= 0
        assert one.generating_s >= 0  # 0 in a step whose calls had all ended beside the learner
    assert sum(one.generating_s for one in found) > 0


def test_a_task_that_is_admitted_beside_the_learner_and_in_the_same_step_gets_another_id():
    with source(
        Late(uneven), schedule=overlapped(max_staleness=6), sampler=SMALL, num_tasks=1, tasks_per_step=4
    ) as made:
        found = run(made, 10)
    ids = [turn.id for turn in turns(found)]
    assert len(ids) == len(set(ids))
    assert len({turn.id.split("/")[2] for turn in turns(found)}) > 1


def test_under_drop_groups_that_got_too_old_are_counted_and_not_trained():
    schedule = overlapped(max_staleness=1, on_stale="drop", update_rows=4)
    with source(Held(), schedule=schedule, sampler=SMALL, tasks_per_step=8, num_tasks=500) as made:
        found = run(made, 16, work_s=0.005)
    assert max(ages(found)) <= 1
    dropped = [one for step in found for one in step.graded if one.episode.id in step.untrained]
    assert dropped
    assert sum(one.metrics["pipeline/groups_dropped"] for one in found) * 4 == len(dropped)
    assert made.scheduler.counts.dropped * 4 == len(dropped)
    ids = [turn.id for turn in turns(found)]
    assert len(ids) == len(set(ids))


def test_under_mask_the_oldest_version_that_is_trained_is_given_by_policy():
    schedule = overlapped(max_staleness=1, on_stale="mask", max_staleness_by_policy={"judge": 3})
    policies = {"verifier": "judge"}
    with source(Late(uneven), schedule=schedule, sampler=SMALL, policies=policies) as made:
        found = run(made, 4)
    assert [one.min_version for one in found] == [{"shared": n - 1, "judge": n - 3} for n in range(4)]
    assert all(one.untrained == frozenset() for one in found)
    assert all(one.metrics.get("staleness/shared/max", 0) <= 1 for one in found)
    with source(schedule=overlapped(), sampler=SMALL) as made:
        assert made.collect(1).min_version == {}


def test_policies_keep_bounds_of_their_own():
    """The judge does not learn: its completions never age. The solver's are held to 1."""
    policies = {"solver": "solver", "verifier": "judge", "corrector": "solver"}
    schedule = overlapped(max_staleness=1, max_staleness_by_policy={"judge": 0})
    with source(Late(uneven), schedule=schedule, sampler=SMALL, policies=policies) as made:
        found = run(made, 8, policies=["solver"])
    for number, one in enumerate(found):
        for turn in turns(one):
            age = number - min(turn.completion.versions) if turn.policy == "solver" else min(turn.completion.versions)
            assert 0 <= age <= (1 if turn.policy == "solver" else 0)


def test_an_overlapped_run_that_goes_on_from_a_checkpoint_loses_nothing_and_counts_nothing_twice():
    """A checkpoint every third step; each time the run goes on for two steps that are lost, as in a kill."""
    options: dict[str, Any] = {"schedule": overlapped(segment_tokens=6), "sampler": SMALL, "tasks_per_step": 4}
    made = source_of(Late(uneven), **options)
    kept: list[StepEpisodes] = []
    for _ in range(4):
        kept += run(made, 3, first=len(kept) + 1)
        state, versions = saved(made), dict(made.scheduler.versions)
        run(made, 2, first=len(kept) + 1)
        made.close()
        made = again(state, versions, Late(uneven), **options)
        assert saved(made) == state
    kept += run(made, 2, first=len(kept) + 1)
    state = saved(made)
    counts, tail = made.scheduler.counts, made.tick
    made.close()
    assert max(ages(kept)) <= 2
    ids = [turn.id for turn in turns(kept)]
    assert len(ids) == len(set(ids))
    sizes: dict[str, int] = {}
    for turn in turns(kept):
        sizes[turn.peers] = sizes.get(turn.peers, 0) + 1
    assert set(sizes.values()) == {4}
    started = {transcript_id(turn) for turn in turns(kept) if turn.role == "solver"}
    waiting = [group for group in state["forest"]["groups"] if group["place"][1] == 0 and not all_trained(group)]
    assert len(started) + len(waiting) == state["forest"]["num_chains"] == counts.admitted
    assert sum(one.metrics["chains/admitted"] for one in kept) + tail.admitted == counts.admitted
    assert sum(one.metrics["calls/ended"] for one in kept) + sum(tail.ended.values()) == counts.ended


def test_groups_that_a_checkpoint_finds_with_the_graders_are_graded_and_their_chains_go_on(monkeypatch):
    """The graders never answer before the checkpoint, and at once after it."""
    options: dict[str, Any] = {"schedule": overlapped(max_staleness=9), "sampler": SMALL, "tasks_per_step": 4}
    made = source_of(engine_of(), **options)
    made.collect(1)
    held = asyncio.Event()

    async def never(answers: Any) -> Any:
        await held.wait()

    monkeypatch.setattr(made.graders, "grade_many", never)
    made.beside(lambda: time.sleep(0.05))
    learn(made)
    state, versions, admitted = saved(made), dict(made.scheduler.versions), made.forest.num_chains
    waiting = [tuple(one["place"]) for one in state["forest"]["groups"] if all_ended(one) and not one["scored"]]
    assert waiting
    assert made.scheduler.scoring == len(waiting)
    made.close()
    made = again(state, versions, engine_of(), **options)
    assert saved(made) == state
    assert made.scheduler.scoring == len(waiting)
    found = run(made, 30, first=2)
    made.close()
    under_way = set(made.forest.chains) & set(range(admitted))
    assert under_way == set()  # every chain of the checkpoint came to its end
    chains = {chain for chain, _, _ in waiting}
    stages = {(turn.peers.partition("/")[0], turn.role) for turn in turns(found)}
    assert len([role for _, role in stages if role == "corrector"]) >= len(chains)
    ids = [turn.id for turn in turns(found)]
    assert len(ids) == len(set(ids))


def test_time_in_which_the_loop_stood_still_is_neither_generating_nor_grading(monkeypatch):
    """Graders answer while nothing runs the loop, between two steps, and what came is seen before the step begins."""
    made = source_of(engine_of(), schedule=overlapped(max_staleness=9), sampler=SMALL, tasks_per_step=4)
    made.collect(1)
    graded = made.graders.grade_many

    async def later(answers: Any) -> Any:
        grades = await graded(answers)
        await asyncio.get_running_loop().run_in_executor(None, time.sleep, 0.1)
        return grades

    monkeypatch.setattr(made.graders, "grade_many", later)
    made.beside(lambda: time.sleep(0.02))
    assert made.clock.gradings
    learn(made)
    time.sleep(0.5)  # publishing, validation, the checkpoint
    made.runner.loop.call_soon(lambda: made.clock.mark(made.scheduler.running))  # a reply came in the meantime
    begun = time.monotonic()
    two = made.collect(2)
    seconds = time.monotonic() - begun
    made.close()
    assert 0 <= two.times["grade"] <= seconds
    assert two.times["generate"] >= 0


def all_ended(group: Any) -> bool:
    return all(row[3] for row in group["rows"])


def transcript_id(turn: Turn) -> str:
    return turn.peers.rpartition("/")[0]


def all_trained(group: Any) -> bool:
    return all(row[-1] for row in group["rows"])


def test_what_the_learner_raises_ends_the_step_and_so_does_what_generation_raises_beside_it():
    with source(Late(uneven), schedule=overlapped(), sampler=SMALL) as made:
        made.collect(1)
        with pytest.raises(ZeroDivisionError):
            made.beside(lambda: 1 // 0)

    class Breaks(ScriptedEngine):
        broken = False

        async def generate(self, requests: Any) -> Any:
            if self.broken:
                raise OSError("the driver is gone")
            return await super().generate(requests)

    engine = Breaks(by_candidate, latency=uneven)
    with source(engine, schedule=overlapped(max_staleness=1000), sampler=SMALL) as made:
        made.collect(1)
        engine.broken = True  # and the bound holds no call back, however slow this machine is
        with pytest.raises(EngineError, match="the driver is gone"):
            made.beside(lambda: time.sleep(0.3))


def test_in_ticks_the_learner_works_in_the_thread_of_the_run_and_nothing_runs_beside_it():
    with source(sampler=SMALL) as made:
        made.collect(1)
        calls = made.engine.num_calls
        assert made.beside(threading.current_thread) is threading.main_thread()
        assert made.engine.num_calls == calls


def test_few_rows_in_flight_are_kept_to():
    running = [0, 0]

    class Counting(ScriptedEngine):
        async def generate(self, requests: Any) -> Any:
            running[0] += len(requests)
            running[1] = max(running)
            replies = await super().generate(requests)
            running[0] -= len(requests)
            return replies

    for schedule, settings, most in ((overlapped(max_rows=3), {}, 3), (overlapped(), {"max_concurrent": 5}, 5)):
        running[:] = [0, 0]
        engine = Counting(by_candidate, latency=uneven)
        with source(engine, schedule=schedule, sampler=SMALL, tasks_per_step=4, **settings) as made:
            run(made, 3)
        assert running[1] == most


def test_a_learner_that_is_slow_holds_generation_back():
    """Bound 1, updates of 8: at most 16 completions are started and not in the weights, however long it learns."""
    with source(engine_of(), schedule=overlapped(max_staleness=1), sampler=SMALL, tasks_per_step=8) as made:
        for step in range(1, 6):
            before = made.scheduler.counts.started
            made.collect(step)
            made.beside(lambda: time.sleep(0.05))
            assert made.scheduler.counts.started - before <= 16
            learn(made)
        assert len(steps(made, 1, first=6)[0].graded) == 8
        asyncio.run(made.engine.close())
