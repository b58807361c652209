"""Small workloads and costs for the tests of the simulator."""

from __future__ import annotations

from typing import Any

from rolecall.pipeline.schedule import Schedule
from rolecall.rollout.agentic import AgenticGroups
from rolecall.simulation.costs import Costs, make_costs
from rolecall.simulation.lengths import Distribution, Fixed, LogNormal
from rolecall.simulation.simulate import Recorder, Simulation
from rolecall.simulation.workload import Call, Workload

LIMIT = 4096
SCHEDULES = {
    "barrier": Schedule(mode="barrier"),
    "pipeline": Schedule(mode="pipeline"),
    "pipeline_segments": Schedule(mode="pipeline_segments", segment_tokens=64),
    "overlapped": Schedule(mode="overlapped", max_staleness=2, update_rows=96),
}


def call(role: str, number: int, lengths: Distribution, **changes: Any) -> Call:
    settings: dict[str, Any] = {
        "role": role,
        "call": number,
        "policy": "shared",
        "judges": role == "verifier",
        "prompt_tokens": 0,
        "max_tokens": LIMIT,
        "lengths": lengths,
        "chance_after_wrong": 0.5,
        "chance_after_right": 0.9 if role != "verifier" else 0.2,
    }
    return Call(**{**settings, **changes})


def workload(*calls: Call, seed: int = 1, roles: tuple[str, ...] | None = None, **sampler: Any) -> Workload:
    policies = frozenset(one.policy for one in calls)
    groups = AgenticGroups(**{"n": 8, "k": 2, "stages": len(calls), **sampler})
    trained = frozenset(one.role for one in calls) if roles is None else frozenset(roles)
    return Workload(calls=calls, sampler=groups, seed=seed, trained=policies, train_roles=trained)


def team(seed: int = 1, *, stages: int = 5, sigma: float = 0.8, **sampler: Any) -> Workload:
    """Solver, Verifier, Corrector, Verifier, Corrector with a long tail."""
    solver, other = LogNormal(120, sigma), LogNormal(40, sigma)
    calls = (
        call("solver", 0, solver, prompt_tokens=20),
        call("verifier", 0, other, prompt_tokens=60),
        call("corrector", 0, other, prompt_tokens=80),
        call("verifier", 1, other, prompt_tokens=60),
        call("corrector", 1, other, prompt_tokens=80),
    )
    return workload(*calls[:stages], seed=seed, **sampler)


def always(*lengths: int, roles: tuple[str, ...] = ("solver", "verifier", "corrector", "verifier", "corrector")) -> Any:
    """Calls of fixed lengths whose paths always go on: every report flags an error, and no answer is right."""
    calls = []
    for stage, (role, tokens) in enumerate(zip(roles, lengths, strict=False)):
        chance = float(role == "verifier")
        number = roles[:stage].count(role)
        calls.append(call(role, number, Fixed(tokens), chance_after_wrong=chance, chance_after_right=chance))
    return calls


def costs(**changes: dict[str, Any]) -> Costs:
    """Costs of parts; the roles are those of the workload, not these."""
    tables: dict[str, Any] = {
        "engines": {"count": 2, "slots": 16, "token_s": 0.01, "token_row_s": 0.001, "prompt_token_s": 1e-4},
        "learners": {"token_s": 1e-4, "update_s": 0.5, "publish_s": 0.1},
        "roles": {"solver": {"right": 0.5, "lengths": {"kind": "fixed", "tokens": 1}}},
    }
    for name, table in changes.items():
        tables[name] = {**tables.get(name, {}), **table}
    return make_costs(tables)


def simulate(
    work: Workload,
    priced: Costs,
    schedule: Schedule,
    *,
    num_tasks: int,
    tasks_per_step: int = 1,
    recorder: Recorder | None = None,
) -> Simulation:
    simulation = Simulation(
        work, priced, schedule, tasks_per_step=tasks_per_step, num_tasks=num_tasks, recorder=recorder
    )
    simulation.run()
    return simulation
