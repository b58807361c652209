"""What scheduling costs an event at 1,024 engines: processor time inside the scheduler, by the thread's own clock.

The paper's shape under the overlapped pipeline: three learners' worth of engines, 16 rows each, about 150,000
completions an update. An event is the end of a completion, of grading a group, or of an update. What reading the clock
costs is measured beside it and taken off. That the cost does not grow with what is in flight is seen from the same at
64 engines, as far as the processor's caches allow.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import simulator_bound
from figures import Figure, figure

from rolecall.assemble import make_plan
from rolecall.config import load_config
from rolecall.pipeline.scheduler import Scheduler
from rolecall.simulation.compare import schedule_of
from rolecall.simulation.simulate import Simulation
from rolecall.simulation.workload import make_workload

CALLS = ("wants_tasks", "submit", "start", "returned", "scored", "update", "updated")
ENGINES = (64, 1024)
UPDATES = 1
PEERS: dict[str, str] = {}
FIGURES = {
    "1024_engines": "microseconds of the scheduler an event (aim: at most 20)",
    "64_engines": "the same at 64 engines",
    "1024_engines/simulation": "the same of the whole simulator, scheduler and assertions included",
    "events": "events of a run at 1,024 engines",
    "in_flight": "completions that are started and not trained at the end of that run",
}


class TimedScheduler(Scheduler):
    """Adds up the processor time of its own calls."""

    spent_s = 0.0
    num_calls = 0


def timed(name: str) -> Callable[..., Any]:
    original = getattr(Scheduler, name)

    def call(self: TimedScheduler, *arguments: Any, **named: Any) -> Any:
        begun = time.thread_time()
        found = original(self, *arguments, **named)
        self.spent_s += time.thread_time() - begun
        self.num_calls += 1
        return found

    return call


for _name in CALLS:
    setattr(TimedScheduler, _name, timed(_name))


def clock_s(times: int = 100_000) -> float:
    """What the clock itself adds to a call that is timed."""
    spent_s = 0.0
    for _ in range(times):
        begun = time.thread_time()
        spent_s += time.thread_time() - begun
    return spent_s / times


def measure(engines: int) -> dict[str, float]:
    plan = make_plan(load_config(simulator_bound.RECIPES / "marsrl_qwen3_30b_a3b.toml"))
    costs = simulator_bound.sized(engines, 3)
    workload = make_workload(plan, costs)
    tasks = simulator_bound.tasks_per_step(plan, workload, costs)
    schedule = schedule_of("overlapped", plan, costs, workload, tasks * 68)
    made: list[TimedScheduler] = []

    def make(*arguments: Any, **named: Any) -> TimedScheduler:
        made.append(TimedScheduler(*arguments, **named))
        return made[-1]

    simulation = Simulation(workload, costs, schedule, tasks_per_step=tasks, num_tasks=tasks * 100, make_scheduler=make)
    begun = time.thread_time()
    simulation.run(max_updates=UPDATES)
    whole_s = time.thread_time() - begun
    counts, events = made[0].counts, simulation.events_seen
    spent_s = made[0].spent_s - made[0].num_calls * clock_s()
    return {
        "scheduler": spent_s / events * 1e6,
        "simulation": whole_s / events * 1e6,
        "events": float(events),
        "in_flight": float(counts.started - simulation.trained_rows),
    }


def run(repeats: int) -> dict[str, Figure]:
    found = {engines: [measure(engines) for _ in range(repeats)] for engines in ENGINES}
    small, large = ENGINES
    return {
        "1024_engines": figure([one["scheduler"] for one in found[large]], "us"),
        "64_engines": figure([one["scheduler"] for one in found[small]], "us"),
        "1024_engines/simulation": figure([one["simulation"] for one in found[large]], "us"),
        "events": figure([one["events"] for one in found[large]], "events"),
        "in_flight": figure([one["in_flight"] for one in found[large]], "completions"),
    }
