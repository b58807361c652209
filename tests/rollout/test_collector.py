from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
from rollout_builders import Chain, Vote, by_seed, refusing, roles_for, say, slow, task, workflow_of

from rolecall.engines.base import Reply, Request
from rolecall.engines.scripted import Answer, ScriptedEngine
from rolecall.errors import ConfigError, EngineError, TaskError, UsageError
from rolecall.records import Outcome, OutcomeClass, Sampling, Task
from rolecall.rollout.collector import Collected, Collector, CollectorSettings
from rolecall.rollout.samplers import EpisodePlan, IndependentEpisodes
from rolecall.rollout.transcript import CallRecord, EffectRecord, Limits, Transcript
from rolecall.workflows.base import Team, Workflow


def plans(num_tasks: int, n: int = 2) -> tuple[EpisodePlan, ...]:
    return IndependentEpisodes(n=n).plans([task(i) for i in range(num_tasks)])


def collect(
    workflow: Workflow, engine: ScriptedEngine, planned: Sequence[EpisodePlan], **settings: object
) -> Collected:
    collector = Collector(workflow, roles_for(workflow), engine, CollectorSettings(**settings))  # type: ignore[arg-type]
    try:
        return collector.collect(planned)
    finally:
        collector.close()


@dataclass(frozen=True, kw_only=True)
class Repair(Workflow):
    """A solver, and a corrector that raises on some tasks."""

    roles: ClassVar[tuple[str, ...]] = ("solver", "corrector")

    bad: frozenset[str] = frozenset({"task1"})
    first_attempt_only: bool = False

    async def run(self, task: Task, team: Team) -> Outcome:
        first = await team["solver"].reply(say(task.question))
        lucky = self.first_attempt_only and team.rng.random() < 0.5
        if task.id in self.bad and not lucky:
            raise RuntimeError("the corrector's parser broke")
        second = await team["corrector"].reply(say(first.text or ""), about=first)
        return Outcome(answer=second.text)


def test_every_episode_that_was_started_is_in_the_counts_when_a_fifth_of_the_prompts_is_too_long() -> None:
    """40 right answers of 80 that fit, of 100 started: 0.40, not 0.50."""
    tasks = [Task(id=f"t{i}", question="x" * (500 if i % 5 == 0 else 1), answer="1") for i in range(100)]

    async def run(task: Task, team: Team) -> Outcome:
        reply = await team["solver"].reply(say(task.question))
        return Outcome(answer=reply.text)

    workflow = workflow_of(run)
    engine = ScriptedEngine(lambda request: str(int(request.task.id[1:]) % 2))
    collector = Collector(workflow, roles_for(workflow, Sampling(max_prompt_tokens=100)), engine)
    collected = collector.collect(IndependentEpisodes(n=1).plans(tasks))
    collector.close()
    counts = collected.counts
    assert counts.started == len(collected.episodes) == 100
    assert counts.outcomes == {"ok": 80, "truncated": 0, "invalid": 20, "error": 0, "timeout": 0}
    assert sum(episode.answer == "1" for episode in collected.episodes) / counts.started == 0.40
    assert counts.metrics()["episodes/invalid_rate"] == 0.2


@pytest.mark.parametrize("nap_s", [0.0, 0.001, 100.0])
@pytest.mark.parametrize("deterministic", [True, False])
def test_one_episode_that_never_ends_meets_its_deadline_and_the_rest_is_collected(
    deterministic: bool, nap_s: float
) -> None:
    async def run(task: Task, team: Team) -> Outcome:
        reply = await team["solver"].reply(say(task.question))
        while task.id == "task2":
            await asyncio.sleep(nap_s)
        reply = await team["solver"].reply(say(reply.text or ""))
        return Outcome(answer=reply.text)

    collected = collect(
        workflow_of(run), ScriptedEngine(by_seed), plans(5, n=1), deterministic=deterministic,
        limits=Limits(deadline_s=0.3),
    )  # fmt: skip
    assert [episode.outcome_class for episode in collected.episodes].count(OutcomeClass.OK) == 4
    assert collected.episodes[2].outcome_class is OutcomeClass.TIMEOUT
    assert collected.counts.outcomes["timeout"] == 1


def test_a_corrector_that_raises_keeps_the_solvers_turn_and_marks_it_for_reward_zero() -> None:
    collected = collect(Repair(), ScriptedEngine(by_seed), plans(3), on_failure="zero")
    failed = [episode for episode in collected.episodes if episode.outcome_class is OutcomeClass.ERROR]
    assert [[turn.role for turn in episode.turns] for episode in failed] == [["solver"], ["solver"]]
    assert collected.zeroed == {episode.id for episode in failed}
    assert (collected.counts.zeroed, collected.counts.dropped, collected.counts.retries) == (2, 0, 0)
    assert len(collected.trained) == 6


def test_dropped_episodes_are_not_trained_and_still_counted() -> None:
    collected = collect(Repair(), ScriptedEngine(by_seed), plans(3), on_failure="drop")
    assert len(collected.trained) == 4
    assert (collected.counts.started, collected.counts.dropped, len(collected.dropped)) == (6, 2, 2)


def test_retries_are_other_attempts_counted_apart_from_the_episodes_started() -> None:
    collected = collect(Repair(), ScriptedEngine(by_seed), plans(3), on_failure="retry", max_retries=2)
    counts = collected.counts
    assert (counts.started, counts.attempts, counts.retries, counts.zeroed) == (6, 10, 4, 2)
    assert sum(counts.outcomes.values()) == counts.started
    assert [episode.attempt for episode in collected.abandoned] == [0, 1, 0, 1]
    assert {episode.attempt for episode in collected.episodes if episode.task.id == "task1"} == {2}
    assert len({episode.id for episode in (*collected.episodes, *collected.abandoned)}) == 10


def test_a_retry_that_succeeds_is_trained() -> None:
    workflow = Repair(bad=frozenset({f"task{i}" for i in range(10)}), first_attempt_only=True)
    collected = collect(workflow, ScriptedEngine(by_seed), plans(10), on_failure="retry", max_retries=20)
    assert collected.counts.outcomes["ok"] == 20
    assert collected.counts.retries > 0
    assert not collected.zeroed


def test_waves_hold_the_same_calls_in_the_same_order_whatever_the_latencies() -> None:
    def run(seed: int) -> tuple[list[list[str]], Collected]:
        waves: list[list[str]] = []

        class Watched(ScriptedEngine):
            async def generate(self, requests: Sequence[Request]) -> list[Reply]:
                waves.append([f"{request.task.id} {request.key}" for request in requests])
                return await super().generate(requests)

        engine = Watched(by_seed, latency=slow(seed))
        return waves, collect(Vote(voters=2), engine, plans(3, n=1), deterministic=True, max_concurrent=2)

    waves, collected = run(0)
    for seed in (1, 2):
        others, again = run(seed)
        assert others == waves
        assert again.episodes == collected.episodes
    assert waves[0] == ["task0 voter:0", "task0 voter.1:0", "task1 voter:0", "task1 voter.1:0"]
    assert waves[-1] == ["task2 chair:0"]


def test_continuous_calls_give_the_same_episodes_as_waves() -> None:
    waves = collect(Vote(), ScriptedEngine(by_seed), plans(4), deterministic=True)
    continuous = collect(Vote(), ScriptedEngine(by_seed, latency=slow(5)), plans(4))
    assert continuous.episodes == waves.episodes
    assert continuous.counts.engine_batches == continuous.counts.calls_sampled
    assert waves.counts.engine_batches == 3


def test_episodes_in_flight_go_on_by_replay_after_the_engine_broke() -> None:
    journal: dict[str, list[CallRecord | EffectRecord]] = {}

    class Dying(ScriptedEngine):
        async def generate(self, requests: Sequence[Request]) -> list[Reply]:
            if self.num_calls >= 6:
                raise OSError("the device is gone")
            return await super().generate(requests)

    planned = plans(3)
    first = Collector(
        Chain(), roles_for(Chain()), Dying(by_seed), CollectorSettings(deterministic=True),
        journal=lambda episode, record: journal.setdefault(episode, []).append(record),
    )  # fmt: skip
    with pytest.raises(EngineError, match="the device is gone"):
        first.collect(planned)
    first.close()
    assert sum(len(records) for records in journal.values()) == 6
    recorded = {
        plan_id: Transcript(task=plan.task, index=plan.index, calls=tuple(journal[plan_id]))  # type: ignore[arg-type]
        for plan in planned
        for plan_id in [Transcript(task=plan.task, index=plan.index).id]
    }
    engine = ScriptedEngine(by_seed)
    second = Collector(Chain(), roles_for(Chain()), engine, CollectorSettings(deterministic=True))
    resumed = second.collect(planned, recorded=recorded)
    second.close()
    assert (engine.num_calls, resumed.counts.calls_replayed) == (12, 6)
    assert resumed.episodes == collect(Chain(), ScriptedEngine(by_seed), planned, deterministic=True).episodes


def test_roles_are_keys_and_never_parsed_out_of_their_names() -> None:
    names = ("solver_a", "solver_b", "gen1", "gen2")

    async def run(task: Task, team: Team) -> Outcome:
        for name in names:
            await asyncio.gather(*[agent.reply(say(name)) for agent in team.copies(name, 2)])
        return Outcome(answer="1")

    engine = ScriptedEngine(by_seed, policies=dict.fromkeys(names, 0))
    episode = collect(workflow_of(run, *names), engine, plans(1, n=1)).episodes[0]
    assert episode.outcome_class is OutcomeClass.OK, episode.failure
    assert [(turn.role, turn.policy) for turn in episode.turns] == [(name, name) for name in names for _ in range(2)]


def test_members_of_a_group_share_their_task() -> None:
    other = replace(task(0), question="another question")
    with pytest.raises(TaskError, match="two different tasks have the id 'task0'"):
        collect(Chain(), refusing(), [EpisodePlan(task=task(0), index=0), EpisodePlan(task=other, index=1)])
    with pytest.raises(UsageError, match="episode 0 of task 'task0' is planned 2 times"):
        collect(Chain(), refusing(), [EpisodePlan(task=task(0), index=0)] * 2)


def test_two_tasks_with_one_text_stay_two() -> None:
    twins = [Task(id=name, question="the same", answer="1") for name in ("a", "b")]
    collected = collect(Chain(), ScriptedEngine(by_seed), IndependentEpisodes(n=2).plans(twins))
    peers = {episode.task.id: episode.turns[0].peers for episode in collected.episodes}
    assert peers["a"] != peers["b"]
    assert len({episode.turns[0].peers for episode in collected.episodes}) == 2


def test_a_role_without_a_policy_and_a_policy_without_a_role_are_named() -> None:
    roles = roles_for(Chain())
    with pytest.raises(ConfigError, match="role table has 'frist', which the workflow has not; did you mean 'first'"):
        Collector(Chain(), {**roles, "frist": roles["first"]}, refusing())
    del roles["third"]
    with pytest.raises(ConfigError, match="role 'third' of Chain has no policy"):
        Collector(Chain(), roles, refusing())


def test_a_step_without_plans_is_empty() -> None:
    assert collect(Chain(), refusing(), ()).counts.started == 0


def test_all_episodes_of_a_task_hold_the_same_task_object() -> None:
    planned = plans(2, n=3)
    assert len({id(plan.task) for plan in planned}) == 2
    assert [(plan.order, plan.index) for plan in planned] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]


@pytest.mark.slow
def test_thousands_of_episodes_at_once_cost_little_each() -> None:
    import time

    workflow = Chain()
    started = time.thread_time()
    collected = collect(workflow, ScriptedEngine(by_seed), plans(125, n=8), max_concurrent=1000)
    each = (time.thread_time() - started) / collected.counts.turns
    assert collected.counts.outcomes["ok"] == 1000
    assert each < 1e-3, f"{each * 1e6:.0f} microseconds of processor time a turn"


def test_a_reply_function_may_use_chance_without_touching_the_others() -> None:
    def moody(request: Request) -> Answer:
        unlucky = random.Random(request.seed).random() < 0.2
        return EngineError("refused") if unlucky else by_seed(request)

    collected = collect(Chain(), ScriptedEngine(moody), plans(20))
    assert 0 < collected.counts.outcomes["error"] < 40
    assert sum(collected.counts.outcomes.values()) == 40
