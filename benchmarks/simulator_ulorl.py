"""UloRL's step times by the number of segments: fitted on one and two, predicted for four. Simulated.

UloRL (arXiv 2507.19766) measured Qwen3-30B-A3B under a limit of 64k tokens: 1,240 s a step in one segment, 774 s in
two, 601 s in four (2.06 times faster than one). It does not say how long completions were, how many GPUs there were or
what a token cost. So the answer is a range: over every shape of the grid below, two unknowns are solved from two
measurements, and the third is predicted.

A step costs s * g + c * d: s seconds for a token step of one row, g of them, which the simulated clock gives for a
shape; c seconds to learn from the 1,024 completions of 128 tasks, d how many end in a step, over 1,024. A shape is a
length distribution, how much more a token step costs with all rows than with one, what reading costs (a completion that
goes on reads what it has), how many rows there are slots for, and whether every step begins 128 new tasks or only as
many as leave 1,024 completions in the batch: the paper says neither. A shape for which c or s come out below 0 fits
nothing and is counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

from figures import Figure, figure

from rolecall.pipeline.schedule import Schedule
from rolecall.rollout.agentic import AgenticGroups
from rolecall.simulation.costs import make_costs
from rolecall.simulation.lengths import Distribution, LogNormal, ParetoTail, mean_tokens
from rolecall.simulation.simulate import Simulation
from rolecall.simulation.workload import Call, Workload

MEASURED_S = {1: 1240.0, 2: 774.0, 4: 601.0}
LIMIT, TASKS, PEERS_PER_TASK = 65536, 128, 8
ROWS = TASKS * PEERS_PER_TASK
ENGINES = 16
STEPS = 8
PEERS: dict[str, str] = {}
MEANS = (12000, 16000, 20000)
SPREADS: tuple[tuple[float, float | None], ...] = ((0.5, None), (0.8, None), (1.1, None), (0.8, 1.5))
BATCH_COSTS = (0.25, 1.0)
PROMPT_COSTS = (0.0, 0.002)
SLOTS = (2.0, 1.0, 0.75)
FIGURES = {
    "four_segments": "seconds a step in four segments, predicted: median, lowest, highest of all fits (measured: 601)",
    "times_faster": "times faster than one segment, predicted: median, lowest and highest (measured: 2.06)",
    "new_tasks/times_faster": "the same of the fits in which every step begins 128 tasks",
    "same_batch/times_faster": "the same of the fits in which a step holds 1,024 completions, old and new",
    "token_step": "seconds a token step of one row, of all fits",
    "learn": "seconds to learn from 1,024 completions, of all fits",
    "fits": "shapes that fit",
    "no_fit": "shapes that would need a negative cost",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """`mean` tokens under the limit; `sigma` of the logarithm, with a Pareto tail of `tail_index` over the longest
    tenth where one is given; `batch_cost`: how much dearer a token step is with the rows of 128 tasks, over one row;
    `prompt_cost`: token steps for a token that is read; `slots`: how many rows run at once, over those of 128 tasks
    (2: all of them, old ones too); `same_batch`: a step holds as many rows as 128 tasks have, old ones included."""

    mean: int
    sigma: float
    tail_index: float | None
    batch_cost: float
    prompt_cost: float
    slots: float
    same_batch: bool


@dataclass(frozen=True, slots=True)
class Fit:
    """`token_step_s` of one row, `learn_s` of 1,024 completions, and the step in four segments that follows."""

    shape: Shape
    token_step_s: float
    learn_s: float
    four_s: float

    @property
    def times_faster(self) -> float:
        return MEASURED_S[1] / self.four_s


def shapes() -> Iterator[Shape]:
    for mean in MEANS:
        for sigma, tail_index in SPREADS:
            for batch_cost in BATCH_COSTS:
                for prompt_cost in PROMPT_COSTS:
                    for slots in SLOTS:
                        for same_batch in (False, True):
                            yield Shape(
                                mean=mean,
                                sigma=sigma,
                                tail_index=tail_index,
                                batch_cost=batch_cost,
                                prompt_cost=prompt_cost,
                                slots=slots,
                                same_batch=same_batch,
                            )


def lengths(shape: Shape) -> Distribution:
    """The distribution of this spread whose mean under the limit is the shape's."""
    low, high = 10.0, float(LIMIT)

    def made(middle: float) -> Distribution:
        body = LogNormal(middle, shape.sigma)
        return body if shape.tail_index is None else ParetoTail(body, 0.1, shape.tail_index)

    for _ in range(30):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if mean_tokens(made(middle), LIMIT, 500) < shape.mean else (low, middle)
    return made(low)


def simulate(shape: Shape, segments: int, *, token_step_s: float = 1.0, learn_s: float = 0.0) -> tuple[float, float]:
    """Seconds a step in the steady middle, and completions a step, over those of 128 tasks. A step of 128 tasks takes
    `learn_s` to learn, and one of fewer completions so much less."""
    rows = ROWS // ENGINES
    solver: dict[str, Any] = {"role": "solver", "call": 0, "policy": "shared", "judges": False, "prompt_tokens": 0}
    chances = {"chance_after_wrong": 0.5, "chance_after_right": 1.0}
    call = Call(**solver, **chances, max_tokens=LIMIT, lengths=lengths(shape))
    workload = Workload(
        calls=(call,),
        sampler=AgenticGroups(n=PEERS_PER_TASK, k=1, stages=1),
        seed=0,
        trained=frozenset({"shared"}),
        train_roles=frozenset({"solver"}),
    )
    slots = max(1, int(rows * shape.slots))
    costs = make_costs(
        {
            "engines": {
                "count": ENGINES,
                "slots": slots,
                "token_s": token_step_s * (1.0 - shape.batch_cost / rows),
                "token_row_s": token_step_s * shape.batch_cost / rows,
                "prompt_token_s": token_step_s * shape.prompt_cost,
            },
            "learners": {"token_s": learn_s / (ROWS * shape.mean), "skip_flat": False},
            "roles": {"solver": {"right": 0.5, "lengths": {"kind": "fixed", "tokens": 1}}},
        }
    )
    schedule = Schedule(mode="pipeline")
    if segments > 1:
        most = ROWS if shape.same_batch else None
        schedule = Schedule(mode="pipeline_segments", segment_tokens=LIMIT // segments, max_rows=most)
    filled = 0 if segments == 1 else 2 * segments
    simulation = Simulation(workload, costs, schedule, tasks_per_step=TASKS, num_tasks=TASKS * 1000)
    simulation.run(max_updates=filled + STEPS)
    middle = simulation.moments[filled:]
    num_steps = len(middle) - 1
    done = sum(moment.num_rows for moment in middle[1:]) / num_steps
    return (middle[-1].end_s - middle[0].end_s) / num_steps, done / ROWS


def fit(shape: Shape) -> Fit:
    """Solve token_step_s * steps + learn_s * completions = measured for one and two segments."""
    found = {segments: simulate(shape, segments) for segments in MEASURED_S}
    (one, done_one), (two, done_two) = found[1], found[2]
    if not shape.same_batch:  # as many as are begun, but for the sample
        done_one = done_two = 1.0
        found[4] = (found[4][0], 1.0)
    area = one * done_two - two * done_one
    token_step_s = (MEASURED_S[1] * done_two - MEASURED_S[2] * done_one) / area
    learn_s = (one * MEASURED_S[2] - two * MEASURED_S[1]) / area
    return Fit(shape, token_step_s, learn_s, found[4][0] * token_step_s + found[4][1] * learn_s)


def spread(values: list[float], unit: str) -> Figure:
    return {"value": median(values), "low": min(values), "high": max(values), "unit": unit}


def run(repeats: int) -> dict[str, Figure]:
    """The same at every repeat: made once."""
    tried = [fit(shape) for shape in shapes()]
    fits = [one for one in tried if one.learn_s >= 0 and one.token_step_s > 0]
    found = {
        "four_segments": spread([one.four_s for one in fits], "s"),
        "times_faster": spread([one.times_faster for one in fits], "times"),
        "token_step": spread([one.token_step_s for one in fits], "s"),
        "learn": spread([one.learn_s for one in fits], "s"),
        "fits": figure([float(len(fits))], "shapes"),
        "no_fit": figure([float(len(tried) - len(fits))], "shapes"),
    }
    for name, same_batch in (("new_tasks", False), ("same_batch", True)):
        of_kind = [one.times_faster for one in fits if one.shape.same_batch is same_batch]
        found[f"{name}/times_faster"] = spread(of_kind, "times")
    return found
