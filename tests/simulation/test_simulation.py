"""Whole simulated runs.

Behaviours locked here: all work is done once, the same under every schedule and as it is counted without a clock; no
schedule beats the lower bound; staleness is bounded; costs scale; the ticks hold what the paper says; and the assertion
that nothing idles fails when something does.
"""

from __future__ import annotations

import pytest
from simulation_builders import SCHEDULES, always, call, costs, simulate, team, workload

from rolecall.pipeline.rows import Row
from rolecall.pipeline.schedule import Schedule
from rolecall.pipeline.scheduler import Scheduler
from rolecall.simulation.bounds import all_work
from rolecall.simulation.figures import figures, steady
from rolecall.simulation.lengths import Fixed
from rolecall.simulation.simulate import Simulation

TASKS = 24
MORE = {
    "overlapped in segments": Schedule(mode="overlapped", max_staleness=1, update_rows=64, segment_tokens=50),
    "masked": Schedule(mode="overlapped", max_staleness=3, max_rows=20, update_rows=60, on_stale="mask"),
    "arrived": Schedule(mode="pipeline_segments", segment_tokens=64, release="arrived", order="oldest_first"),
    "few rows": Schedule(mode="pipeline_segments", segment_tokens=64, max_rows=40, order="shallowest_first"),
}


@pytest.mark.parametrize("pool", ["task", "parent"])
@pytest.mark.parametrize("seed", [1, 2])
def test_all_work_is_done_once_and_is_the_same_under_every_schedule(seed: int, pool: str):
    made = team(seed, pool=pool)
    priced = costs()
    work = all_work(made, priced, TASKS)
    for schedule in (*SCHEDULES.values(), *MORE.values()):
        done = simulate(made, priced, schedule, num_tasks=TASKS, tasks_per_step=6)
        assert done.completions == work.completions
        assert done.tokens == work.tokens
        assert done.trained_rows == sum(work.completions.values())
        if schedule.release == "complete":  # one that is trained in parts may be flat in the end
            assert sum(moment.tokens for moment in done.moments) == work.learned_tokens
        assert sum(engine.decoded for engine in done.fleet.engines) == pytest.approx(sum(work.tokens.values()))
        prompt_s = sum(engine.prompt_s for engine in done.fleet.engines)
        assert prompt_s == pytest.approx(work.prompt_tokens * priced.engines.prompt_token_s)
        assert done.chains_ended == TASKS
        assert done.fleet.free == 32


def test_chains_end_as_outcomes_say():
    # no report flags an error: two groups of reports a task, and nobody corrects
    calls = always(3, 2, 2)
    accepting = workload(calls[0], call("verifier", 0, Fixed(2), chance_after_wrong=0.0), calls[2], n=4)
    work = all_work(accepting, costs(), 3)
    assert work.completions == {("solver", 0): 12, ("verifier", 0): 24}
    # reports at the limit cannot be read, and accept nothing; answers at the limit have no text
    unread = workload(calls[0], call("verifier", 0, Fixed(2), max_tokens=2, chance_after_wrong=0.0), calls[2], n=4)
    assert all_work(unread, costs(), 3).completions["corrector", 0] == 24
    cut = workload(call("solver", 0, Fixed(3), max_tokens=3), *calls[1:], n=4)
    assert all_work(cut, costs(), 3).completions == {("solver", 0): 12}


def test_outcomes_have_the_chances_that_were_given():
    made = team()
    found = {"solver": [], "flagged wrong": [], "flagged right": [], "repaired": [], "kept": []}
    for task in range(400):
        drawn = made.draw(0, made.first(task))
        solutions = made.candidates(0, 0, drawn)
        found["solver"] += [one.score for one in solutions]
        for solution in solutions[:2]:
            right = solution.onward.right
            reports = made.candidates(1, 0, made.draw(1, solution.onward))
            flags = [one.score != right for one in reports]
            found["flagged right" if right else "flagged wrong"] += [float(flag) for flag in flags]
            answers = made.candidates(2, 0, made.draw(2, reports[0].onward))
            found["kept" if right else "repaired"] += [one.score for one in answers]
            assert all((one.receiver is not None) == flag for one, flag in zip(reports, flags, strict=True))
    chances = {"solver": 0.5, "flagged wrong": 0.5, "flagged right": 0.2, "repaired": 0.5, "kept": 0.9}
    for name, chance in chances.items():
        assert sum(found[name]) / len(found[name]) == pytest.approx(chance, abs=0.04), name


@pytest.mark.parametrize("seed", range(4))
def test_no_schedule_beats_the_lower_bound(seed: int):
    for engines, slots in ((1, 64), (4, 8), (16, 64)):
        priced = costs(engines={"count": engines, "slots": slots, "load_s": 0.3}, graders={"completion_s": 0.01})
        made = team(seed)
        bound = all_work(made, priced, 8).bounds(priced).lower_bound_s
        for schedule in SCHEDULES.values():
            assert simulate(made, priced, schedule, num_tasks=8, tasks_per_step=4).now >= bound * (1 - 1e-9)


def test_the_bound_is_reached_where_nothing_is_in_the_way():
    # one stage, one update of all, slots for all: the critical path is all there is
    made = workload(*always(40), n=4)
    priced = costs(
        engines={"count": 2, "slots": 8, "token_row_s": 0.0},
        learners={"count": 100, "token_s": 0.01, "skip_flat": False},
    )
    done = simulate(made, priced, Schedule(), num_tasks=4, tasks_per_step=4)
    assert done.now == pytest.approx(all_work(made, priced, 4).bounds(priced).lower_bound_s)


def test_completions_older_than_the_bound_are_never_trained():
    for staleness in (0, 1, 2, 4):
        schedule = Schedule(mode="overlapped", max_staleness=staleness, update_rows=40)
        done = simulate(team(sigma=1.3), costs(), schedule, num_tasks=TASKS, tasks_per_step=6)
        assert done.ages.highest <= staleness
        assert done.ages.total / done.ages.rows <= staleness
    dropping = Schedule(mode="overlapped", max_staleness=1, on_stale="drop", update_rows=40)
    done = simulate(team(sigma=1.3), costs(), dropping, num_tasks=TASKS, tasks_per_step=6)
    assert done.dropped_rows > 0
    assert done.trained_rows + done.dropped_rows == sum(done.completions.values())


@pytest.mark.parametrize("name", list(SCHEDULES))
def test_when_every_part_is_twice_as_slow_everything_takes_twice_as_long(name: str):
    slow = costs(
        engines={"token_s": 0.02, "token_row_s": 0.002, "prompt_token_s": 2e-4},
        learners={"token_s": 2e-4, "update_s": 1.0, "publish_s": 0.2},
    )
    quick = simulate(team(), costs(), SCHEDULES[name], num_tasks=TASKS, tasks_per_step=6)
    slowed = simulate(team(), slow, SCHEDULES[name], num_tasks=TASKS, tasks_per_step=6)
    assert slowed.now == pytest.approx(2 * quick.now)
    assert slowed.moments[0].end_s == pytest.approx(2 * quick.moments[0].end_s)


@pytest.mark.parametrize("name", list(SCHEDULES))
def test_more_engines_quicker_learners_and_quicker_loads_take_no_longer(name: str):
    made = workload(*always(40, 20, 20, 20, 20))
    changes = [(1, 1.0, 1), (2, 1.0, 1), (8, 1.0, 1), (8, 0.0, 1), (8, 0.0, 4)]
    slower = [
        costs(engines={"count": engines, "load_s": load_s}, learners={"count": learners, "skip_flat": False})
        for engines, load_s, learners in changes
    ]
    makespans = [simulate(made, priced, SCHEDULES[name], num_tasks=TASKS, tasks_per_step=6).now for priced in slower]
    assert makespans == sorted(makespans, reverse=True)
    assert makespans[0] > 1.5 * makespans[2]


def test_a_run_is_the_same_every_time():
    first, again = (
        figures(simulate(team(), costs(), SCHEDULES["overlapped"], num_tasks=TASKS, tasks_per_step=6), None)
        for _ in range(2)
    )
    assert first == again


def test_with_instant_decoding_the_ticks_hold_8_16_16_16_16_completions_a_task():
    """Five stages, 8 peers, 2 that go on (MarsRL, 3.1, reading A): tick t trains S of its own tasks, V1 of those
    before, ... and C2 of those of four ticks before."""
    instant = costs(
        engines={"token_s": 0.0, "token_row_s": 0.0, "prompt_token_s": 0.0},
        learners={"token_s": 0.0, "skip_flat": False},
    )
    made = workload(*always(1, 1, 1, 1, 1))
    done = simulate(made, instant, Schedule(mode="pipeline"), num_tasks=30, tasks_per_step=3)
    filled = {("solver", 0): 24, ("verifier", 0): 48, ("corrector", 0): 48, ("verifier", 1): 48, ("corrector", 1): 48}
    places = list(filled)
    assert [moment.trained for moment in done.moments[:5]] == [
        {place: filled[place] for place in places[: tick + 1]} for tick in range(5)
    ]
    assert all(moment.trained == filled for moment in done.moments[4:10])
    assert [len(moment.trained) for moment in done.moments[10:]] == [4, 3, 2, 1]
    middle = steady(done.moments, 30)
    assert middle is not None
    assert middle.completions == {f"{role}/{number}": count for (role, number), count in filled.items()}


def test_the_steady_middle_leaves_out_how_a_run_fills_and_drains():
    done = simulate(team(), costs(), SCHEDULES["pipeline"], num_tasks=60, tasks_per_step=6)
    middle = steady(done.moments, 60)
    assert middle is not None
    ends = [moment.end_s for moment in done.moments]
    assert middle.begin_s >= ends[4]
    assert middle.end_s < ends[10]
    assert middle.over_bound is not None
    assert middle.over_bound >= 1.0
    assert steady(done.moments[:3], 60) is None


def test_work_that_costs_neither_engines_nor_learners_anything_stands_to_no_bound():
    free = costs(
        engines={"token_s": 0.0, "token_row_s": 0.0, "prompt_token_s": 0.0},
        learners={"token_s": 0.0, "update_s": 1.0, "publish_s": 0.0},
    )
    middle = steady(simulate(team(), free, SCHEDULES["barrier"], num_tasks=60).moments, 60)
    assert middle is not None
    assert middle.over_bound is None
    assert middle.step_s == pytest.approx(1.0)


def test_one_policy_a_role_has_versions_of_its_own():
    first, second = always(30, 10)
    made = workload(
        call("solver", 0, first.lengths, policy="solver"), call("verifier", 0, second.lengths, policy="verifier"), n=4
    )
    schedule = Schedule(mode="overlapped", max_staleness=1, update_rows=8)
    done = simulate(made, costs(learners={"token_s": 1e-4, "skip_flat": False}), schedule, num_tasks=TASKS)
    assert set(done.scheduler.versions) == {"solver", "verifier"}
    assert min(done.scheduler.versions.values()) > 3
    assert done.trained_rows == sum(done.completions.values())


def test_roles_that_are_not_trained_cost_the_learner_nothing():
    some = simulate(
        workload(*always(30, 10), roles=("verifier",)),
        costs(learners={"token_s": 1.0, "update_s": 0.0, "publish_s": 0.0, "skip_flat": False}),
        Schedule(),
        num_tasks=1,
    )
    assert some.learn_s == 16 * 10  # two groups of 8 reports of 10 tokens, a second each
    assert some.moments[0].num_rows == 16


class Lazy(Scheduler):
    """Leaves rows in line now and then."""

    def start(self, limit: int | None = None) -> list[Row]:
        return super().start(0 if self.counts.ended % 7 == 3 else limit)


class Dozing(Scheduler):
    """A learner that does not begin although it could."""

    def update(self):
        return None if self.running and self.counts.ended % 64 else super().update()


class Shy(Scheduler):
    """Admits half of the tasks."""

    def wants_tasks(self) -> int:
        return super().wants_tasks() // 2


@pytest.mark.parametrize(
    ("scheduler", "names"), [(Lazy, list(SCHEDULES)), (Dozing, ["overlapped"]), (Shy, list(SCHEDULES))]
)
def test_a_scheduler_that_lets_something_idle_is_caught(scheduler: type[Scheduler], names: list[str]):
    for name in names:
        simulation = Simulation(
            team(), costs(), SCHEDULES[name], tasks_per_step=6, num_tasks=TASKS, make_scheduler=scheduler
        )
        with pytest.raises(AssertionError, match=r"are ready|are left|wait for the learner|of 6 tasks"):
            simulation.run()
