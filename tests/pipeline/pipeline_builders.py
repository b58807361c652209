"""A source of agentic groups over scripted replies, and ways to drive it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from rolecall.engines.base import Engine, Request
from rolecall.engines.scripted import Answer, ScriptedEngine
from rolecall.grading.pool import GraderPool
from rolecall.pipeline.candidates import Play
from rolecall.pipeline.schedule import Schedule
from rolecall.pipeline.source import PipelineSource, SourceSettings
from rolecall.records import Grade, GradedEpisode, GradeStatus, Sampling, Task, Turn
from rolecall.rollout.agentic import AgenticGroups
from rolecall.rollout.render import PlainRenderer, Renderer
from rolecall.rollout.steps import StepEpisodes
from rolecall.rollout.transcript import Limits, RoleSettings
from rolecall.tasks.base import TaskSet
from rolecall.tasks.stream import TaskStream
from rolecall.workflows.base import Workflow
from rolecall.workflows.solve_verify_correct import SolveVerifyCorrect

SVC = SolveVerifyCorrect(prompts="tiny", answer_format="text")
UNGRADABLE = "no grader can read this"


def task(number: int) -> Task:
    return Task(id=f"t{number}", question=f"What is {number}?", answer=str(number))


def tasks(num: int) -> TaskSet:
    return TaskSet.of("train", [task(number) for number in range(num)])


class Graders(GraderPool):
    """Numbers are graded in this process; one answer fails its grader. No worker is started."""

    async def grade_many(self, answers: Sequence[tuple[str | None, Task]]) -> list[Grade]:
        await asyncio.sleep(0)
        gradable = [pair for pair in answers if pair[0] != UNGRADABLE]
        grades = iter(await super().grade_many(gradable))
        failed = Grade(status=GradeStatus.FAILED, score=None, detail="cannot read it")
        return [failed if answer == UNGRADABLE else next(grades) for answer, _ in answers]


def by_candidate(request: Request, flags: int | None = None) -> str:
    """Answers of odd candidates are right; the first `flags` reports of a group (None: half of them) flag an error."""
    if request.key.role == "verifier":
        return "Verdict: wrong" if request.candidate < (4 if flags is None else flags) else "Verdict: correct"
    return str(request.task.answer) if request.candidate % 2 else "-1"


def engine_of(fn: Callable[[Request], Answer] = by_candidate, **options: Any) -> ScriptedEngine:
    return ScriptedEngine(fn, **options)


def roles_of(
    workflow: Workflow,
    policies: Mapping[str, str] | None = None,
    sampling: Sampling | None = None,
    renderer: Renderer | None = None,
    **settings: Any,
) -> dict[str, RoleSettings]:
    """All roles under the policy `shared`, unless `policies` says otherwise."""
    return {
        role: RoleSettings(
            policy=(policies or {}).get(role, "shared"),
            sampling=sampling or Sampling(max_tokens=64),
            renderer=renderer or PlainRenderer(),
            **settings,
        )
        for role in workflow.roles
    }


def source_of(
    engine: Engine | None = None,
    *,
    workflow: Workflow = SVC,
    sampler: AgenticGroups | None = None,
    schedule: Schedule | None = None,
    num_tasks: int = 100,
    policies: Mapping[str, str] | None = None,
    sampling: Sampling | None = None,
    renderer: Renderer | None = None,
    roles: Mapping[str, Any] | None = None,
    whole: Sequence[str] = (),
    seed: int = 0,
    **settings: Any,
) -> PipelineSource:
    play = Play(
        workflow=workflow,
        roles=roles_of(workflow, policies, sampling, renderer, **(roles or {})),
        limits=Limits(deadline_s=30.0),
        whole=frozenset(whole),
    )
    schedule = schedule or Schedule(mode="pipeline")
    made = {"run_seed": seed, "deterministic": schedule.ticks, "tasks_per_step": 3, "watchdog_s": None, **settings}
    names = {one.policy for one in play.roles.values()}
    return PipelineSource(
        play,
        engine or engine_of(),
        Graders(),
        TaskStream(tasks(num_tasks), seed=seed),
        sampler or AgenticGroups(),
        schedule,
        SourceSettings(**made),
        dict.fromkeys(names, 0),
    )


@contextmanager
def source(*args: Any, **options: Any) -> Iterator[PipelineSource]:
    made = source_of(*args, **options)
    try:
        yield made
    finally:
        made.close()


def learn(made: PipelineSource, policies: Sequence[str] | None = None) -> None:
    """An update is published: the versions of these policies (None: of all) move by one."""
    versions = dict(made.scheduler.versions)
    for policy in versions if policies is None else policies:
        versions[policy] += 1
        asyncio.run(made.engine.load(policy, versions[policy], {}))
    made.updated(versions)


def steps(made: PipelineSource, num: int, *, first: int = 1, learns: bool = True) -> list[StepEpisodes]:
    """Some steps of a run, with a learner that moves all versions, or none."""
    found = []
    for step in range(first, first + num):
        found.append(made.collect(step))
        learn(made, None if learns else ())
    return found


def saved(made: PipelineSource) -> dict[str, Any]:
    """What a checkpoint would hold of it, written and read."""
    state: dict[str, Any] = json.loads(json.dumps(made.state()))
    return state


def again(state: Mapping[str, Any], versions: Mapping[str, int], engine: Engine | None = None, **options: Any) -> Any:
    """A fresh source that goes on from a checkpoint."""
    made = source_of(engine, **options)
    for policy, version in versions.items():
        asyncio.run(made.engine.load(policy, version, {}))
    try:
        made.restore(state, versions)
    except BaseException:
        made.close()
        raise
    return made


def turn_of(graded: GradedEpisode) -> Turn:
    (turn,) = graded.episode.turns
    return turn


def turns(found: StepEpisodes | Sequence[StepEpisodes]) -> list[Turn]:
    every = [found] if isinstance(found, StepEpisodes) else found
    return [turn_of(one) for each in every for one in each.graded]


def by_call(found: StepEpisodes) -> Counter[tuple[str, int, int]]:
    """How many candidates there are of each call, by role, call, and the step in which their task was admitted."""
    return Counter((t.role, t.key.call, one.episode.step) for one in found.graded for t in one.episode.turns)


def with_version(turn: Turn, version: int) -> Turn:
    """A turn as if every token of it were of one version, for comparisons across schedules."""
    done = turn.completion
    return replace(turn, completion=replace(done, versions=(version,) * len(done.versions)))
