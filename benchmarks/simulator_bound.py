"""How near the four schedules come to the lower bound in steady state, at 8, 64 and 1,024 engines: simulated.

The paper's shape (recipes/marsrl_qwen3_30b_a3b.toml, recipes/costs/paper.toml). What is chosen here, and how: an
update holds the completions that all engines end while the longest possible one runs, so that under a staleness of 2
the learner seldom waits for one; that is slots times engines times the limit over the mean length, and a step's tasks
are as many as give it. The bound is the larger of the work of engines and of learners over their capacity at their best
rate, over the steady middle of a run (`rolecall.simulation.figures.Steady`). Nothing here depends on the machine. It
takes a quarter of an hour, nearly all of it for 1,024 engines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from figures import Figure, figure

from rolecall.assemble import Plan, make_plan
from rolecall.config import load_config
from rolecall.pipeline.schedule import MODES, Schedule
from rolecall.simulation.bounds import all_work
from rolecall.simulation.compare import schedule_of
from rolecall.simulation.costs import Costs, LearnerCosts, load_costs, make_costs
from rolecall.simulation.figures import Steady, steady
from rolecall.simulation.simulate import Moment, Simulation
from rolecall.simulation.workload import Workload, make_workload

RECIPES = Path(__file__).resolve().parents[1] / "recipes"
ENGINES = (8, 64, 1024)
RATIOS = (1, 3, 7)
UPDATES = {"barrier": 4, "pipeline": 8, "pipeline_segments": 13, "overlapped": 7}
SAMPLE = 200  # tasks from which the mean length and the calls of a task are read
SHARES = (0.25, 0.5, 0.75)
PEERS: dict[str, str] = {}
FIGURES = (
    {
        f"{engines}_engines/{ratio}_to_1/{name}": f"{name}: times the lower bound in steady state"
        + (" (aim: at most 1.05)" if name == "overlapped" else "")
        for engines in ENGINES
        for ratio in RATIOS
        for name in MODES
    }
    | {
        f"{engines}_engines/{ratio}_to_1/staleness": "overlapped: the highest staleness that was trained (at most 2)"
        for engines in ENGINES
        for ratio in RATIOS
    }
    | {
        f"8_engines/{ratio}_to_1/overlapped/{share:g}": f"overlapped, with updates of {share:g} times the size"
        for ratio in RATIOS
        for share in SHARES
    }
)


def sized(engines: int, ratio: int) -> Costs:
    """The paper's costs with so many engines, and a learner to every `ratio` of them."""
    data = load_costs(RECIPES / "costs" / "paper.toml").model_dump(exclude_none=True)
    data["engines"]["count"], data["learners"]["count"] = engines, max(1, round(engines / ratio))
    data["graders"]["count"] = engines
    return make_costs(data)


def tasks_per_step(plan: Plan, workload: Workload, costs: Costs) -> int:
    """Tasks whose completions all engines end while the longest possible completion runs."""
    work = all_work(workload, costs, SAMPLE)
    calls, tokens = sum(work.completions.values()), sum(work.tokens.values())
    limit = max(call.max_tokens for call in workload.calls)
    rows = costs.engines.count * costs.engines.slots
    return max(1, round(rows * limit / (tokens / calls) / (calls / SAMPLE)))


def measure(name: str, engines: int, ratio: int) -> tuple[Steady, int]:
    """The steady middle of one schedule, and the highest staleness."""
    simulation = simulate(name, engines, ratio)
    return middle(simulation.moments, simulation.num_tasks), simulation.ages.highest


def middle(moments: Sequence[Moment], num_tasks: int) -> Steady:
    found = steady(moments, num_tasks, skip=0.2)
    assert found is not None
    return found


def simulate(name: str, engines: int, ratio: int, *, share: float = 1.0) -> Simulation:
    """As many updates as the steady middle needs, each `share` times as large as is said above."""
    plan = make_plan(load_config(RECIPES / "marsrl_qwen3_30b_a3b.toml"))
    costs = sized(engines, ratio)
    workload = make_workload(plan, costs)
    tasks = round(share * tasks_per_step(plan, workload, costs))
    per_task = sum(all_work(workload, costs, SAMPLE).completions.values()) / SAMPLE
    schedule: Schedule = schedule_of(name, plan, costs, workload, round(tasks * per_task))
    wanted = round(UPDATES[name] / share)
    # the middle begins when the tasks of two updates in five are admitted; more are there, so that none is the last
    simulation = Simulation(workload, costs, schedule, tasks_per_step=tasks, num_tasks=tasks * 2 * wanted)
    simulation.run(max_updates=wanted)
    return simulation


def with_learners(moments: Sequence[Moment], costs: LearnerCosts) -> list[Moment]:
    """The moments of a run in ticks with another number of learners: engines wait for them, so that what is generated
    stays as it was, and an update of many rows takes as long as its tokens over the learners."""
    found: list[Moment] = []
    before_s, now_s, learners_s = 0.0, 0.0, 0.0
    for moment in moments:
        begin_s = now_s + moment.begin_s - before_s
        best_s = costs.token_s * moment.tokens / costs.count
        learned_s = begin_s + best_s + (costs.update_s if moment.tokens else 0.0)
        now_s = learned_s + (costs.publish_s if moment.tokens else 0.0)
        before_s, learners_s = moment.end_s, learners_s + best_s
        changes = {"begin_s": begin_s, "learned_s": learned_s, "end_s": now_s, "learners_s": learners_s}
        found.append(replace(moment, **changes))
    return found


def run(repeats: int) -> dict[str, Figure]:
    """The same at every repeat: made once."""
    found = {}
    for engines in ENGINES:
        for name in MODES:
            simulation = None
            for ratio in RATIOS:
                if simulation is None or name == "overlapped":
                    simulation = simulate(name, engines, ratio)
                moments: Sequence[Moment] = simulation.moments
                if name != "overlapped":
                    moments = with_learners(moments, sized(engines, ratio).learners)
                over_bound = middle(moments, simulation.num_tasks).over_bound
                found[f"{engines}_engines/{ratio}_to_1/{name}"] = figure([over_bound], "times")
                if name == "overlapped":
                    staleness = float(simulation.ages.highest)
                    found[f"{engines}_engines/{ratio}_to_1/staleness"] = figure([staleness], "versions")
    for ratio in RATIOS:
        for share in SHARES:
            smaller = simulate("overlapped", 8, ratio, share=share)
            over_bound = middle(smaller.moments, smaller.num_tasks).over_bound
            found[f"8_engines/{ratio}_to_1/overlapped/{share:g}"] = figure([over_bound], "times")
    return {name: found[name] for name in FIGURES}
