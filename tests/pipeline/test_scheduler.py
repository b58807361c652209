"""What the simulator found in the scheduler and the chains, each as small as it can be made."""

from __future__ import annotations

import random

from rolecall.pipeline.chains import Candidate, Chain, PickCounts, Successor
from rolecall.pipeline.rows import Group
from rolecall.pipeline.schedule import Schedule
from rolecall.pipeline.scheduler import Scheduler
from rolecall.rollout.agentic import AgenticGroups


def test_overlapped_what_is_left_after_the_last_task_is_trained_though_it_fills_no_update():
    schedule = Schedule(mode="overlapped", max_staleness=1, update_rows=4)
    scheduler = Scheduler(schedule, tasks_per_step=9, group_size=2, versions={"p": 0}, capacity=6)
    for chain in range(3):
        scheduler.submit(Group.of(2, chain=chain, stage=0, number=0, policy="p", role="solver"))
    scheduler.stop()
    rows = scheduler.start()
    assert len(rows) == 6
    for row in rows[:4]:
        if scheduler.returned(row, 1, ended=True):
            scheduler.scored(row.group)
    released = scheduler.update()
    assert released is not None
    assert len(released) == 2
    scheduler.updated({"p": 1})
    assert scheduler.update() is None  # the third group is under way: more may come
    for row in rows[4:]:
        if scheduler.returned(row, 1, ended=True):
            assert scheduler.update() is None  # and its successors too, until it is scored
            scheduler.scored(row.group)
    released = scheduler.update()
    assert released is not None
    assert [one.group.chain for one in released] == [2]
    scheduler.updated({"p": 2})
    assert scheduler.update() is None
    assert scheduler.stuck


def grow(order_seed: int) -> set[tuple[int, ...]]:
    """The paths that are picked when the groups of a stage complete in some order."""
    sampler = AgenticGroups(n=4, k=2, stages=5, pool="parent", pick="random")
    chain, counts, order = Chain(sampler, 7, "task"), PickCounts(), random.Random(order_seed)
    waiting = [Successor(0, 0, Candidate((0, 0), None, None, ()))]
    picked: set[tuple[int, ...]] = set()
    while waiting:
        one = waiting.pop(order.randrange(len(waiting)))
        path = one.candidate.onward
        candidates = [
            Candidate((one.number, place), 1.0, ("verifier", one.stage), (*path, place)) for place in range(4)
        ]
        following = chain.complete(one.stage, candidates, counts)
        waiting += following
        picked |= {successor.candidate.onward for successor in following}
    assert chain.ended
    return picked


def test_picks_of_each_group_do_not_depend_on_the_order_in_which_groups_complete():
    first = grow(0)
    assert len(first) == 2 + 4 + 8 + 16
    assert all(grow(seed) == first for seed in range(1, 6))
