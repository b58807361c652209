"""One scheduler for barrier, agentic pipeline, segments and overlapped runs; it knows rows, groups and versions only.

A *row* is one completion on its way, a *group* the rows of one input. Whoever drives the scheduler (the engine and
learner of a run, or a simulated clock) tells it what happened and asks it what may happen now:

    scheduler.wants_tasks() -> admit that many tasks, `submit` the group of each
    scheduler.start(n)      -> rows for the engine
    scheduler.returned(row, tokens, ended=...)  -> True when its group is complete: score it, `submit` the groups that
                                                   follow from it, then say `scored`
    scheduler.update()      -> what the learner trains now, if anything; then `updated`

No call looks through everything that is in flight: a call costs a few operations on a heap.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from rolecall.pipeline.complete import Complete
from rolecall.pipeline.ready import Ready
from rolecall.pipeline.rows import Counts, Group, Released, Row
from rolecall.pipeline.schedule import Schedule

__all__ = ["Counts", "Group", "Released", "Row", "Scheduler"]


class Scheduler:
    """See the head of this file. `versions` are the learner's, by policy; they move with `updated`."""

    _ANY = 1 << 60

    def __init__(
        self,
        schedule: Schedule,
        *,
        tasks_per_step: int,
        group_size: int,
        versions: Mapping[str, int],
        capacity: int | None = None,
    ) -> None:
        schedule.check_group(group_size)
        self.schedule, self.tasks_per_step, self.group_size = schedule, tasks_per_step, group_size
        self.max_started = schedule.max_started(group_size)
        bounds = [capacity, None if schedule.ticks else schedule.max_rows]
        self._most_running = min((bound for bound in bounds if bound is not None), default=None)
        self.versions = dict(versions)
        self.counts = Counts()
        self.running = 0
        self.scoring = 0
        self.open = True  # whether rows may start: between ticks they may not
        self.learning = False
        self.stopped = False
        self.wanted = tasks_per_step if schedule.ticks else 0
        self.ready = Ready(order=schedule.order)
        self.complete = Complete()
        self._partly: dict[tuple[int, int, int], Group] = {}
        self.started_rows = 0  # started, and not in the weights yet
        self._first_open = 0  # first groups of tasks that are not complete
        self._learning_rows = 0  # of them, with the learner now
        self._tick_rows = 0  # carried into this tick, or admitted in it
        self.open_versions: dict[str, Counter[int]] = {policy: Counter() for policy in versions}

    # -- generation ---------------------------------------------------------------------------------------------------

    @property
    def num_ready(self) -> int:
        return len(self.ready)

    @property
    def num_waiting(self) -> int:
        """Rows that wait for the next tick."""
        return self.ready.num_waiting

    @property
    def num_unfinished(self) -> int:
        """Completions that have tokens and go on in the next tick."""
        return len(self.ready.next_rows)

    @property
    def num_complete(self) -> int:
        """Groups that wait for the learner."""
        return len(self.complete)

    def wants_tasks(self) -> int:
        """How many new tasks to admit now."""
        if self.stopped or not self.open:
            return 0
        if self.schedule.ticks:
            wanted, self.wanted = min(self.wanted, self._fits_in_tick()), 0
            self._tick_rows += wanted * self.group_size
            return wanted
        limit = self.max_started
        assert limit is not None
        fits = (limit - self.started_rows - self.ready.fresh_rows) // self.group_size
        room = self._room()
        lacking = fits if room is None else -(-(room - self.num_ready) // self.group_size)
        return max(0, min(lacking, fits, self.tasks_per_step - self._first_open))

    def submit(self, group: Group) -> None:
        """A group may be generated: a new task's first, or one that follows from a group that was scored."""
        if group.stage == 0:
            self.counts.admitted += 1
            self._first_open += 1
        if self.schedule.mode in ("pipeline", "pipeline_segments") and group.stage > 0:
            self.ready.next_groups.append(group)
        else:
            self.ready.line_up(group)

    def start(self, limit: int | None = None) -> list[Row]:
        """Rows for the engine to go on with, in the order of the schedule; at most `limit`."""
        if not self.open:
            return []
        started: list[Row] = []
        most = self.max_started
        room = self._room()
        limit = room if limit is None else limit if room is None else min(limit, room)
        while limit is None or len(started) < limit:
            if not self.ready.has_begun:
                group = self.ready.fresh
                if group is None or (most is not None and self.started_rows + len(group.rows) > most):
                    break
                self._begin(self.ready.begin())
            row = self.ready.pop()
            if row.version is None:
                row.version = self.versions[row.group.policy]
            started.append(row)
        self.running += len(started)
        self.counts.started += len(started)
        return started

    def returned(self, row: Row, tokens: int, *, ended: bool, failed: bool = False) -> bool:
        """A row came back with `tokens` in all, at its end or at the end of a segment; True: its group is complete."""
        self.running -= 1
        row.tokens, row.segments = tokens, row.segments + 1
        self.counts.segments += 1
        if not ended:
            if self.schedule.mode == "pipeline_segments":
                self.ready.next_rows.append(row)
            else:
                self.ready.push(row)
            return False
        row.ended, row.failed = True, failed
        self.counts.ended += 1
        self.counts.failed += failed
        group = row.group
        group.open -= 1
        if self.schedule.release == "arrived":
            self._partly[group.place] = group
        if group.open:
            return False
        self._first_open -= group.stage == 0
        self.scoring += 1
        return True

    def scored(self, group: Group) -> None:
        """A complete group was scored, and what follows from it was submitted."""
        self.scoring -= 1
        open_versions = self.open_versions[group.policy]
        open_versions[group.oldest] -= 1
        if not open_versions[group.oldest]:
            del open_versions[group.oldest]
        group.scored = True
        if self.schedule.release == "complete":
            self.complete.push(group)

    # -- learning -----------------------------------------------------------------------------------------------------

    @property
    def tick_over(self) -> bool:
        """Whether everything that this tick may generate has come back and is scored."""
        return self.open and not (self.running or self.num_ready or self.scoring or self.wanted)

    def update(self) -> list[Released] | None:
        """What the learner trains now; None when it has to wait. Follow it with `updated`."""
        if self.learning:
            return None
        if not self.schedule.ticks:
            return self._overlapped()
        if not self.tick_over:
            return None
        released = self._released_in_tick()
        if not released and self.num_waiting:  # nothing was completed, so there is nothing to learn
            self._open_tick()
            return None
        self.open, self.learning = False, True
        return self._release(released)

    def updated(self, versions: Mapping[str, int]) -> None:
        """The learner is done: its versions now. In ticks, the next one begins."""
        self.learning = False
        self.started_rows -= self._learning_rows
        self._learning_rows = 0
        self.counts.updates += 1
        self.versions.update(versions)
        if self.schedule.ticks:
            self._open_tick()

    def stop(self) -> None:
        """Admit no more tasks; when all work is done, what is left is trained however little it is."""
        self.stopped = True
        self.wanted = 0

    def ask_again(self, num_tasks: int) -> int:
        """Admit more tasks in this tick, as many as fit (dynamic sampling that refills); returns how many."""
        more = 0 if self.stopped else max(0, min(num_tasks, self._fits_in_tick() - self.wanted))
        self.wanted += more
        return more

    def state(self) -> dict[str, Any]:
        """What is counted, as plain data; groups and rows are saved by whoever made them."""
        return asdict(self.counts)

    def restore(self, counts: Mapping[str, int], groups: Iterable[Group]) -> None:
        """Go on between two updates, with `groups` as they were then: what is not ended goes back in line. Those that
        are complete and not scored have to be scored, and said to be."""
        self.counts = Counts(**counts)
        for group in sorted(groups, key=lambda group: group.place):
            self._first_open += group.stage == 0 and bool(group.open)
            if group.open and not group.started:
                self.ready.line_up(group)
                continue
            untrained = not all(row.trained for row in group.rows)
            arrived = self.schedule.release == "arrived"
            if not any(row.trained for row in group.rows):
                self.started_rows += len(group.rows)
            if arrived and any(row.ended and not row.trained for row in group.rows):
                self._partly[group.place] = group
            if group.open:
                self.open_versions[group.policy][group.oldest] += 1
                for row in group.rows:
                    if not row.ended:
                        self.ready.push(row)
            elif not group.scored:
                self.open_versions[group.policy][group.oldest] += 1
                self.scoring += 1
            elif untrained and not arrived:
                self.complete.push(group)
        self._tick_rows = self.num_ready

    @property
    def stuck(self) -> bool:
        """Whether nothing is under way, so that nothing will ever change."""
        return not (self.running or self.scoring or self.learning)

    def at_bound(self) -> Iterator[tuple[str, int]]:
        """The policies whose oldest group that is still generated is as old as the bound allows, and its version."""
        for policy, open_versions in self.open_versions.items():
            bound = self.schedule.bound(policy)
            if open_versions and bound is not None and self.versions[policy] - min(open_versions) >= bound:
                yield policy, min(open_versions)

    # -- helpers ------------------------------------------------------------------------------------------------------

    def _fits_in_tick(self) -> int:
        """How many more tasks may be admitted in this tick."""
        most = self.schedule.max_rows
        return self._ANY if most is None else max(0, most - self._tick_rows) // self.group_size

    def _room(self) -> int | None:
        """How many more rows may run now; None: any number. The rows of a tick are bounded where tasks are admitted."""
        return None if self._most_running is None else max(0, self._most_running - self.running)

    def _begin(self, group: Group) -> None:
        """The first row of a group is about to start: it counts as under way until it is trained."""
        group.started = True
        group.oldest = self.versions[group.policy]
        self.started_rows += len(group.rows)
        self.open_versions[group.policy][group.oldest] += 1

    def _open_tick(self) -> None:
        self.open = True
        self.ready.open_tick()
        self.wanted = 0 if self.stopped else self.tasks_per_step
        self._tick_rows = self.num_ready

    def _released_in_tick(self) -> list[tuple[Group, tuple[Row, ...]]]:
        if self.schedule.release == "arrived":
            return self._arrived()
        return [(group, tuple(group.rows)) for group in self.complete.take_all()]

    def _arrived(self) -> list[tuple[Group, tuple[Row, ...]]]:
        """Members that have ended and are not trained, where there are two to compare, or no more will come."""
        found = []
        for place in sorted(self._partly):
            group = self._partly[place]
            rows = tuple(row for row in group.rows if row.ended and not row.trained)
            if sum(not row.failed for row in rows) >= 2 or not group.open:
                found.append((group, rows))
                del self._partly[place]
        return [(group, rows) for group, rows in found if rows]

    def _overlapped(self) -> list[Released] | None:
        wanted = self.schedule.update_rows
        assert wanted is not None
        if self.complete.rows < wanted and not self._drained:
            return None
        if not self.complete.rows or self._waits_for_old():
            return None
        taken: list[tuple[Group, tuple[Row, ...]]] = []
        size = 0
        while (group := self.complete.first(self._slack)) is not None and (size < wanted or self._has_to_go(group)):
            self.complete.pop(group.policy)
            taken.append((group, tuple(group.rows)))
            size += len(group.rows)
        self.learning = True
        return self._release(taken)

    @property
    def _drained(self) -> bool:
        """Whether nothing more will be complete, for no tasks are admitted any more."""
        return self.stopped and not (self.running or self.num_ready or self.scoring)

    def _slack(self, group: Group) -> float:
        """How many more versions a group may wait for the learner."""
        bound = self.schedule.bound(group.policy)
        return math.inf if bound is None else bound - (self.versions[group.policy] - group.oldest)

    def _has_to_go(self, group: Group) -> bool:
        """Whether a complete group would pass the bound if it were left for the update after this one."""
        return self.schedule.on_stale == "wait" and self._slack(group) <= 0

    def _waits_for_old(self) -> bool:
        """Whether a group that is still generated would pass the bound if the learner moved on without it."""
        return self.schedule.on_stale == "wait" and any(self.at_bound())

    def _release(self, taken: Iterable[tuple[Group, tuple[Row, ...]]]) -> list[Released]:
        released = []
        for group, rows in taken:
            versions = [row.version for row in rows if row.version is not None and not row.failed]
            now = self.versions[group.policy]
            staleness = now - min(versions, default=now)
            bound = self.schedule.bound(group.policy)
            # under "wait" as well: a roll-back publishes twice in a step, which no waiting can foresee
            drop = bound is not None and staleness > bound and self.schedule.on_stale != "mask"
            if bound is not None and self.schedule.on_stale == "mask":
                staleness = min(staleness, bound)  # what is older is not trained
            if not any(row.trained for row in group.rows):
                self._learning_rows += len(group.rows)
            for row in rows:
                row.trained = True
            self.counts.released += not drop
            self.counts.dropped += drop
            self.counts.max_staleness = max(self.counts.max_staleness, 0 if drop else staleness)
            released.append(Released(group=group, rows=rows, staleness=staleness, drop=drop))
        return released
