"""The episodes of a run under agentic groups: the scheduler with a real engine, real graders and a real workflow.

In ticks `collect` lets a tick run to its end and returns what it completed; what it left unfinished goes on in the next
one. Overlapped, completions are generated for as long as the event loop runs: while `collect` waits for enough of them,
and `beside` the learner. When deterministic, all rows that may start go to the engine as one list, and the next list
follows when it is back.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, TypeVar

from rolecall.engines.base import Engine
from rolecall.errors import CallTimeout, EngineError, RolecallError, boundary
from rolecall.grading.episodes import grade_episodes_async
from rolecall.grading.pool import GraderPool
from rolecall.pipeline.candidates import GroupWork, Play, stand_after
from rolecall.pipeline.chains import Candidate, Chain, PickCounts
from rolecall.pipeline.schedule import Schedule
from rolecall.pipeline.scheduler import Group, Released, Row, Scheduler, explain_stuck
from rolecall.records import Completion, Grade, GradedEpisode, GradeStatus, Stop
from rolecall.rewards.agent_specific import AgentSpecific
from rolecall.rollout.agentic import AgenticGroups
from rolecall.rollout.loop import LoopRunner
from rolecall.rollout.runner import Frontier
from rolecall.rollout.steps import StepEpisodes
from rolecall.rollout.transcript import Finished, Transcript
from rolecall.tasks.stream import TaskStream

T = TypeVar("T")
SCORE = AgentSpecific()
"""What candidates are picked by: what each claims itself, whatever the reward is that they are trained on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceSettings:
    """`max_retries`: how often a row that the engine failed on is asked for again. `back_up`: a candidate's team
    outcome is the mean over the leaves below it, for rewards that broadcast (barrier only). `refill`: dynamic sampling
    admits further tasks in a tick until `tasks_per_step` first groups have a spread, at most `max_oversampling` times
    as many tasks."""

    run_seed: int
    deterministic: bool
    tasks_per_step: int
    max_concurrent: int = 1024
    max_retries: int = 1
    back_up: bool = False
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
        self.play, self.engine, self.graders, self.stream = play, engine, graders, stream
        self.sampler, self.schedule, self.settings = sampler, schedule, settings
        self.scheduler = Scheduler(
            schedule,
            tasks_per_step=settings.tasks_per_step,
            group_size=sampler.n,
            versions=versions,
            capacity=None if settings.deterministic else settings.max_concurrent,
        )
        self.runner = LoopRunner(watchdog_s=settings.watchdog_s)
        self.chains: dict[int, Chain] = {}
        self.groups: dict[tuple[int, int, int], Group] = {}
        self.parents: dict[tuple[int, int, int], tuple[GroupWork, int]] = {}
        self.children: dict[int, Group] = {}
        self.num_chains = 0
        self.step = 0
        self.active: set[asyncio.Task[None]] = set()
        self._fresh_tick()

    # -- what the loop calls ------------------------------------------------------------------------------------------

    def collect(self, step: int) -> StepEpisodes:
        """Generate until the learner has something to train, and return it, graded."""
        self.step = step
        self._fresh_tick()
        begun = time.monotonic()
        released = self.runner.run(self._until_update())
        return self._episodes(released, time.monotonic() - begun)

    def beside(self, work: Callable[[], T]) -> T:
        """Do `work` in a thread while completions are generated, when overlapped; else just do it."""
        if self.schedule.ticks:
            return work()
        return self.runner.run(self._beside(work))

    def updated(self, versions: Mapping[str, int]) -> None:
        self.scheduler.updated(versions)

    def close(self) -> None:
        for task in self.active:
            task.cancel()
        self.runner.close()

    # -- generation ---------------------------------------------------------------------------------------------------

    async def _until_update(self) -> list[Released]:
        """Let the scheduler's rows run until there is an update to make."""
        while True:
            await self._go_on()
            if (released := self._update()) is not None:
                return released
            if not self.active and not await self._go_on():  # the update may have opened the next tick
                raise explain_stuck(self.scheduler)
            if self.active:
                await self._some_end()

    def _update(self) -> list[Released] | None:
        """What is to be trained now; under `refill` a tick whose first groups lack spread admits more tasks."""
        if self.settings.refill and self.scheduler.tick_over:
            lacking = self.settings.tasks_per_step - self.tick.spread
            most = int(self.settings.max_oversampling * self.settings.tasks_per_step) - self.tick.admitted
            if (more := min(lacking, most)) > 0:
                self.scheduler.ask_again(more)
                return None
        return self.scheduler.update()

    async def _beside(self, work: Callable[[], T]) -> T:
        future = asyncio.ensure_future(asyncio.to_thread(work))
        while not future.done():
            await self._go_on()
            await self._some_end(future)
        return await future

    async def _go_on(self) -> bool:
        """Admit the tasks and start the rows that may start now; False when there were none."""
        admitted = self.scheduler.wants_tasks()
        if admitted:
            await self._admit(admitted)
        if self.settings.deterministic and self.active:
            return bool(admitted)
        rows = self.scheduler.start()
        if not rows:
            return bool(admitted)
        loop = self.runner.loop
        for part in [rows] if self.settings.deterministic else [[row] for row in rows]:
            self.active.add(loop.detached(self._run(part)))
        return True

    async def _some_end(self, *also: asyncio.Future[Any]) -> None:
        done, _ = await asyncio.wait({*self.active, *also}, return_when=asyncio.FIRST_COMPLETED)
        for task in done & self.active:
            self.active.discard(task)
            task.result()

    async def _admit(self, num_tasks: int) -> None:
        """Begin a chain for each of the next tasks: its workflow runs up to its first call."""
        starts = []
        while num_tasks > 0:
            tasks = self.stream.take(min(num_tasks, self.stream.size))
            num_tasks -= len(tasks)
            for task in tasks:
                index, seed = self.tick.tasks[task.id], self.settings.run_seed
                self.tick.tasks[task.id] += 1
                starts.append(Transcript(task=task, index=index, step=self.step, run_seed=seed))
        stands = await asyncio.gather(*[self.play.stand(start) for start in starts])
        for start, stand in zip(starts, stands, strict=True):
            self.tick.admitted += 1
            if not isinstance(stand, Frontier):
                self.tick.chains_ended["no_call"] += 1
                self.tick.outcomes[str(stand.episode.outcome_class)] += 1
                continue
            number, self.num_chains = self.num_chains, self.num_chains + 1
            self.chains[number] = Chain(self.sampler, self.settings.run_seed, start.step, start.task.id, start.index)
            self._submit(stand, chain=number, stage=0, number=0)

    def _submit(self, frontier: Frontier, *, chain: int, stage: int, number: int) -> Group:
        role = frontier.keys[0].role
        group = Group.of(
            self.sampler.n,
            chain=chain,
            stage=stage,
            number=number,
            policy=self.play.roles[role].policy,
            role=role,
            data=GroupWork.at(frontier, self.sampler.n),
        )
        self.groups[group.place] = group
        self.scheduler.submit(group)
        return group

    async def _run(self, rows: Sequence[Row]) -> None:
        """Have the engine go on with rows, and take in what comes back."""
        requests = [row.group.data.request(row.number, self.schedule.segment_tokens) for row in rows]
        deadline_s = self.play.roles[rows[0].group.role].deadline_s
        try:
            with boundary(EngineError, "the engine"):
                async with asyncio.timeout(None if self.settings.deterministic else deadline_s):
                    replies: Sequence[Completion | RolecallError] = await self.engine.generate(requests)
        except TimeoutError:
            replies = [CallTimeout(f"{rows[0].group.data.key} had no reply within {deadline_s:g} s")]
        if len(replies) != len(rows):
            raise EngineError(f"the engine answered {len(rows)} requests with {len(replies)} replies")
        complete = [row.group for row, reply in zip(rows, replies, strict=True) if self._returned(row, reply)]
        if complete:
            await self._close(complete)

    def _returned(self, row: Row, reply: Completion | RolecallError) -> bool:
        """Take in one reply; True when it completes its group."""
        work: GroupWork = row.group.data
        before = row.tokens
        if isinstance(reply, RolecallError) or reply.stop is Stop.ABORT:
            error = reply if isinstance(reply, RolecallError) else EngineError("the completion was aborted")
            work.attempts[row.number] += 1
            if work.attempts[row.number] <= self.settings.max_retries and not isinstance(error, CallTimeout):
                self.tick.retried += 1
                return self.scheduler.returned(row, before, ended=False)
            work.errors[row.number] = error
            self.tick.failed += 1
            return self.scheduler.returned(row, before, ended=True, failed=True)
        ended = work.take(row.number, reply, self.schedule.segment_tokens)
        if reply.versions:
            row.version = reply.version
        self.tick.tokens += len(reply.token_ids) - before
        if ended:
            self.tick.ended[row.group.role, work.key.call] += 1
        return self.scheduler.returned(row, len(reply.token_ids), ended=ended)

    async def _close(self, groups: Sequence[Group]) -> None:
        """Grade the candidates of complete groups, and go on with those that are picked."""
        works: list[GroupWork] = [group.data for group in groups]
        await stand_after(works, self.play)
        episodes = [
            (work, number, work.episode(number, stand))
            for work in works
            for number, stand in enumerate(work.stands)
            if stand is not None
        ]
        begun = time.monotonic()
        graded = await grade_episodes_async([episode for _, _, episode in episodes], self.graders)
        self.tick.grade_s += time.monotonic() - begun
        for (work, number, _), one in zip(episodes, graded, strict=True):
            work.graded[number] = one
        for group in sorted(groups, key=lambda group: group.place):
            self._follow(group)
            self.scheduler.scored(group)

    def _follow(self, group: Group) -> None:
        """Put the candidates of a group into its chain's pool, and submit the groups that follow."""
        work: GroupWork = group.data
        candidates = [
            candidate_of(group.number, number, one, stand)
            for number, (one, stand) in enumerate(zip(work.graded, work.stands, strict=True))
            if one is not None and stand is not None
        ]
        if group.stage == 0:
            self.tick.spread += len({one.score for one in candidates}) > 1
        chain = self.chains[group.chain]
        successors = chain.complete(group.stage, candidates, self.tick.picks)
        if group.stage not in chain.pools:
            self._pooled(group)
        for successor in successors:
            stand = successor.candidate.onward
            following = self._submit(stand, chain=group.chain, stage=successor.stage, number=successor.number)
            if self.settings.back_up:
                parent = self.groups.get((group.chain, group.stage, successor.candidate.place[0]))
                assert parent is not None
                parent.data.children[successor.candidate.place[1]] = following
        if chain.ended:
            self.tick.chains_ended[chain.why_ended or "stages"] += 1
            del self.chains[group.chain]

    def _pooled(self, group: Group) -> None:
        """The pool of a stage is closed: its groups are kept only until they are trained."""
        siblings = (
            [group]
            if self.sampler.pool == "parent"
            else [self.groups[place] for place in self._stage_places(group) if place in self.groups]
        )
        for sibling in siblings:
            sibling.data.pooled = True
            self._forget(sibling)

    def _stage_places(self, group: Group) -> list[tuple[int, int, int]]:
        return [(group.chain, group.stage, number) for number in range(self.chains[group.chain].numbers[group.stage])]

    def _forget(self, group: Group) -> None:
        if group.data.pooled and all(row.trained for row in group.rows):
            self.groups.pop(group.place, None)

    # -- what a step is given -----------------------------------------------------------------------------------------

    def _fresh_tick(self) -> None:
        self.tick = Tick(picks=PickCounts())

    def _episodes(self, released: Sequence[Released], seconds: float) -> StepEpisodes:
        graded: list[GradedEpisode] = []
        untrained: set[str] = set()
        transcripts: dict[str, Transcript] = {}
        for one in released:
            work: GroupWork = one.group.data
            for row in one.rows:
                episode = work.graded[row.number]
                if episode is None:
                    continue
                if self.settings.back_up:
                    episode = backed_up(work, row.number)
                graded.append(episode)
                transcripts[episode.episode.id] = work.transcript(row.number)
                if one.drop:
                    untrained.add(episode.episode.id)
        for one in released:
            self._forget(one.group)
        outcomes = Counter(str(one.episode.outcome_class) for one in graded) + self.tick.outcomes
        outcomes["error"] += self.tick.failed
        bounds = {policy: self.schedule.bound(policy) for policy in self.scheduler.versions}
        oldest = {
            policy: self.scheduler.versions[policy] - bound
            for policy, bound in bounds.items()
            if bound is not None and self.schedule.on_stale == "mask"
        }
        return StepEpisodes(
            graded=graded,
            untrained=frozenset(untrained),
            metrics=self._metrics(released, graded, seconds),
            outcomes={**{str(kind): 0 for kind in ("ok", "truncated", "invalid", "error", "timeout")}, **outcomes},
            tokens=self.tick.tokens,
            transcripts=transcripts,
            min_version=oldest,
            times={"generate": seconds - self.tick.grade_s, "grade": self.tick.grade_s},
        )

    def _metrics(
        self, released: Sequence[Released], graded: Sequence[GradedEpisode], seconds: float
    ) -> dict[str, float]:
        tick, scheduler = self.tick, self.scheduler
        ended = sum(tick.ended.values())
        metrics = {
            "calls/ended": float(ended),
            "calls/failed": float(tick.failed),
            "calls/retried": float(tick.retried),
            "chains/admitted": float(tick.admitted),
            "chains/ended": float(sum(tick.chains_ended.values())),
            "chains/in_flight": float(len(self.chains)),
            "pipeline/groups": float(len(released)),
            "pipeline/groups_dropped": float(sum(one.drop for one in released)),
            "pipeline/unfinished": float(scheduler.num_unfinished),
            "pipeline/waiting": float(scheduler.num_waiting + scheduler.num_ready),
            "pipeline/waiting_for_learner": float(scheduler.num_complete),
            "grading/failed": float(sum(one.team.score is None for one in graded)),
        }
        metrics |= {f"chains/ended_{why}": float(count) for why, count in tick.chains_ended.items()}
        metrics |= {f"calls/{role}/{call}/ended": float(count) for (role, call), count in sorted(tick.ended.items())}
        metrics |= tick.picks.metrics()
        for policy in scheduler.versions:
            ages = [one.staleness for one in released if one.group.policy == policy and not one.drop]
            if ages:
                metrics[f"staleness/{policy}/max"] = float(max(ages))
                metrics[f"staleness/{policy}/mean"] = fmean(ages)
        ends = [one.team.score for one in graded if one.episode.outcome is not None and not one.episode.outcome.reason]
        rights = [score for score in ends if score is not None]
        if rights:
            metrics["reward/team"] = fmean(rights)
        return metrics

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything under way, as plain data: chains, groups, unfinished completions with their versions."""
        return {
            "stream": self.stream.state(),
            "num_chains": self.num_chains,
            "counts": self.scheduler.state(),
            "chains": {
                str(number): {"path": chain.seed_path, **chain.state()} for number, chain in self.chains.items()
            },
            "groups": [
                {
                    "place": group.place,
                    "started": group.started,
                    "oldest": group.oldest,
                    "rows": [
                        [row.tokens, row.segments, row.version, row.ended, row.failed, row.trained]
                        for row in group.rows
                    ],
                    **group.data.to_dict(),
                }
                for _, group in sorted(self.groups.items())
            ],
        }

    def restore(self, state: Mapping[str, Any], versions: Mapping[str, int]) -> None:
        self.scheduler.versions.update(versions)
        self.stream.restore(state["stream"])
        self.num_chains = state["num_chains"]
        self.chains, self.groups = {}, {}
        for number, saved in state["chains"].items():
            self.chains[int(number)] = Chain.from_state(self.sampler, self.settings.run_seed, saved)
        self.runner.run(self._restore_groups(state["groups"]))
        self.scheduler.restore(state["counts"], list(self.groups.values()))

    async def _restore_groups(self, saved: Sequence[Mapping[str, Any]]) -> None:
        works = await asyncio.gather(*[GroupWork.from_dict(self.play, one) for one in saved])
        for one, work in zip(saved, works, strict=True):
            chain, stage, number = one["place"]
            role = work.key.role
            group = Group.of(
                len(work.completions),
                chain=chain,
                stage=stage,
                number=number,
                policy=self.play.roles[role].policy,
                role=role,
                data=work,
            )
            group.started, group.oldest = one["started"], one["oldest"]
            for row, state in zip(group.rows, one["rows"], strict=True):
                row.restore(state)
            group.open = sum(not row.ended for row in group.rows)
            self.groups[group.place] = group
            if not work.pooled and not group.open:
                self.chains[chain].pools.setdefault(stage, []).extend(
                    candidate_of(number, index, episode, stand)
                    for index, (episode, stand) in enumerate(zip(work.graded, work.stands, strict=True))
                    if episode is not None and stand is not None
                )


@dataclass(slots=True)
class Tick:
    """What happened since the last step's episodes were handed over."""

    picks: PickCounts
    admitted: int = 0
    spread: int = 0
    tokens: int = 0
    failed: int = 0
    retried: int = 0
    grade_s: float = 0.0
    ended: Counter[tuple[str, int]] = field(default_factory=Counter)
    chains_ended: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    tasks: Counter[str] = field(default_factory=Counter)


def candidate_of(group: int, number: int, graded: GradedEpisode, stand: Frontier | Finished) -> Candidate:
    """A graded completion as the chain sees it: the workflow goes on with it where a call waits."""
    key = stand.keys[0] if isinstance(stand, Frontier) else None
    return Candidate(
        place=(group, number),
        score=SCORE(graded)[graded.episode.turns[0].id].total,
        receiver=(key.role, key.call) if key is not None else None,
        onward=stand,
    )


def backed_up(work: GroupWork, number: int) -> GradedEpisode:
    """A candidate with the mean outcome of those below it in the place of its own (as MALT backs values up)."""
    graded = work.graded[number]
    assert graded is not None
    value = outcome_below(work, number)
    if value is None:
        return graded
    status = GradeStatus.RIGHT if value >= 0.5 else GradeStatus.WRONG
    return replace(graded, team=Grade(status=status, score=value, detail="mean over the outcomes below"))


def outcome_below(work: GroupWork, number: int) -> float | None:
    """The outcome of a leaf; of any other candidate the mean over those of its group of successors."""
    graded = work.graded[number]
    following = work.children.get(number)
    if following is None:
        return graded.team.score if graded is not None else None
    below: GroupWork = following.data
    values = [value for index in range(len(below.completions)) if (value := outcome_below(below, index)) is not None]
    return fmean(values) if values else None
