"""A run under one schedule on the simulated clock: the scheduler and the chains of a real run, with costs for parts.

Events are ends of completions, of grading and of updates. After the events of an instant, tasks are admitted, rows
started and updates begun until nothing more may; an event costs a few operations on heaps, whatever is in flight.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rolecall.pipeline.chains import Chain, PickCounts
from rolecall.pipeline.schedule import Schedule
from rolecall.pipeline.scheduler import Group, Row, Scheduler
from rolecall.pipeline.stuck import explain_stuck
from rolecall.simulation.costs import Costs
from rolecall.simulation.engine import EngineWatcher, Fleet, SimulatedEngine
from rolecall.simulation.learner import Update, make_update
from rolecall.simulation.watch import Watch
from rolecall.simulation.workload import Drawn, Onward, Workload


@dataclass(slots=True)
class Moment:
    """What stood at the end of an update. `engines_s` and `learners_s`: the time that the work done until then takes
    all engines, all learners, at their best rate. `ended`: completions since the last update, by role and call."""

    begin_s: float
    learned_s: float
    end_s: float
    version: int
    num_rows: int
    tokens: int
    engines_s: float
    learners_s: float
    decoded: float
    admitted: int
    chains_ended: int
    trained: dict[tuple[str, int], int]


class Recorder(EngineWatcher):
    """Is told what happens, for a picture; this one keeps nothing."""

    def update(self, begin_s: float, learned_s: float, end_s: float) -> None:
        """The learners worked from `begin_s` to `learned_s`, and published until `end_s`."""


@dataclass(slots=True)
class Ages:
    """Staleness of trained completions, by their own oldest token."""

    total: int = 0
    rows: int = 0
    highest: int = 0

    def add(self, age: int) -> None:
        self.total += age
        self.rows += 1
        self.highest = max(self.highest, age)


@dataclass(slots=True)
class Grading:
    """Graders and the groups that wait for one."""

    free: int
    seconds: float
    queue: deque[Group] = field(default_factory=deque)
    busy_s: float = 0.0


MakeScheduler = Callable[..., Scheduler]


class Simulation:
    """`run` does all of the work of `num_tasks` tasks; what happened then stands in the fields."""

    def __init__(
        self,
        workload: Workload,
        costs: Costs,
        schedule: Schedule,
        *,
        tasks_per_step: int,
        num_tasks: int,
        recorder: Recorder | None = None,
        make_scheduler: MakeScheduler = Scheduler,
    ) -> None:
        self.workload, self.costs, self.schedule = workload, costs, schedule
        self.num_tasks, self.recorder = num_tasks, recorder
        self.scheduler = make_scheduler(
            schedule,
            tasks_per_step=tasks_per_step,
            group_size=workload.sampler.n,
            versions=dict.fromkeys(workload.policies, 0),
            capacity=costs.engines.count * costs.engines.slots,
        )
        seconds = costs.engines.seconds()
        engines = [
            SimulatedEngine(number, seconds, costs.engines.prompt_token_s, recorder)
            for number in range(costs.engines.count)
        ]
        self.fleet = Fleet(engines, costs.engines.slots)
        self.grading = Grading(costs.graders.count, costs.graders.completion_s * workload.sampler.n)
        self.watch = Watch(self.scheduler, self.fleet, tasks_per_step, workload.sampler.n)
        self.chains: dict[int, Chain] = {}
        self.picks = PickCounts()
        self.learning: Update | None = None
        self.moments: list[Moment] = []
        self.ages = Ages()
        self.now = 0.0
        self.admitted = self.chains_ended = self.events_seen = 0
        self.completions: Counter[tuple[str, int]] = Counter()
        self.tokens: Counter[tuple[str, int]] = Counter()
        self.trained_rows = self.dropped_rows = 0
        self.learner_best_s = self.learn_s = self.publish_s = 0.0
        self._trained: Counter[tuple[str, int]] = Counter()
        self._begun_s = 0.0
        self._events: list[tuple[float, int, Callable[[Any], None], Any]] = []
        self._touched: dict[int, SimulatedEngine] = {}
        self._sequence = 0

    # -- the clock ----------------------------------------------------------------------------------------------------

    def run(self, max_updates: int | None = None) -> None:
        """Do all of the work, or as much as `max_updates` updates take. `SchedulerStuck` when nothing can go on before
        it is done."""
        self._go_on()
        while self._events and (max_updates is None or len(self.moments) < max_updates):
            self.now = self._events[0][0]
            while self._events and self._events[0][0] <= self.now:
                _, _, what, about = heapq.heappop(self._events)
                self.events_seen += 1
                what(about)
            self._go_on()
        for engine in self.fleet.engines:
            engine.advance(self.now)
        if self._events:
            return
        if not self.done:
            raise explain_stuck(self.scheduler)

    @property
    def done(self) -> bool:
        """Whether every task is through, and what it gave is trained."""
        trained = self.trained_rows + self.dropped_rows
        return self.admitted == self.num_tasks and not self.chains and trained == self.scheduler.counts.ended

    def _at(self, time: float, what: Callable[[Any], None], about: Any) -> None:
        self._sequence += 1
        heapq.heappush(self._events, (time, self._sequence, what, about))

    def _go_on(self) -> None:
        """Let everything begin that may begin now."""
        if not self.done:
            going_on = True
            while going_on:
                self._admit()
                self._start()
                going_on = self._learn()
        for engine in self._touched.values():
            engine.epoch += 1
            if engine.active:
                self._at(engine.next_end(), self._rows_end, (engine, engine.epoch))
        self._touched.clear()
        graders_idle = bool(self.grading.free and self.grading.queue)
        self.watch.check(left=self.num_tasks - self.admitted, graders_idle=graders_idle, done=self.done)

    # -- generation ---------------------------------------------------------------------------------------------------

    def _admit(self) -> None:
        wanted = min(self.scheduler.wants_tasks(), self.num_tasks - self.admitted)
        for task in range(self.admitted, self.admitted + wanted):
            self.chains[task] = self.workload.chain(task)
            self._submit(task, 0, 0, self.workload.first(task))
        self.admitted += wanted
        if self.admitted == self.num_tasks and not self.scheduler.stopped:
            self.scheduler.stop()
        self.watch.admitted(wanted)

    def _submit(self, task: int, stage: int, number: int, stand: Onward) -> None:
        self.scheduler.submit(self.workload.group(task, stage, number, self.workload.draw(stage, stand)))

    def _start(self) -> None:
        for row in self.scheduler.start():
            group = row.group
            drawn: Drawn = group.data
            left = drawn.lengths[row.number] - row.tokens
            if self.schedule.segment_tokens is not None:
                left = min(left, self.schedule.segment_tokens)
            engine = self.fleet.take()
            engine.add(self.now, row, left, self.workload.calls[group.stage].prompt_tokens)
            self._touched[engine.number] = engine
            self.watch.started(row)

    def _rows_end(self, about: tuple[SimulatedEngine, int]) -> None:
        """Rows of an engine are at their end, or at the end of a segment; void when its rows changed since."""
        engine, epoch = about
        if engine.epoch != epoch:
            self.events_seen -= 1
            return
        rows = engine.take_ended(self.now)
        self.fleet.give_back(engine, len(rows))
        self._touched[engine.number] = engine
        for row in rows:
            self._returned(row)

    def _returned(self, row: Row) -> None:
        group, drawn = row.group, row.group.data
        length = drawn.lengths[row.number]
        tokens = length
        if self.schedule.segment_tokens is not None:
            tokens = min(length, row.tokens + self.schedule.segment_tokens)
        call = self.workload.calls[group.stage]
        place = (call.role, call.call)
        self.tokens[place] += tokens - row.tokens
        if tokens == length:
            self.completions[place] += 1
        if self.scheduler.returned(row, tokens, ended=tokens == length):
            self.watch.complete(group)
            self.grading.queue.append(group)
            self._grade()

    def _grade(self) -> None:
        """Hand waiting groups to free graders."""
        while self.grading.free and self.grading.queue:
            group = self.grading.queue.popleft()
            self.grading.free -= 1
            self._at(self.now + self.grading.seconds, self._graded, group)

    def _graded(self, group: Group) -> None:
        """A group is scored: the chain picks, and what follows is lined up."""
        self.grading.free += 1
        self.grading.busy_s += self.grading.seconds
        chain = self.chains[group.chain]
        candidates = self.workload.candidates(group.stage, group.number, group.data)
        for successor in chain.complete(group.stage, candidates, self.picks):
            self._submit(group.chain, successor.stage, successor.number, successor.candidate.onward)
        if chain.ended:
            self.chains_ended += 1
            del self.chains[group.chain]
        self.scheduler.scored(group)
        self.watch.scored(group)
        self._grade()

    # -- learning -----------------------------------------------------------------------------------------------------

    def _learn(self) -> bool:
        """Begin an update, where there is one to make; True also where the scheduler went on without one."""
        if self.learning is not None or self.done:
            return False
        ready = self.scheduler.num_ready
        released = self.scheduler.update()
        if released is None:
            return self.scheduler.num_ready > ready
        for one in released:
            call = self.workload.calls[one.group.stage]
            now = self.scheduler.versions[one.group.policy]
            if one.drop:
                self.dropped_rows += len(one.rows)
                continue
            self.trained_rows += len(one.rows)
            self._trained[call.role, call.call] += len(one.rows)
            for row in one.rows:
                self.ages.add(now - (row.version if row.version is not None else now))
        self.watch.released(released)
        update = make_update(released, self.workload, self.costs.learners)
        self.learning, self._begun_s = update, self.now
        self._at(self.now + update.learn_s + update.publish_s, self._updated, update)
        return True

    def _updated(self, update: Update) -> None:
        """An update is learned and published: engines load it, and the scheduler goes on."""
        now, self.learning = self.now, None
        self.learn_s += update.learn_s
        self.publish_s += update.publish_s
        self.learner_best_s += update.best_s
        if self.recorder is not None:
            self.recorder.update(self._begun_s, self._begun_s + update.learn_s, now)
        versions = {policy: self.scheduler.versions[policy] + 1 for policy in update.policies}
        if versions:
            costs = self.costs.engines
            for engine in self.fleet.engines:
                engine.load(now, costs.load_s, recompute=costs.recompute)
                self._touched[engine.number] = engine
        self.scheduler.updated(versions)
        self.watch.updated()
        self._note(update)

    def _note(self, update: Update) -> None:
        engines = self.fleet.engines
        for engine in engines:
            engine.advance(self.now)
        decoded = sum(engine.decoded for engine in engines)
        engines_s = decoded * self.costs.engines.best_token_s + sum(engine.prompt_s for engine in engines)
        self.moments.append(
            Moment(
                begin_s=self._begun_s,
                learned_s=self._begun_s + update.learn_s,
                end_s=self.now,
                version=max(self.scheduler.versions.values()),
                num_rows=update.num_rows,
                tokens=update.tokens,
                engines_s=engines_s / len(engines),
                learners_s=self.learner_best_s,
                decoded=decoded,
                admitted=self.admitted,
                chains_ended=self.chains_ended,
                trained=dict(self._trained),
            )
        )
        self._trained.clear()
