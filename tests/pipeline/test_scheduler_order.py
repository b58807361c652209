"""Who goes first, how many tasks come in, when a group is trained, what keeps a bound, and the words of a deadlock."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from rolecall.pipeline.rows import Group, Released, Row
from rolecall.pipeline.schedule import Schedule
from rolecall.pipeline.scheduler import Scheduler
from rolecall.pipeline.stuck import SchedulerStuck, blocked, explain_stuck


def scheduler_of(
    *, tasks_per_step: int = 2, group_size: int = 2, policies: Sequence[str] = ("p",), capacity: int | None = None, **to
) -> Scheduler:
    versions = dict.fromkeys(policies, 0)
    schedule = Schedule(**to)
    return Scheduler(
        schedule, tasks_per_step=tasks_per_step, group_size=group_size, versions=versions, capacity=capacity
    )


def submit(scheduler: Scheduler, chain: int, stage: int = 0, number: int = 0, policy: str = "p") -> Group:
    group = Group.of(scheduler.group_size, chain=chain, stage=stage, number=number, policy=policy, role=f"role{stage}")
    scheduler.submit(group)
    return group


def come_back(scheduler: Scheduler, *rows: Row, ended: bool = True) -> list[Group]:
    """The groups that the rows complete."""
    return [row.group for row in rows if scheduler.returned(row, row.tokens + 1, ended=ended)]


def finish(scheduler: Scheduler, *groups: Group) -> None:
    """Groups that run come to their end and are scored."""
    for group in groups:
        assert come_back(scheduler, *group.rows)
        scheduler.scored(group)


def places(rows: Sequence[Row]) -> list[tuple[int, int]]:
    """Chain and stage of each, groups once."""
    return list(dict.fromkeys((row.group.chain, row.group.stage) for row in rows))


def trained(released: Sequence[Released] | None) -> list[tuple[int, int, int]]:
    assert released is not None
    return [one.group.place for one in released]


@pytest.mark.parametrize(
    ("order", "wanted"),
    [
        ("deepest_first", [(1, 0), (0, 2), (1, 2), (2, 1), (3, 0)]),
        ("oldest_first", [(1, 0), (0, 2), (1, 2), (2, 1), (3, 0)]),
        ("shallowest_first", [(1, 0), (3, 0), (2, 1), (0, 2), (1, 2)]),
    ],
)
def test_unfinished_completions_go_first_then_as_the_order_says(order: str, wanted: list[tuple[int, int]]) -> None:
    scheduler = scheduler_of(mode="overlapped", update_rows=100, max_staleness=1, order=order, segment_tokens=1)
    submit(scheduler, 1)
    unfinished = scheduler.start(1)
    submit(scheduler, 3)
    submit(scheduler, 2, stage=1)
    submit(scheduler, 1, stage=2)
    submit(scheduler, 0, stage=2)
    come_back(scheduler, *unfinished, ended=False)
    assert places(scheduler.start()) == wanted


def test_the_oldest_first_is_not_the_deepest_first() -> None:
    for order, wanted in (("deepest_first", [(5, 2), (4, 0)]), ("oldest_first", [(4, 0), (5, 2)])):
        scheduler = scheduler_of(mode="barrier", order=order)
        submit(scheduler, 4)
        submit(scheduler, 5, stage=2)
        assert places(scheduler.start()) == wanted


def test_in_barrier_the_next_stage_joins_the_same_tick_and_in_pipeline_the_next() -> None:
    for mode, now in (("barrier", [(0, 1)]), ("pipeline", [])):
        scheduler = scheduler_of(mode=mode, tasks_per_step=1)
        assert scheduler.wants_tasks() == 1
        group = submit(scheduler, 0)
        scheduler.start()
        come_back(scheduler, *group.rows)
        submit(scheduler, 0, stage=1)
        scheduler.scored(group)
        assert places(scheduler.start()) == now
        if mode == "pipeline":
            assert trained(scheduler.update()) == [(0, 0, 0)]
            assert scheduler.start() == []  # while the learner is at it
            scheduler.updated({"p": 1})
            assert scheduler.wants_tasks() == 1
            submit(scheduler, 1)
            assert places(scheduler.start()) == [(0, 1), (1, 0)]


def test_a_cut_completion_waits_for_the_next_tick_and_goes_first_there() -> None:
    scheduler = scheduler_of(mode="pipeline_segments", segment_tokens=1, tasks_per_step=1)
    scheduler.wants_tasks()
    group = submit(scheduler, 0)
    scheduler.start()
    come_back(scheduler, group.rows[0], ended=False)
    come_back(scheduler, group.rows[1])
    assert scheduler.start() == []
    assert scheduler.num_unfinished == 1
    assert scheduler.tick_over
    assert scheduler.update() is None  # nothing was completed: the next tick begins without an update
    assert scheduler.wants_tasks() == 1
    submit(scheduler, 1)
    rows = scheduler.start()
    assert [row.place for row in rows] == [(0, 0, 0, 0), (1, 0, 0, 0), (1, 0, 0, 1)]
    assert (rows[0].tokens, rows[0].segments, rows[0].version) == (1, 1, 0)


def test_new_tasks_are_admitted_where_they_fit() -> None:
    scheduler = scheduler_of(mode="pipeline_segments", segment_tokens=1, tasks_per_step=3, max_rows=7)
    assert scheduler.wants_tasks() == 3
    assert scheduler.wants_tasks() == 0
    groups = [submit(scheduler, chain) for chain in range(3)]
    scheduler.start()
    come_back(scheduler, *groups[0].rows, *groups[1].rows, ended=False)
    finish(scheduler, groups[2])
    assert trained(scheduler.update()) == [(2, 0, 0)]
    scheduler.updated({"p": 1})
    assert scheduler.wants_tasks() == 1  # 7 rows, of which 4 are unfinished
    assert scheduler.ask_again(5) == 0
    submit(scheduler, 3)
    assert len(scheduler.start()) == 6


def test_refilling_a_tick_stays_within_its_rows() -> None:
    scheduler = scheduler_of(mode="pipeline", tasks_per_step=2, max_rows=7)
    assert scheduler.wants_tasks() == 2
    finished = [submit(scheduler, chain) for chain in range(2)]
    scheduler.start()
    finish(scheduler, *finished)
    assert scheduler.tick_over
    assert scheduler.ask_again(2) == 1  # one more group of 2 fits beside the 4 rows that this tick has had
    assert not scheduler.tick_over
    assert scheduler.update() is None
    assert scheduler.wants_tasks() == 1
    finish_later = submit(scheduler, 2)
    scheduler.start()
    finish(scheduler, finish_later)
    assert scheduler.ask_again(-1) == scheduler.ask_again(1) == 0
    assert len(trained(scheduler.update())) == 3


def test_no_more_tasks_come_in_after_stop() -> None:
    scheduler = scheduler_of(mode="pipeline")
    scheduler.stop()
    assert scheduler.wants_tasks() == scheduler.ask_again(3) == 0
    assert scheduler.update() == []
    scheduler.updated({"p": 1})
    assert scheduler.wants_tasks() == 0


def test_completions_that_arrive_early_are_trained_where_there_are_two_to_compare_or_no_more_come() -> None:
    scheduler = scheduler_of(
        mode="pipeline_segments", segment_tokens=1, tasks_per_step=1, group_size=4, release="arrived"
    )
    scheduler.wants_tasks()
    group = submit(scheduler, 0)
    scheduler.start()

    def tick(*numbers: int) -> list[int]:
        """These rows end in a tick, the others of the group are cut; returns the rows that are trained."""
        for row in group.rows:
            if row.ended:
                continue
            if scheduler.returned(row, row.tokens + 1, ended=row.number in numbers):
                scheduler.scored(group)
        released = scheduler.update()
        if released:
            scheduler.updated({"p": scheduler.versions["p"] + 1})
        scheduler.stop()
        scheduler.start()
        return [row.number for one in released or [] for row in one.rows]

    assert tick(1) == []  # alone
    assert tick(3) == [1, 3]
    assert tick(0) == []
    assert tick(2) == [0, 2]
    assert all(row.trained for row in group.rows)
    assert scheduler.counts.released == 2


def test_a_completion_that_failed_is_none_to_compare_with() -> None:
    scheduler = scheduler_of(
        mode="pipeline_segments", segment_tokens=1, release="arrived", group_size=3, tasks_per_step=1
    )
    scheduler.wants_tasks()
    group = submit(scheduler, 0)
    scheduler.start()
    assert not scheduler.returned(group.rows[0], 1, ended=True)
    assert not scheduler.returned(group.rows[1], 0, ended=True, failed=True)
    assert not scheduler.returned(group.rows[2], 1, ended=False)
    assert scheduler.update() is None
    scheduler.wants_tasks()
    scheduler.start()
    assert scheduler.returned(group.rows[2], 2, ended=True)
    scheduler.scored(group)
    assert [row.number for row in scheduler.update()[0].rows] == [0, 1, 2]


def test_the_last_completion_of_a_group_is_trained_though_it_is_alone() -> None:
    scheduler = scheduler_of(
        mode="pipeline_segments", segment_tokens=1, tasks_per_step=1, group_size=3, release="arrived"
    )
    scheduler.wants_tasks()
    group = submit(scheduler, 0)
    scheduler.start()
    come_back(scheduler, *group.rows[:2])
    come_back(scheduler, group.rows[2], ended=False)
    assert [row.number for row in scheduler.update()[0].rows] == [0, 1]
    scheduler.updated({"p": 1})
    scheduler.stop()
    scheduler.start()
    scheduler.scored(come_back(scheduler, group.rows[2])[0])
    assert [row.number for row in scheduler.update()[0].rows] == [2]


# -- staleness --------------------------------------------------------------------------------------------------------


def overlapped(**settings: Any) -> Scheduler:
    return scheduler_of(**{"mode": "overlapped", "update_rows": 2, "max_staleness": 1, **settings})


def test_generation_waits_where_more_would_pass_the_bound() -> None:
    """Bound 1, updates of 2 rows: 4 rows may be started and not in the weights yet."""
    scheduler = overlapped()
    assert scheduler.wants_tasks() == 2
    groups = [submit(scheduler, chain) for chain in range(3)]
    assert len(scheduler.start()) == 4
    finish(scheduler, groups[0])
    assert scheduler.start() == []
    assert trained(scheduler.update()) == [(0, 0, 0)]
    assert scheduler.start() == []  # it is with the learner, and not in the weights
    scheduler.updated({"p": 1})
    assert places(scheduler.start()) == [(2, 0)]


def test_with_a_bound_of_0_generation_and_learning_take_turns() -> None:
    scheduler = overlapped(max_staleness=0)
    group = submit(scheduler, 0)
    scheduler.start()
    submit(scheduler, 1)
    finish(scheduler, group)
    assert scheduler.start() == []
    assert trained(scheduler.update()) == [(0, 0, 0)]
    assert scheduler.start() == []
    scheduler.updated({"p": 1})
    assert places(scheduler.start()) == [(1, 0)]


def test_under_wait_the_learner_waits_for_an_old_completion_and_takes_it_first() -> None:
    scheduler = overlapped(max_staleness=1, update_rows=4)
    groups = [submit(scheduler, chain) for chain in range(4)]
    scheduler.start()
    finish(scheduler, groups[1], groups[2])
    assert trained(scheduler.update()) == [(1, 0, 0), (2, 0, 0)]
    scheduler.updated({"p": 1})
    more = [submit(scheduler, chain) for chain in (4, 5)]
    scheduler.start()
    finish(scheduler, groups[3], *more)
    assert scheduler.update() is None  # 6 rows are there; group 0 would be 2 versions old in the next one
    assert "the learner of 'p' (version 1) waits for 1 groups begun under version 0" in blocked(scheduler)
    finish(scheduler, groups[0])
    released = scheduler.update()
    assert trained(released) == [(3, 0, 0), (0, 0, 0)]
    assert [one.staleness for one in released] == [1, 1]


@pytest.mark.parametrize(("rule", "drops", "staleness"), [("drop", True, 2), ("mask", False, 1)])
def test_under_drop_and_mask_the_learner_goes_on_and_what_is_too_old_is_counted(rule, drops, staleness) -> None:
    scheduler = overlapped(max_staleness=1, update_rows=2, on_stale=rule, group_size=2)
    old = submit(scheduler, 0)
    scheduler.start()
    for chain in (1, 2):
        group = submit(scheduler, chain)
        scheduler.start()
        finish(scheduler, group)
        assert trained(scheduler.update()) == [(chain, 0, 0)]
        scheduler.updated({"p": chain})
    finish(scheduler, old)
    (released,) = scheduler.update()
    assert (released.drop, released.staleness) == (drops, staleness)
    assert scheduler.counts.dropped == drops
    assert scheduler.counts.max_staleness == (0 if drops else 1)


def test_each_policy_has_its_own_bound_and_versions() -> None:
    """The learner waits for the verifier's old group (bound 0) and not for the solver's (bound 2)."""
    bounds = {"max_staleness": 2, "max_staleness_by_policy": {"v": 0}}
    scheduler = overlapped(policies=("s", "v"), update_rows=6, **bounds)
    groups = [submit(scheduler, 0, policy="s"), submit(scheduler, 1, policy="v"), submit(scheduler, 2, policy="s")]
    scheduler.start()
    finish(scheduler, *groups)
    assert len(trained(scheduler.update())) == 3
    scheduler.updated({"s": 1, "v": 1})
    one, other = submit(scheduler, 3, policy="s"), submit(scheduler, 4, policy="v")
    third = submit(scheduler, 5, policy="s")
    scheduler.start()
    finish(scheduler, one, third)
    assert scheduler.update() is None
    finish(scheduler, other)
    released = scheduler.update()
    assert {item.group.policy: item.staleness for item in released} == {"s": 0, "v": 0}


def test_a_policy_whose_version_stands_still_does_not_age() -> None:
    scheduler = overlapped(policies=("s", "frozen"), max_staleness=0, update_rows=2)
    group = submit(scheduler, 0, policy="frozen")
    scheduler.start()
    finish(scheduler, group)
    scheduler.update()
    scheduler.updated({"s": 7})
    group = submit(scheduler, 1, policy="frozen")
    scheduler.start()
    finish(scheduler, group)
    assert scheduler.update()[0].staleness == 0


def test_versions_of_two_policies_are_not_compared_the_group_with_the_least_time_left_is_trained_first() -> None:
    """The frozen policy's groups are of version 0 for ever, and come in without end; the other's is of version 5."""
    scheduler = overlapped(policies=("frozen", "s"), max_staleness=2, update_rows=2)
    scheduler.versions["s"] = 5
    chains = iter(range(99))

    def complete(policy: str) -> None:
        group = submit(scheduler, next(chains), policy=policy)
        scheduler.start()
        finish(scheduler, group)

    for policy in ("frozen", "s", "frozen"):
        complete(policy)
    order = []
    for version in (6, 7, 8):
        (released,) = scheduler.update() or ()
        order.append((released.group.policy, released.staleness))
        scheduler.updated({"s": version})
        complete("frozen")
    assert order == [("frozen", 0), ("s", 1), ("frozen", 0)]


def test_what_a_roll_back_made_too_old_is_dropped_under_wait_as_well() -> None:
    """A roll-back publishes the old weights after the update: two versions in one step."""
    scheduler = overlapped(max_staleness=1, update_rows=2)
    groups = [submit(scheduler, chain) for chain in range(2)]
    scheduler.start()
    finish(scheduler, *groups)
    assert trained(scheduler.update()) == [(0, 0, 0)]
    scheduler.updated({"p": 1})
    scheduler.updated({"p": 2})
    (released,) = scheduler.update() or ()
    assert (released.group.place, released.staleness, released.drop) == ((1, 0, 0), 2, True)
    assert scheduler.counts.max_staleness == 0
    assert scheduler.counts.dropped == 1


# -- the end, and checkpoints -----------------------------------------------------------------------------------------


def test_a_deadlock_says_who_waits_for_whom() -> None:
    scheduler = overlapped(update_rows=4, max_staleness=0)
    group = submit(scheduler, 0)
    scheduler.start()
    finish(scheduler, group)
    scheduler.stop()
    assert scheduler.stuck
    error = explain_stuck(scheduler, ["the task set is empty"])
    assert isinstance(error, SchedulerStuck)
    assert str(error) == (
        "nothing runs and nothing can start: 0 completions are ready, 0 wait for the next tick; the learner waits for "
        "4 completions in complete groups and has 2; the task set is empty"
    )


def test_a_started_completion_that_the_engine_forgot_is_named() -> None:
    """Generation waits for the learner, and the learner for a group that never comes back."""
    scheduler = overlapped(update_rows=2, max_staleness=0)
    submit(scheduler, 0)
    scheduler.start()
    submit(scheduler, 1)
    words = blocked(scheduler)
    assert "2 completions are started and not trained, and a staleness of 0 allows 2" in words
    assert "waits for 1 groups begun under version 0" in words


def test_a_tick_that_nobody_ended_says_so() -> None:
    scheduler = scheduler_of(mode="pipeline", tasks_per_step=1)
    assert "the tick is open" in blocked(scheduler)
    scheduler.stop()
    scheduler.update()
    assert "the learner was told to train and has not said it did" in blocked(scheduler)


@pytest.mark.parametrize("release", ["complete", "arrived"])
def test_a_scheduler_goes_on_from_its_saved_state_as_it_would_have(release: str) -> None:
    """Between two ticks: unfinished rows, a group that waits for its first tick, and one that is partly trained."""
    schedule = {"mode": "pipeline_segments", "segment_tokens": 1, "release": release}

    def before() -> tuple[Scheduler, list[Group]]:
        scheduler = scheduler_of(**schedule, tasks_per_step=3, group_size=3)
        scheduler.wants_tasks()
        groups = [submit(scheduler, chain) for chain in range(3)]
        scheduler.start()
        come_back(scheduler, *groups[0].rows)
        groups.append(submit(scheduler, 0, stage=1))
        scheduler.scored(groups[0])
        come_back(scheduler, groups[1].rows[0], groups[1].rows[2])
        come_back(scheduler, groups[1].rows[1], *groups[2].rows, ended=False)
        scheduler.update()
        scheduler.updated({"p": 1})
        return scheduler, groups

    def after(scheduler: Scheduler) -> list[Any]:
        seen: list[Any] = []
        scheduler.stop()
        for _ in range(2):
            rows = scheduler.start()
            seen.append([(row.place, row.tokens, row.version) for row in rows])
            for row in rows:
                if scheduler.returned(row, row.tokens + 1, ended=True):
                    scheduler.scored(row.group)
            released = scheduler.update()
            seen.append([(one.group.place, [row.number for row in one.rows], one.staleness) for one in released or []])
            scheduler.updated({"p": 2})
        return [*seen, scheduler.counts]

    scheduler, groups = before()
    again = scheduler_of(**schedule, tasks_per_step=3, group_size=3)
    again.versions.update({"p": 1})
    copies = []
    for group in groups:
        if all(row.trained for row in group.rows):
            continue
        copy = Group.of(3, chain=group.chain, stage=group.stage, number=group.number, policy="p", role=group.role)
        copy.started, copy.oldest = group.started, group.oldest
        for row, other in zip(copy.rows, group.rows, strict=True):
            row.restore(json.loads(json.dumps(other.state())))
        copy.open = sum(not row.ended for row in copy.rows)
        copies.append(copy)
    again.restore(json.loads(json.dumps(scheduler.state())), copies[::-1])
    assert after(again) == after(scheduler)


def test_an_overlapped_scheduler_goes_on_from_its_saved_state_within_its_bounds() -> None:
    """Complete groups wait for the learner, others are under way: what is started counts as started."""
    scheduler = overlapped(update_rows=4, max_staleness=1, group_size=2)
    groups = [submit(scheduler, chain) for chain in range(5)]
    scheduler.start()  # 8 rows: chains 0 to 3
    finish(scheduler, *groups[:3])
    assert trained(scheduler.update()) == [(0, 0, 0), (1, 0, 0)]
    scheduler.updated({"p": 1})
    again = overlapped(update_rows=4, max_staleness=1, group_size=2)
    again.versions.update({"p": 1})
    for row in groups[3].rows:  # they are generated again from what they had
        assert not row.ended
    again.restore(scheduler.state(), groups[2:])
    assert again.num_complete == 1
    assert places(again.start()) == [(3, 0), (4, 0)]
    submit(again, 5)
    submit(again, 6)
    assert places(again.start()) == [(5, 0)]  # 8 rows again: group 6 has to wait
