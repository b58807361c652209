"""Two tasks, one engine, worked out by hand.

Groups of 2, one of which goes on: a solver of 4 tokens, a verifier of 2, a token a second however many rows there are,
2 slots. An update takes 3 s, publishing 1 s, loading 1 s; prompts and grading take none.
"""

from __future__ import annotations

from typing import Any

import pytest
from simulation_builders import always, costs, simulate, workload

from rolecall.pipeline.schedule import Schedule
from rolecall.simulation.bounds import all_work
from rolecall.simulation.figures import figures
from rolecall.simulation.simulate import Recorder

COSTS = costs(
    engines={"count": 1, "slots": 2, "token_s": 1.0, "token_row_s": 0.0, "prompt_token_s": 0.0, "load_s": 1.0},
    learners={"token_s": 0.0, "update_s": 3.0, "publish_s": 1.0, "skip_flat": False},
)
WORK = workload(*always(4, 2), n=2, k=1)
SOLVER, VERIFIER = {"solver": 2}, {"verifier": 2}


class Diary(Recorder):
    """Intervals in which the engine had rows, and updates."""

    def __init__(self) -> None:
        self.rows: list[tuple[float, float, dict[str, int]]] = []
        self.updates: list[tuple[float, float, float]] = []

    def engine(self, number: int, begin_s: float, end_s: float, stalled_until_s: float, roles: dict[str, int]) -> None:
        here = {role: rows for role, rows in roles.items() if rows}
        if here and end_s > stalled_until_s:
            self.rows.append((stalled_until_s, end_s, here))

    def update(self, begin_s: float, learned_s: float, end_s: float) -> None:
        self.updates.append((begin_s, learned_s, end_s))


def run(schedule: Schedule) -> tuple[Any, Diary]:
    diary = Diary()
    return simulate(WORK, COSTS, schedule, num_tasks=2, recorder=diary), diary


def test_barrier_does_both_stages_of_a_task_and_then_learns():
    # S 0-4, V 4-6, update 6-10, load 10-11; S 11-15, V 15-17, update 17-21
    simulation, diary = run(Schedule(mode="barrier"))
    assert simulation.now == 21.0
    assert diary.rows == [(0, 4, SOLVER), (4, 6, VERIFIER), (11, 15, SOLVER), (15, 17, VERIFIER)]
    assert diary.updates == [(6, 9, 10), (17, 20, 21)]


def test_the_pipeline_learns_after_every_tick_and_generates_the_deepest_stage_first():
    # S1 0-4, update to 8, load to 9; V1 9-11, S2 11-15, update to 19, load to 20; V2 20-22, update to 26
    simulation, diary = run(Schedule(mode="pipeline"))
    assert simulation.now == 26.0
    assert diary.rows == [(0, 4, SOLVER), (9, 11, VERIFIER), (11, 15, SOLVER), (20, 22, VERIFIER)]
    assert diary.updates == [(4, 7, 8), (15, 18, 19), (22, 25, 26)]


def test_segments_cut_a_completion_and_a_tick_that_completes_nothing_has_no_update():
    # S1 has 2 of 4 tokens at 2; it ends at 4, S2 has 2 at 6, update to 10, load to 11; S2 ends at 13, V1 at 15, update
    # to 19, load to 20; V2 20-22, update to 26
    simulation, diary = run(Schedule(mode="pipeline_segments", segment_tokens=2))
    assert simulation.now == 26.0
    assert [rows[:2] for rows in diary.rows] == [(0, 2), (2, 4), (4, 6), (11, 13), (13, 15), (20, 22)]
    assert diary.updates == [(6, 9, 10), (15, 18, 19), (22, 25, 26)]
    assert simulation.ages.highest == 1  # S2 began before the first update


def test_overlapped_generates_while_the_learner_works_as_far_as_the_bound_lets_it():
    # S1 0-4; update 4-8 beside V1 4-6; then 4 completions are started and not in the weights, as many as a staleness of
    # 1 and updates of 2 allow. At 8 the engine loads until 9 and S2 begins; update of V1 8-12; load 12-13 in the midst
    # of S2, which ends at 14; update 14-18 beside V2 14-16; load; update of V2 18-22
    simulation, diary = run(Schedule(mode="overlapped", max_staleness=1, update_rows=2))
    assert simulation.now == 22.0
    assert diary.rows == [
        (0, 4, SOLVER),
        (4, 6, VERIFIER),
        (9, 12, SOLVER),
        (13, 14, SOLVER),
        (14, 16, VERIFIER),
    ]
    assert diary.updates == [(4, 7, 8), (8, 11, 12), (14, 17, 18), (18, 21, 22)]
    # V1 and V2 began one version before the one that they were trained under; S2 began under 1 and was trained under 2
    assert simulation.ages.highest == 1
    assert simulation.ages.total / simulation.ages.rows == 0.75


def test_the_bound_is_the_critical_path_or_the_work_over_the_slots():
    bounds = all_work(WORK, COSTS, 2).bounds(COSTS)
    assert bounds.engines_s == 12.0  # 2 tasks of 2 x (4 + 2) tokens, two at a time
    assert bounds.critical_path_s == 10.0  # 4 + 2 tokens, 3 to learn them, 1 to publish
    assert bounds.lower_bound_s == 12.0
    assert bounds.part == "engines"


def test_the_figures_of_a_run_worked_out_by_hand():
    simulation, _ = run(Schedule(mode="pipeline"))
    found = figures(simulation, all_work(WORK, COSTS, 2).bounds(COSTS))
    assert found["makespan_s"] == 26.0
    assert found["lower_bound_s"] == 12.0
    assert found["first_update_s"] == 8.0
    # the engine has rows or loads for 4 + 1 + 6 + 1 + 2 s; rows hold their slots while it loads
    assert found["idle_share"]["engines"] == pytest.approx(1 - 14 / 26)
    assert found["idle_share"]["learners"] == pytest.approx(1 - 12 / 26)
    assert found["empty_slots_share"] == pytest.approx(1 - 28 / 52)
    assert found["tokens"] == 24
    assert found["updates"] == 3
    assert found["completions_per_tick"] == pytest.approx(8 / 3)
