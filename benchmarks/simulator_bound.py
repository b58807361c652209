"""How near the four schedules come to the lower bound in steady state, at 8, 64 and 1,024 engines: simulated.

The paper's shape (recipes/marsrl_qwen3_30b_a3b.toml, recipes/costs/paper.toml). What is chosen here, and how: an
update holds the completions that all engines end while the longest possible one runs, so that under a staleness of 2
the learner seldom waits for one; that is slots times engines times the limit over the mean length, and a step's tasks
are as many as give it. The bound is the larger of the work of engines and of learners over their capacity at their best
rate, over the steady middle of a run (`rolecall.simulation.figures.Steady`). Nothing here depends on the machine.
"""

from __future__ import annotations

from pathlib import Path

from figures import Figure, figure

from rolecall.assemble import Plan, make_plan
from rolecall.config import load_config
from rolecall.pipeline.schedule import MODES, Schedule
from rolecall.simulation.bounds import all_work
from rolecall.simulation.compare import schedule_of
from rolecall.simulation.costs import Costs, load_costs, make_costs
from rolecall.simulation.figures import Steady, steady
from rolecall.simulation.simulate import Simulation
from rolecall.simulation.workload import Workload, make_workload

RECIPES = Path(__file__).resolve().parents[1] / "recipes"
ENGINES = (8, 64, 1024)
RATIOS = (1, 3, 7)
UPDATES = {"barrier": 4, "pipeline": 8, "pipeline_segments": 13, "overlapped": 7}
SAMPLE = 200  # tasks from which the mean length and the calls of a task are read
PEERS: dict[str, str] = {}
FIGURES = {
    f"{engines}_engines/{ratio}_to_1/{name}": f"{name}: times the lower bound in steady state"
    + (" (aim: at most 1.05)" if name == "overlapped" else "")
    for engines in ENGINES
    for ratio in RATIOS
    for name in MODES
} | {
    f"{engines}_engines/{ratio}_to_1/staleness": "overlapped: the highest staleness that was trained (at most 2)"
    for engines in ENGINES
    for ratio in RATIOS
}


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


def measure(name: str, engines: int, ratio: int, updates: int | None = None) -> tuple[Steady, int]:
    """The steady middle of one schedule, and the highest staleness."""
    plan = make_plan(load_config(RECIPES / "marsrl_qwen3_30b_a3b.toml"))
    costs = sized(engines, ratio)
    workload = make_workload(plan, costs)
    tasks = tasks_per_step(plan, workload, costs)
    per_task = sum(all_work(workload, costs, SAMPLE).completions.values()) / SAMPLE
    schedule: Schedule = schedule_of(name, plan, costs, workload, round(tasks * per_task))
    wanted = updates or UPDATES[name]
    # the middle begins when the tasks of two updates in five are admitted; more are there, so that none is the last
    simulation = Simulation(workload, costs, schedule, tasks_per_step=tasks, num_tasks=tasks * 2 * wanted)
    simulation.run(max_updates=wanted)
    middle = steady(simulation.moments, simulation.num_tasks, skip=0.2)
    assert middle is not None
    return middle, simulation.ages.highest


def run(repeats: int) -> dict[str, Figure]:
    """The same at every repeat: made once."""
    found = {}
    for engines in ENGINES:
        for ratio in RATIOS:
            place = f"{engines}_engines/{ratio}_to_1"
            for name in MODES:
                middle, staleness = measure(name, engines, ratio)
                found[f"{place}/{name}"] = figure([middle.over_bound], "times")
                if name == "overlapped":
                    found[f"{place}/staleness"] = figure([float(staleness)], "versions")
    return found
