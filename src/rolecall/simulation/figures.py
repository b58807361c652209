"""What a simulated run says: makespan, rates, idle shares, staleness, and how it stands to the lower bound."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rolecall.simulation.bounds import Bounds
from rolecall.simulation.simulate import Moment, Simulation


@dataclass(frozen=True, slots=True)
class Steady:
    """The middle of a run, from the end of one update to the end of a later one: after the pipeline has filled and
    before the last task was admitted. `over_bound`: how long it took over how long its work takes the busier of
    engines and learners, at their best rate (1: nothing lost; None: its tokens cost neither anything). `step_s`:
    seconds an update. `completions`: trained in an update, by role and call."""

    begin_s: float
    end_s: float
    updates: int
    tokens_per_s: float
    step_s: float
    engines_share: float
    learners_share: float
    completions: dict[str, float]

    @property
    def over_bound(self) -> float | None:
        share = max(self.engines_share, self.learners_share)
        return 1.0 / share if share else None


def steady(moments: Sequence[Moment], num_tasks: int, *, skip: float = 0.3) -> Steady | None:
    """The steady middle of a run; None when it is too short to have one of two updates or more.

    It begins when a chain has ended and a share `skip` of the tasks is admitted, and ends with the last update before
    all of them are.
    """
    inside = [
        moment
        for moment in moments
        if moment.chains_ended and moment.admitted >= skip * num_tasks and moment.admitted < num_tasks
    ]
    if len(inside) < 3:
        return None
    first, last = inside[0], inside[-1]
    passed = last.end_s - first.end_s
    if not passed:
        return None
    trained: Counter[tuple[str, int]] = Counter()
    for moment in inside[1:]:
        trained.update(moment.trained)
    updates = len(inside) - 1
    return Steady(
        begin_s=first.end_s,
        end_s=last.end_s,
        updates=updates,
        tokens_per_s=(last.decoded - first.decoded) / passed,
        step_s=passed / updates,
        engines_share=(last.engines_s - first.engines_s) / passed,
        learners_share=(last.learners_s - first.learners_s) / passed,
        completions={f"{role}/{call}": count / updates for (role, call), count in sorted(trained.items())},
    )


def figures(simulation: Simulation, bounds: Bounds | None) -> dict[str, Any]:
    """The figures of one schedule, as they stand in the JSON; times in seconds. Keys: docs/simulator.md."""
    makespan = simulation.now
    per_second = 1.0 / makespan if makespan else 0.0
    engines, costs = simulation.fleet.engines, simulation.costs
    engine_s = makespan * len(engines)
    times = [engine.times for engine in engines]
    updates = [moment for moment in simulation.moments if moment.num_rows]
    tokens = sum(simulation.tokens.values())
    middle = steady(simulation.moments, simulation.num_tasks)
    found: dict[str, Any] = {
        "makespan_s": makespan,
        "lower_bound_s": bounds.lower_bound_s if bounds is not None else None,
        "lower_bound": {**asdict(bounds), "part": bounds.part} if bounds is not None else None,
        "over_bound": makespan / bounds.lower_bound_s if bounds is not None and bounds.lower_bound_s else None,
        "first_update_s": updates[0].end_s if updates else None,
        "idle_share": {
            "engines": 1.0 - _share(sum(one.held_s for one in times), engine_s),
            "learners": 1.0 - _share(simulation.learn_s + simulation.publish_s, makespan),
            "graders": 1.0 - _share(simulation.grading.busy_s, makespan * costs.graders.count),
        },
        "empty_slots_share": 1.0 - _share(sum(one.rows_s for one in times), engine_s * costs.engines.slots),
        "stalled_share": _share(sum(one.stalled_s for one in times), engine_s),
        "staleness_max": simulation.ages.highest,
        "staleness_mean": simulation.ages.total / max(1, simulation.ages.rows),
        "tokens": tokens,
        "tokens_per_s": tokens * per_second,
        "completions": sum(simulation.completions.values()),
        "completions_dropped": simulation.dropped_rows,
        "updates": len(updates),
        "updates_per_s": len(updates) * per_second,
        "completions_per_tick": sum(moment.num_rows for moment in updates) / max(1, len(updates)),
        "steady": None,
    }
    if middle is not None:
        found["steady"] = {**asdict(middle), "over_bound": middle.over_bound}
    return found


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
