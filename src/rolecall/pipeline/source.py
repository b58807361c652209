"""The episodes of a run under agentic groups: the scheduler with a real engine, real graders and a real workflow.

In ticks `collect` lets a tick run to its end and returns what it completed; what it left unfinished goes on in the next
one. Overlapped, completions are generated for as long as the event loop runs: while `collect` waits for enough of them,
and `beside` the learner. When deterministic, all rows that may start go to the engine as one list, and the next list
follows when it is back.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from rolecall.engines.base import Engine
from rolecall.errors import CallTimeout, EngineError, RolecallError, boundary
from rolecall.grading.episodes import grade_episodes_async
from rolecall.grading.pool import GraderPool
from rolecall.pipeline.candidates import GroupWork, Play, ends_too_long, stand_after
from rolecall.pipeline.forest import Forest
from rolecall.pipeline.schedule import Schedule
from rolecall.pipeline.scheduler import Group, Released, Row, Scheduler
from rolecall.pipeline.step_figures import Clock, Tick, hand_over
from rolecall.pipeline.stuck import explain_stuck
from rolecall.records import Completion, OutcomeClass, Stop
from rolecall.rollout.agentic import AgenticGroups
from rolecall.rollout.collector import rare_garbage_collection
from rolecall.rollout.loop import LoopRunner
from rolecall.rollout.steps import StepEpisodes
from rolecall.tasks.stream import TaskStream

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceSettings:
    """`max_retries`: how often a row that the engine failed on is asked for again. `back_up`: a candidate's team
    outcome is the mean over the leaves below it, for rewards that broadcast (barrier only). `drop_failed`: a turn after
    which the workflow failed is not trained. `refill`: dynamic sampling admits a further task for each first group that
    is complete without a spread, in a step at most (`max_oversampling` - 1) times `tasks_per_step`."""

    run_seed: int
    deterministic: bool
    tasks_per_step: int
    max_concurrent: int = 1024
    max_retries: int = 1
    back_up: bool = False
    drop_failed: bool = False
    refill: bool = False
    max_oversampling: float = 2.0
    watchdog_s: float | None = 60.0


class PipelineSource:
    """See `sources.EpisodeSource`, and the head of this file."""

    def __init__(
        self,
        play: Play,
        engine: Engine,
        graders: GraderPool,
        stream: TaskStream,
        sampler: AgenticGroups,
        schedule: Schedule,
        settings: SourceSettings,
        versions: Mapping[str, int],
    ) -> None:
        assert schedule.ticks or not settings.deterministic
        assert schedule.mode == "barrier" or not settings.back_up
        self.play, self.engine, self.graders = play, engine, graders
        self.schedule, self.settings = schedule, settings
        self.scheduler = Scheduler(
            schedule,
            tasks_per_step=settings.tasks_per_step,
            group_size=sampler.n,
            versions=versions,
            capacity=None if settings.deterministic else settings.max_concurrent,
        )
        self.runner = LoopRunner(watchdog_s=settings.watchdog_s)
        self.forest = Forest(
            play, stream, sampler, self.scheduler, run_seed=settings.run_seed, back_up=settings.back_up
        )
        self.tick, self.clock = Tick(), Clock()
        self.active: set[asyncio.Task[None]] = set()
        self._ended: list[asyncio.Task[None]] = []
        self._woken = asyncio.Event()

    # -- what the loop calls ------------------------------------------------------------------------------------------

    def collect(self, step: int) -> StepEpisodes:
        """Generate until the learner has something to train, and return it, graded."""
        self.forest.begin_step(step)
        begun, grading_s = time.monotonic(), self.clock.grading_s
        self.clock.begin()  # before the loop runs: what ended while it stood still comes first there
        with rare_garbage_collection():
            released = self.runner.run(self._until_update())
        seconds, grading_s = time.monotonic() - begun, self.clock.grading_s - grading_s
        found = hand_over(
            released,
            self.tick,
            self.scheduler,
            chains=len(self.forest.chains),
            stages=self.forest.sampler.stages,
            back_up=self.settings.back_up,
            drop_failed=self.settings.drop_failed,
        )
        for one in released:
            self.forest.forget(one.group)
        generating_s, self.clock.generating_s, self.tick = self.clock.generating_s, 0.0, Tick()
        times = {"generate": seconds - grading_s, "grade": grading_s}
        return replace(found, times=times, generating_s=generating_s)

    def beside(self, work: Callable[[], T]) -> T:
        """Do `work` in a thread while completions are generated, when overlapped; else just do it."""
        if self.schedule.ticks:
            return work()
        self.clock.begin()
        return self.runner.run(self._beside(work))

    def updated(self, versions: Mapping[str, int]) -> None:
        self.scheduler.updated(versions)

    def close(self) -> None:
        """End what is under way; a second time does nothing."""
        active, self.active = self.active, set()
        for task in active:
            task.cancel()
        self.runner.close()
        for task in self._ended:
            if not task.cancelled():
                task.exception()  # seen here: the run ends for the first of them

    # -- generation ---------------------------------------------------------------------------------------------------

    async def _until_update(self) -> list[Released]:
        """Let the scheduler's rows run until there is an update to make."""
        while True:
            await self._go_on()
            if (released := self._update()) is not None:
                await self._grade([(one.group.data, row.number) for one in released for row in one.rows])
                return released
            self._see_ended()
            if not self.active and not await self._go_on():  # the update may have opened the next tick
                raise explain_stuck(self.scheduler)
            await self._some_end()

    def _update(self) -> list[Released] | None:
        """What is to be trained now; under `refill` a tick whose first groups lack spread admits more tasks."""
        if self.settings.refill and self.scheduler.tick_over:
            most = int(self.settings.max_oversampling * self.settings.tasks_per_step) - self.settings.tasks_per_step
            most -= self.tick.refilled
            more = self.scheduler.ask_again(min(self.tick.flat - self.tick.refilled, most))
            if more:
                self.tick.refilled += more
                return None
        return self.scheduler.update()

    async def _beside(self, work: Callable[[], T]) -> T:
        future = asyncio.ensure_future(asyncio.to_thread(work))
        future.add_done_callback(lambda _: self._woken.set())
        while not future.done():
            await self._go_on()
            await self._some_end(future)
        self.clock.mark(self.scheduler.running)
        return await future

    async def _go_on(self) -> bool:
        """Admit the tasks and start the rows that may start now; False when there were none."""
        admitted = self.scheduler.wants_tasks()
        if admitted:
            await self.forest.admit(admitted, self.tick)
        if self.settings.deterministic and self.active:
            return bool(admitted)
        self.clock.mark(self.scheduler.running)
        rows = self.scheduler.start()
        for part in [rows] if self.settings.deterministic else [[row] for row in rows]:
            if part:
                self._detach(self._run(part))
        return bool(admitted or rows)

    def _detach(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.runner.loop.detached(work)
        self.active.add(task)
        task.add_done_callback(self._note_end)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        self.active.discard(task)
        self._ended.append(task)
        self._woken.set()

    async def _some_end(self, also: asyncio.Future[Any] | None = None) -> None:
        """Wait until something that runs has ended, if anything does."""
        while not self._ended and (self.active if also is None else not also.done()):
            self._woken.clear()
            await self._woken.wait()
        self._see_ended()

    def _see_ended(self) -> None:
        """What one of them raised ends the run."""
        while self._ended:
            self._ended.pop(0).result()

    # -- what comes back ----------------------------------------------------------------------------------------------

    async def _run(self, rows: Sequence[Row]) -> None:
        """Have the engine go on with rows, and take in what comes back."""
        requests = [row.group.data.request(row.number, self._segment(row)) for row in rows]
        deadline_s = None if self.settings.deterministic else self.play.roles[rows[0].group.role].deadline_s
        try:
            async with asyncio.timeout(deadline_s):
                with boundary(EngineError, "the engine"):
                    replies: Sequence[Completion | RolecallError] = await self.engine.generate(requests)
        except TimeoutError:
            replies = [CallTimeout(f"{rows[0].group.data.key} had no reply within {deadline_s:g} s")]
        if len(replies) != len(rows):
            raise EngineError(f"the engine answered {len(rows)} requests with {len(replies)} replies")
        self.clock.mark(self.scheduler.running)
        complete = [row.group for row, reply in zip(rows, replies, strict=True) if self._returned(row, reply)]
        if complete:
            await self._close(complete)

    def _segment(self, row: Row) -> int | None:
        """Most tokens that a row gets before it goes back in line; None: no bound but its own."""
        return None if row.group.policy in self.play.whole else self.schedule.segment_tokens

    def _returned(self, row: Row, reply: Completion | RolecallError) -> bool:
        """Take in one reply; True when it completes its group."""
        work: GroupWork = row.group.data
        if isinstance(reply, RolecallError) or reply.stop is Stop.ABORT:
            error = reply if isinstance(reply, RolecallError) else EngineError("the completion was aborted")
            work.attempts[row.number] += 1
            if work.attempts[row.number] <= self.settings.max_retries and not isinstance(error, CallTimeout):
                self.tick.retried += 1
                return self.scheduler.returned(row, row.tokens, ended=False)
            work.errors[row.number] = error
            late = isinstance(error, CallTimeout)
            self.tick.failed[str(OutcomeClass.TIMEOUT if late else OutcomeClass.ERROR)] += 1
            return self.scheduler.returned(row, row.tokens, ended=True, failed=True)
        ended = work.take(row.number, reply, self._segment(row))
        if reply.versions:
            row.version = reply.version
        self.tick.tokens += reply.num_tokens - row.tokens
        if ended:
            self.tick.ended[row.group.role, work.key.call] += 1
        return self.scheduler.returned(row, reply.num_tokens, ended=ended)

    async def _close(self, groups: Sequence[Group]) -> None:
        """Grade the candidates of complete groups, and go on with those that are picked."""
        await self._grade([(group.data, row.number) for group in groups for row in group.rows])
        for group in sorted(groups, key=lambda group: group.place):
            self.forest.follow(group, self.tick)
            self.scheduler.scored(group)

    async def _grade(self, places: Iterable[tuple[GroupWork, int]]) -> None:
        """See where the workflow stands after completions that have ended, and grade those that have no grade yet."""
        ungraded = [(work, number) for work, number in places if work.has_to_be_graded(number)]
        if not ungraded:
            return
        await stand_after(ungraded, self.play)
        self.tick.overlong += sum(ends_too_long(work.stands[number]) for work, number in ungraded)
        self.clock.mark(self.scheduler.running)
        self.clock.gradings += 1
        graded = await grade_episodes_async([work.episode(number) for work, number in ungraded], self.graders)
        self.clock.mark(self.scheduler.running)
        self.clock.gradings -= 1
        for (work, number), one in zip(ungraded, graded, strict=True):
            work.graded[number] = one

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """What is under way between two steps, as plain data."""
        return {"counts": self.scheduler.state(), "tick": self.tick.to_dict(), "forest": self.forest.state()}

    def restore(self, state: Mapping[str, Any], versions: Mapping[str, int]) -> None:
        self.scheduler.versions.update(versions)
        self.tick = Tick.from_dict(state["tick"])
        self.runner.run(self.forest.restore(state["forest"]))
        groups = list(self.forest.groups.values())
        self.scheduler.restore(state["counts"], groups)
        for group in groups:
            if not group.open and not group.scored:  # it was being graded
                self._detach(self._close([group]))
