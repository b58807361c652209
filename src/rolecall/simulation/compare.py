"""The same tasks under the four schedules: what `rolecall simulate` runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rolecall.assemble import Plan
from rolecall.pipeline.schedule import MODES, Schedule
from rolecall.simulation.bounds import Work, all_work
from rolecall.simulation.costs import Costs, ScheduleCosts
from rolecall.simulation.figures import figures
from rolecall.simulation.simulate import Recorder, Simulation
from rolecall.simulation.workload import Workload, make_workload

SEGMENTS = 4
"""Into how many a completion at the limit is cut, where nothing else is said (MarsRL, 5.2: 64k in 4 times 16k)."""
MAX_STALENESS = 2
MakeRecorder = Callable[[str, Sequence[str], Costs, float], Recorder]


@dataclass(frozen=True, slots=True)
class Compared:
    """`figures` by schedule, `schedules` as they were run, and the work that all of them did."""

    figures: dict[str, dict[str, Any]]
    schedules: dict[str, Schedule]
    workload: Workload
    work: Work


def compare(
    plan: Plan, costs: Costs, names: Sequence[str] = tuple(MODES), make_recorder: MakeRecorder | None = None
) -> Compared:
    """Simulate a recipe under each of the schedules; `ConfigError` where recipe and costs do not fit."""
    workload = make_workload(plan, costs)
    tasks_per_step = plan.config.rollout.tasks_per_step
    num_tasks = costs.steps * tasks_per_step
    work = all_work(workload, costs, num_tasks)
    bounds = work.bounds(costs)
    update_rows = round(sum(work.completions.values()) / costs.steps)
    schedules = {name: schedule_of(name, plan, costs, workload, update_rows) for name in names}
    found = {}
    for name, schedule in schedules.items():
        recorder = None
        if make_recorder is not None:
            recorder = make_recorder(name, workload.roles, costs, bounds.lower_bound_s)
        simulation = Simulation(
            workload, costs, schedule, tasks_per_step=tasks_per_step, num_tasks=num_tasks, recorder=recorder
        )
        simulation.run()
        found[name] = figures(simulation, bounds)
    return Compared(found, schedules, workload, work)


def schedule_of(name: str, plan: Plan, costs: Costs, workload: Workload, update_rows: int) -> Schedule:
    """One of the four schedules, as costs and recipe say; `update_rows` are those of a step where neither does."""
    own, recipe = costs.schedules.get(name, ScheduleCosts()), plan.config.schedule
    same = recipe if recipe.mode == name else None
    longest = max(call.max_tokens for call in workload.calls)
    said = own.model_dump(exclude_none=True)
    settings: dict[str, Any] = {"order": recipe.order}
    if name == "pipeline_segments":
        settings["segment_tokens"] = recipe.segment_tokens or -(-longest // SEGMENTS)
    if name == "overlapped":
        settings["max_staleness"] = recipe.max_staleness if recipe.max_staleness is not None else MAX_STALENESS
        settings["update_rows"] = recipe.update_rows or max(workload.sampler.n, update_rows)
    else:
        settings["release"] = recipe.release
    if same is not None:
        settings |= {
            key: value
            for key in ("segment_tokens", "max_rows", "max_staleness", "max_staleness_by_policy", "on_stale")
            if (value := getattr(same, key)) != getattr(Schedule(), key)
        }
    return Schedule(mode=name, **{**settings, **said})
