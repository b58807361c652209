"""Asserts, at every instant of a simulation, that no part idles while there is work that it may do.

It keeps books of its own, from what it is told, and reads the scheduler only for how many rows are ready.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rolecall.pipeline.scheduler import Group, Released, Row, Scheduler

if TYPE_CHECKING:
    from rolecall.simulation.engine import Fleet


class Watch:
    """See the head of this file; `check` follows everything that could begin at an instant."""

    def __init__(self, scheduler: Scheduler, fleet: Fleet, tasks_per_step: int, group_size: int) -> None:
        self.scheduler, self.fleet = scheduler, fleet
        self.tasks_per_step, self.group_size = tasks_per_step, group_size
        self.update_rows = -(-(scheduler.schedule.update_rows or 0) // group_size) * group_size
        self.most = scheduler.schedule.max_started(group_size)
        self.learning = False
        self.in_tick = 0  # tasks admitted in this tick
        self.first_open = 0  # tasks whose first group is under way
        self.started_rows = 0  # of groups begun and not in the weights yet
        self.learning_rows = 0
        self.complete_rows = 0
        self.oldest: dict[str, Counter[int]] = {policy: Counter() for policy in scheduler.versions}

    def admitted(self, num_tasks: int) -> None:
        self.in_tick += num_tasks
        self.first_open += num_tasks

    def started(self, row: Row) -> None:
        group = row.group
        if row.number == 0 and not row.tokens:
            self.started_rows += self.group_size
            self.oldest[group.policy][self.scheduler.versions[group.policy]] += 1

    def complete(self, group: Group) -> None:
        self.first_open -= group.stage == 0

    def scored(self, group: Group) -> None:
        self.complete_rows += self.group_size
        counter = self.oldest[group.policy]
        counter[group.oldest] -= 1
        if not counter[group.oldest]:
            del counter[group.oldest]

    def released(self, released: Sequence[Released]) -> None:
        self.learning = True
        self.learning_rows = sum(len(one.rows) for one in released)
        self.complete_rows -= self.learning_rows

    def updated(self) -> None:
        self.learning = False
        self.started_rows -= self.learning_rows
        self.learning_rows = self.in_tick = 0

    def check(self, *, left: int, graders_idle: bool, done: bool) -> None:
        """`left`: tasks that are not admitted yet; `graders_idle`: one is free and a group waits for one; `done`:
        nothing is left to do at all."""
        scheduler = self.scheduler
        ready, free = scheduler.num_ready, self.fleet.free
        assert scheduler.running == self.fleet.slots * len(self.fleet.engines) - free
        assert scheduler.learning == self.learning
        assert not graders_idle, "a grader is free and a group waits for one"
        if scheduler.schedule.ticks:
            self._check_tick(ready, free, left, done)
        else:
            self._check_overlapped(ready, free, left)

    def _check_tick(self, ready: int, free: int, left: int, done: bool) -> None:
        scheduler, most = self.scheduler, self.scheduler.schedule.max_rows
        if scheduler.open:
            assert not (free and ready), f"{free} slots are free and {ready} completions are ready"
            full = self.in_tick >= self.tasks_per_step or most is not None
            assert full or not left, f"a tick has {self.in_tick} of {self.tasks_per_step} tasks, and {left} are left"
            assert scheduler.running or scheduler.scoring or done, "a tick is over and the learner waits"
        else:
            assert self.learning, "the tick is closed and the learner waits"

    def _check_overlapped(self, ready: int, free: int, left: int) -> None:
        scheduler, schedule = self.scheduler, self.scheduler.schedule
        assert self.most is not None
        held = self.started_rows + self.group_size > self.most
        full = schedule.max_rows is not None and scheduler.running >= schedule.max_rows
        assert not (free and ready) or held or full, f"{free} slots are free and {ready} completions are ready"
        held = held or self.first_open >= self.tasks_per_step
        assert not (free and left) or held or full or ready, f"{free} slots are free and {left} tasks are left"
        if not self.learning and self.complete_rows >= self.update_rows:
            assert schedule.on_stale == "wait", f"{self.complete_rows} completions wait for the learner"
            assert any(
                self.scheduler.versions[policy] - min(versions) >= bound
                for policy, versions in self.oldest.items()
                if versions and (bound := schedule.bound(policy)) is not None
            ), f"{self.complete_rows} completions wait for the learner, and no older ones are under way"
