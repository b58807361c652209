"""The scheduler under random orders of events.

Behaviours locked here, for all four modes, three rules of staleness, both rules of release, one policy and several:
everything that is submitted is generated to its end once and trained once, or counted as dropped; no bound is passed
(rows that run, rows that are started and not in the weights, staleness); a completion has one segment a tick; and there
is always something that can go on, until nobody admits tasks any more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rolecall.pipeline.rows import Group, Released, Row
from rolecall.pipeline.schedule import MODES, ORDERS, STALE_RULES, Schedule
from rolecall.pipeline.scheduler import Scheduler
from rolecall.pipeline.stuck import blocked

POLICIES = ("a", "b", "c")
MAX_SEGMENTS = 3


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    mode = draw(st.sampled_from(sorted(MODES)))
    overlapped = mode == "overlapped"
    bound = draw(st.integers(0, 3)) if overlapped or draw(st.booleans()) else None
    changes: dict[str, Any] = {}
    if bound is not None:
        rules = sorted(STALE_RULES) if overlapped else ["drop", "mask"]
        changes = {"max_staleness": bound, "on_stale": draw(st.sampled_from(rules))}
        if draw(st.booleans()):
            changes["max_staleness_by_policy"] = {"b": draw(st.integers(0, 3))}
    if overlapped:
        changes["update_rows"] = draw(st.integers(1, 13))
    if mode == "pipeline_segments" or (overlapped and draw(st.booleans())):
        changes["segment_tokens"] = draw(st.integers(1, 3))
    return Schedule(
        mode=mode,
        order=draw(st.sampled_from(sorted(ORDERS))),
        release="complete" if overlapped else draw(st.sampled_from(["complete", "arrived"])),
        max_rows=draw(st.one_of(st.none(), st.integers(4, 20))),
        **changes,
    )


class Events(RuleBasedStateMachine):
    """The driver: an engine, graders and a learner that are done when the machine says so."""

    @initialize(
        schedule=schedules(),
        group_size=st.integers(2, 4),
        tasks_per_step=st.integers(1, 3),
        capacity=st.one_of(st.none(), st.integers(1, 9)),
        num_policies=st.integers(1, 3),
        stages=st.integers(1, 3),
    )
    def begin(self, schedule, group_size, tasks_per_step, capacity, num_policies, stages) -> None:
        if schedule.max_rows is not None and schedule.max_rows < group_size:
            schedule = replace(schedule, max_rows=group_size)
        self.schedule, self.group_size, self.stages = schedule, group_size, stages
        self.policies = POLICIES[:num_policies]
        self.scheduler = Scheduler(
            schedule,
            tasks_per_step=tasks_per_step,
            group_size=group_size,
            versions=dict.fromkeys(self.policies, 0),
            capacity=capacity,
        )
        self.capacity = capacity
        self.submitted: list[Row] = []
        self.running: list[Row] = []
        self.complete: list[Group] = []  # and not scored
        self.learning: list[Released] = []
        self.trained: set[int] = set()
        self.dropped: set[int] = set()
        self.begun: set[int] = set()
        self.in_weights: set[int] = set()
        self.oldest: dict[int, int] = {}
        self.ticks = 0
        self.ran_in: dict[int, int] = {}
        self.num_chains = 0
        self.moves = 0

    # -- events -------------------------------------------------------------------------------------------------------

    @rule()
    def admit(self) -> None:
        wanted = self.scheduler.wants_tasks()
        for _ in range(wanted):
            self._submit(self.num_chains, 0, 0)
            self.num_chains += 1
        self.moves += wanted

    @rule(limit=st.one_of(st.none(), st.integers(1, 6)))
    def start(self, limit: int | None) -> None:
        rows = self.scheduler.start(limit)
        assert limit is None or len(rows) <= limit
        assert len(set(map(id, rows))) == len(rows)
        for row in rows:
            assert not row.ended
            assert row not in self.running
            if self.schedule.mode == "pipeline_segments":
                assert self.ran_in.get(id(row)) != self.ticks, "a second segment in one tick"
                self.ran_in[id(row)] = self.ticks
            self.oldest.setdefault(id(row), self.scheduler.versions[row.group.policy])
            assert row.version == self.oldest[id(row)]
            self.begun.add(id(row.group))
        assert not (rows and self.schedule.ticks and self.learning)
        self.running += rows
        self.moves += len(rows)

    @precondition(lambda self: self.running)
    @rule(place=st.integers(0, 99), ends=st.booleans(), fails=st.integers(0, 5))
    def come_back(self, place: int, ends: bool, fails: int = 1) -> None:
        self.moves += 1
        row = self.running.pop(place % len(self.running))
        cuts = self.schedule.segment_tokens is not None
        ended = ends or not cuts or row.segments + 1 >= MAX_SEGMENTS
        if self.scheduler.returned(row, row.tokens + 1, ended=ended, failed=ended and fails == 0):
            self.complete.append(row.group)

    @precondition(lambda self: self.complete)
    @rule(place=st.integers(0, 99), children=st.integers(0, 2))
    def score(self, place: int, children: int) -> None:
        self.moves += 1
        group = self.complete.pop(place % len(self.complete))
        assert all(row.ended for row in group.rows)
        if group.stage + 1 < self.stages:
            for number in range(children):
                self._submit(group.chain, group.stage + 1, 2 * group.number + number)
        self.scheduler.scored(group)

    @precondition(lambda self: not self.learning)
    @rule()
    def update(self) -> None:
        learning, waiting = self.scheduler.learning, self.scheduler.num_waiting
        released = self.scheduler.update()
        if released is None:
            if waiting and not self.scheduler.num_waiting:  # nothing was completed: the next tick began without it
                self.ticks += 1
                self.moves += 1
            return
        assert not learning
        for one in released:
            self._release(one)
        self.learning = released or [Released(group=Group.of(0, **_NOBODY), rows=(), staleness=0)]

    @precondition(lambda self: self.learning)
    @rule(moves=st.integers(0, 7))
    def learned(self, moves: int = 7) -> None:
        """The learner is done: the versions of some policies move (those that had samples)."""
        for one in self.learning:
            self.in_weights |= {id(row) for row in one.group.rows}
        self.learning = []
        versions = {
            name: self.scheduler.versions[name] + (moves >> place & 1) for place, name in enumerate(self.policies)
        }
        self.scheduler.updated(versions)
        assert self.scheduler.versions == versions
        self.ticks += 1

    # -- what has to hold ---------------------------------------------------------------------------------------------

    @invariant()
    def bounds_hold(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        scheduler, running = self.scheduler, len(self.running)
        assert scheduler.running == running
        assert self.capacity is None or running <= self.capacity
        if not self.schedule.ticks and self.schedule.max_rows is not None:
            assert running <= self.schedule.max_rows
        most = self.schedule.max_started(self.group_size)
        if most is not None:
            started = [row for row in self.submitted if id(row.group) in self.begun and id(row) not in self.in_weights]
            assert len(started) <= most
        waiting = {id(row) for row in self.submitted if not row.ended} - {id(row) for row in self.running}
        assert scheduler.num_ready + scheduler.num_waiting == len(waiting)
        assert self.scheduler.counts.ended == sum(row.ended for row in self.submitted)

    def _release(self, one: Released) -> None:
        policy, bound = one.group.policy, self.schedule.bound(one.group.policy)
        now = self.scheduler.versions[policy]
        true_staleness = now - min((self.oldest[id(row)] for row in one.rows if not row.failed), default=now)
        for row in one.rows:
            assert row.ended
            assert id(row) not in self.trained | self.dropped
            (self.dropped if one.drop else self.trained).add(id(row))
        if self.schedule.release == "complete":
            assert tuple(one.group.rows) == one.rows
        else:
            assert sum(not row.failed for row in one.rows) > 1 or not one.group.open
        if bound is None or self.schedule.on_stale == "wait":
            assert not one.drop
        if self.schedule.on_stale == "drop":
            assert one.drop is (bound is not None and true_staleness > bound)
        if self.schedule.on_stale == "mask" and bound is not None:
            assert one.staleness == min(bound, true_staleness)
        else:
            assert one.staleness == true_staleness
        if bound is not None and not one.drop:
            assert one.staleness <= bound

    def _submit(self, chain: int, stage: int, number: int) -> None:
        policy = self.policies[stage % len(self.policies)]
        group = Group.of(self.group_size, chain=chain, stage=stage, number=number, policy=policy, role=policy)
        self.submitted += group.rows
        self.scheduler.submit(group)

    def _go_on(self) -> bool:
        """Whatever can go on does, and ends at once; False when nothing could."""
        before = self.moves
        self.admit()
        self.start(None)
        while self.running:
            self.come_back(0, True)
        while self.complete:
            self.score(0, 1)
        if not self.learning:
            self.update()
        if self.learning:
            self.learned()
            self.moves += 1
        return self.moves > before

    def teardown(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        wanted = self.scheduler.counts.updates + 5
        for _ in range(1000):
            assert self._go_on(), blocked(self.scheduler)  # there is always something to do ...
            if self.scheduler.counts.updates >= wanted:  # ... and it comes to updates
                break
        else:
            raise AssertionError(blocked(self.scheduler))
        self.scheduler.stop()
        for _ in range(400):
            if not self._go_on():
                break
        left = [row for row in self.submitted if id(row) not in self.trained | self.dropped]
        assert all(row.ended for row in self.submitted)
        if self.schedule.ticks:
            assert left == []
        else:  # what no longer makes an update
            assert self.schedule.update_rows is not None
            assert len(left) < self.schedule.update_rows
        self.bounds_hold()
        counts = self.scheduler.counts
        assert counts.admitted == self.num_chains
        assert counts.segments == counts.started


_NOBODY = {"chain": -1, "stage": 0, "number": 0, "policy": "a", "role": "a"}

TestEvents = Events.TestCase
TestEvents.settings = settings(
    max_examples=100, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)
