"""What an episode costs beside its model: 10,000 concurrent scripted episodes of solve, verify, correct.

An engine that answers from a function takes the model's part, so that all that is left is rolecall's own: coroutines,
rendering, calls, waves, records. Time is measured as a run has it (deterministic waves, and calls as they come);
memory apart from it, as what Python has allocated: at the peak, and in the finished episodes.
"""

from __future__ import annotations

import gc
import time
import tracemalloc

from figures import Figure, figure

from rolecall.engines.base import Request
from rolecall.engines.scripted import ScriptedEngine
from rolecall.records import Sampling, Task
from rolecall.rollout.collector import Collected, Collector, CollectorSettings
from rolecall.rollout.render import PlainRenderer
from rolecall.rollout.samplers import EpisodePlan
from rolecall.rollout.transcript import RoleSettings
from rolecall.workflows import SolveVerifyCorrect

EPISODES = 10_000
PEERS: dict[str, str] = {}
FIGURES = {
    "time_per_turn": "microseconds a turn, in deterministic waves (aim: under 100)",
    "time_per_turn/continuous": "microseconds a turn, calls handed over as they come",
    "bytes_per_turn": "bytes a turn that are allocated when most are (aim: under 10,000)",
    "bytes_per_turn/kept": "bytes a turn of the finished episodes and their transcripts",
    "turns": "turns of the 10,000 episodes",
}


def reply(request: Request) -> str:
    """The first solution and its correction are wrong in half of the episodes, so all five calls occur."""
    if request.key.role == "verifier":
        return "the last term was left out. Verdict: " + ("correct" if request.seed % 2 else "wrong")
    return f"the answer is {request.seed % 1000}"


def collect(plans: list[EpisodePlan], *, deterministic: bool) -> Collected:
    workflow = SolveVerifyCorrect(max_rounds=2, answer_format="text")
    roles = {
        role: RoleSettings(policy="shared", sampling=Sampling(max_tokens=128), renderer=PlainRenderer())
        for role in workflow.roles
    }
    settings = CollectorSettings(deterministic=deterministic, max_concurrent=len(plans))
    collector = Collector(workflow, roles, ScriptedEngine(reply), settings)
    try:
        return collector.collect(plans)
    finally:
        collector.close()


def make_plans() -> list[EpisodePlan]:
    tasks = [
        Task(id=f"task{i}", question=f"What is {i} + {i + 1}?", answer=str(2 * i + 1)) for i in range(EPISODES // 8)
    ]
    return [EpisodePlan(task=task, index=i, order=order) for order, task in enumerate(tasks) for i in range(8)]


def microseconds_per_turn(plans: list[EpisodePlan], *, deterministic: bool) -> float:
    gc.collect()
    begun = time.perf_counter()
    collected = collect(plans, deterministic=deterministic)
    seconds = time.perf_counter() - begun
    return 1e6 * seconds / collected.counts.turns


def bytes_per_turn(plans: list[EpisodePlan]) -> tuple[float, float, int]:
    """At the peak, and in what is left when it is over; and the turns."""
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    collected = collect(plans, deterministic=True)
    gc.collect()
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    turns = collected.counts.turns
    return (peak - before) / turns, (kept - before) / turns, turns


def run(repeats: int) -> dict[str, Figure]:
    plans = make_plans()
    times: dict[bool, list[float]] = {True: [], False: []}
    for repeat in range(repeats + 1):
        for deterministic in (True, False) if repeat % 2 else (False, True):
            spent = microseconds_per_turn(plans, deterministic=deterministic)
            if repeat:
                times[deterministic].append(spent)
    memory = [bytes_per_turn(plans) for _ in range(2)]
    return {
        "time_per_turn": figure(times[True], "us/turn"),
        "time_per_turn/continuous": figure(times[False], "us/turn"),
        "bytes_per_turn": figure([peak for peak, _, _ in memory], "B/turn"),
        "bytes_per_turn/kept": figure([kept for _, kept, _ in memory], "B/turn"),
        "turns": figure([turns for _, _, turns in memory], "turns"),
    }
