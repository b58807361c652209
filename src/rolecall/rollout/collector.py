"""Runs the episodes of a step, many at a time, and accounts for each: every one that was started is in the counts."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal

from rolecall.engines.base import Engine
from rolecall.errors import ConfigError, TaskError, UsageError, nearest
from rolecall.records import Episode, OutcomeClass
from rolecall.rollout.loop import EpisodeLoop, LoopRunner, current_loop
from rolecall.rollout.runner import drive
from rolecall.rollout.samplers import EpisodePlan
from rolecall.rollout.session import EpisodeSession
from rolecall.rollout.transcript import Finished, Journal, Limits, RoleSettings, Transcript, task_hash
from rolecall.rollout.waves import ContinuousPort, WavePort
from rolecall.workflows.base import Workflow

GARBAGE_THRESHOLD = 100_000
"""Objects made and not freed, from which Python looks for cycles while episodes run (its own choice: 700)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CollectorSettings:
    """`on_failure`: what becomes of an episode that ends invalid, in an error or in a timeout. `retry` runs it again
    with other seeds, at most `max_retries` times, and then does `after_retries`; `zero` keeps its turns with reward 0,
    whatever the reward says; `keep` leaves that to the reward; `drop` keeps them out of training. `deterministic`
    admits calls in waves.
    """

    run_seed: int = 0
    deterministic: bool = False
    max_concurrent: int = 1024
    on_failure: Literal["retry", "zero", "keep", "drop"] = "zero"
    max_retries: int = 1
    after_retries: Literal["zero", "keep", "drop"] = "zero"
    limits: Limits = field(default_factory=Limits)
    watchdog_s: float | None = 60.0

    def __post_init__(self) -> None:
        ends = ("zero", "keep", "drop")
        if self.on_failure not in ("retry", *ends) or self.after_retries not in ends:
            raise ConfigError(
                f"on_failure={self.on_failure!r}, after_retries={self.after_retries!r}: "
                f"wanted 'retry', 'zero', 'keep' or 'drop', and one of the last three after retries"
            )
        if self.max_concurrent < 1 or self.max_retries < 0:
            raise ConfigError(
                f"max_concurrent={self.max_concurrent}, max_retries={self.max_retries}: wanted at least 1 and 0"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class Counts:
    """What became of the episodes of a step. `outcomes` adds up to `started`; attempts are apart from it."""

    started: int
    outcomes: Mapping[str, int]
    attempts: int
    retries: int
    zeroed: int
    dropped: int
    turns: int
    calls_sampled: int
    calls_replayed: int
    engine_batches: int
    max_lag_s: float

    def metrics(self) -> dict[str, float]:
        """Rows for the metrics file: counts, and rates over the episodes started."""
        rows = {f"episodes/{name}": float(count) for name, count in self.outcomes.items()}
        rows |= {f"episodes/{name}_rate": count / max(1, self.started) for name, count in self.outcomes.items()}
        names = ("started", "attempts", "retries", "zeroed", "dropped", "turns", "calls_sampled", "calls_replayed")
        rows |= {f"episodes/{name}": float(getattr(self, name)) for name in names}
        return rows | {"engine/batches": float(self.engine_batches), "episodes/max_lag_s": self.max_lag_s}


@dataclass(frozen=True, kw_only=True, slots=True)
class Collected:
    """The episodes of a step in the order of their plans, each in its last attempt; earlier attempts in `abandoned`.

    The turns of an episode in `zeroed` are trained with reward 0, those of one in `dropped` are not trained.
    """

    episodes: tuple[Episode, ...]
    transcripts: tuple[Transcript, ...]
    abandoned: tuple[Episode, ...]
    zeroed: frozenset[str]
    dropped: frozenset[str]
    counts: Counts

    @property
    def trained(self) -> tuple[Episode, ...]:
        """The episodes whose turns are trained: all but the dropped."""
        return tuple(episode for episode in self.episodes if episode.id not in self.dropped)


class Collector:
    """Collects episodes of one workflow. Give it the `LoopRunner` on which the engine lives; else it has its own."""

    def __init__(
        self,
        workflow: Workflow,
        roles: Mapping[str, RoleSettings],
        engine: Engine,
        settings: CollectorSettings | None = None,
        *,
        runner: LoopRunner | None = None,
        journal: Journal | None = None,
    ) -> None:
        for role in roles:
            if role not in workflow.roles:
                raise ConfigError(
                    f"the role table has {role!r}, which the workflow has not{nearest(role, workflow.roles)}"
                )
        for role in workflow.roles:
            if role not in roles:
                raise ConfigError(f"role {role!r} of {type(workflow).__name__} has no policy; add it to the role table")
        self.workflow, self.roles, self.engine = workflow, dict(roles), engine
        self.settings = settings if settings is not None else CollectorSettings()
        self.journal = journal
        self._owned = runner is None
        self.runner = runner if runner is not None else LoopRunner(watchdog_s=self.settings.watchdog_s)

    def collect(
        self, plans: Sequence[EpisodePlan], step: int = 0, recorded: Mapping[str, Transcript] | None = None
    ) -> Collected:
        """Run the plans of a step. `recorded` has transcripts of episodes in flight, by id: they go on by replay.

        Raises what ends the run: a broken engine, a blocked loop, a replay that does not match.
        """
        with rare_garbage_collection():
            return self.runner.run(self.collect_async(plans, step, recorded))

    async def collect_async(
        self, plans: Sequence[EpisodePlan], step: int = 0, recorded: Mapping[str, Transcript] | None = None
    ) -> Collected:
        """As `collect`, on a running `EpisodeLoop`."""
        audit(plans)
        collection = _Collection(self, plans, step, recorded or {}, current_loop())
        return await collection.run()

    def close(self) -> None:
        if self._owned:
            self.runner.close()


def with_partners(roles: Mapping[str, RoleSettings], partners: Mapping[str, str]) -> Mapping[str, RoleSettings]:
    """The table of an episode some of whose roles play another policy; all else of a role stays as it is."""
    if not partners:
        return roles
    return {**roles, **{role: replace(roles[role], policy=policy) for role, policy in partners.items()}}


@contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """Look for cycles less often for a while, and not among what is there already.

    Episodes make many objects that live on and hardly any cycles, so that Python's collector, left to itself, goes
    through the whole process again and again for nothing.
    """
    if not gc.isenabled() or gc.get_freeze_count():
        yield  # whoever owns the process has made a choice of its own
        return
    threshold = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(max(threshold[0], GARBAGE_THRESHOLD), *threshold[1:])
    try:
        yield
    finally:
        gc.set_threshold(*threshold)
        gc.unfreeze()


def audit(plans: Sequence[EpisodePlan]) -> None:
    """Members of one group share one task: the same id means the same task, and no episode is planned twice."""
    hashes: dict[str, str] = {}
    places = Counter((plan.task.id, plan.index) for plan in plans)
    for plan in plans:
        found = task_hash(plan.task)
        if hashes.setdefault(plan.task.id, found) != found:
            raise TaskError(
                f"two different tasks have the id {plan.task.id!r} (one asks {plan.task.question!r:.60}); "
                f"episodes of one id are compared with each other, so give each task an id of its own"
            )
    (task_id, index), most = places.most_common(1)[0] if places else (("", 0), 0)
    if most > 1:
        raise UsageError(
            f"episode {index} of task {task_id!r} is planned {most} times in one step; is a task listed twice?"
        )


class _Collection:
    """One step of a collector while it runs."""

    def __init__(
        self,
        collector: Collector,
        plans: Sequence[EpisodePlan],
        step: int,
        recorded: Mapping[str, Transcript],
        loop: EpisodeLoop,
    ) -> None:
        self.collector, self.settings = collector, collector.settings
        self.plans, self.step, self.recorded, self.loop = plans, step, recorded, loop
        port_type = WavePort if self.settings.deterministic else ContinuousPort
        self.port: WavePort | ContinuousPort = port_type(collector.engine, loop, self._break)
        self.broken: list[BaseException] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.last: dict[int, Finished] = {}
        self.abandoned: list[Finished] = []

    async def run(self) -> Collected:
        if isinstance(self.port, WavePort):
            self.loop.idle_selector.watchers.append(self.port.at_idle)
        self.loop.idle_selector.max_lag_s = 0.0
        queue = iter(enumerate(self.plans))
        num_workers = min(self.settings.max_concurrent, len(self.plans))
        self.tasks = [self.loop.detached(self._work(queue)) for _ in range(num_workers)]
        try:
            await asyncio.gather(*self.tasks)
        except asyncio.CancelledError:
            if not self.broken:
                raise
        finally:
            for task in self.tasks:
                task.cancel()
            await asyncio.gather(*self.tasks, return_exceptions=True)
            if isinstance(self.port, WavePort):
                self.loop.idle_selector.watchers.remove(self.port.at_idle)
        if self.broken:
            raise self.broken[0]
        return self._collected()

    def _break(self, error: BaseException) -> None:
        """The engine is broken: nothing can go on."""
        self.broken.append(error)
        for task in self.tasks:
            task.cancel()

    async def _work(self, queue: Iterator[tuple[int, EpisodePlan]]) -> None:
        for place, plan in queue:
            finished = await self._attempt(plan, 0)
            if self.settings.on_failure == "retry":
                for attempt in range(1, self.settings.max_retries + 1):
                    if not finished.episode.outcome_class.failed:
                        break
                    self.abandoned.append(finished)
                    finished = await self._attempt(plan, attempt)
            self.last[place] = finished

    async def _attempt(self, plan: EpisodePlan, attempt: int) -> Finished:
        settings = self.settings
        transcript = Transcript(
            task=plan.task, index=plan.index, step=self.step, attempt=attempt, run_seed=settings.run_seed
        )
        session = EpisodeSession(
            workflow=self.collector.workflow,
            transcript=self.recorded.get(transcript.id, transcript),
            roles=with_partners(self.collector.roles, plan.partners),
            port=self.port,
            limits=settings.limits,
            order=(plan.order, plan.index),
            journal=self.collector.journal,
        )
        return await drive(session)

    def _collected(self) -> Collected:
        finished = [self.last[place] for place in range(len(self.plans))]
        abandoned = sorted(
            self.abandoned, key=lambda one: (one.episode.task.id, one.episode.index, one.episode.attempt)
        )
        failed = frozenset(one.episode.id for one in finished if one.episode.outcome_class.failed)
        on_failure = self.settings.on_failure
        treatment = self.settings.after_retries if on_failure == "retry" else on_failure
        every = [*finished, *abandoned]
        outcomes = Counter(one.episode.outcome_class.value for one in finished)
        counts = Counts(
            started=len(finished),
            outcomes={kind.value: outcomes[kind.value] for kind in OutcomeClass},
            attempts=len(every),
            retries=len(abandoned),
            zeroed=len(failed) if treatment == "zero" else 0,
            dropped=len(failed) if treatment == "drop" else 0,
            turns=sum(len(one.episode.turns) for one in finished),
            calls_sampled=sum(one.num_sampled for one in every),
            calls_replayed=sum(one.num_replayed for one in every),
            engine_batches=self.port.num_batches,
            max_lag_s=self.loop.idle_selector.max_lag_s,
        )
        return Collected(
            episodes=tuple(one.episode for one in finished),
            transcripts=tuple(one.transcript for one in finished),
            abandoned=tuple(one.episode for one in abandoned),
            zeroed=failed if treatment == "zero" else frozenset(),
            dropped=failed if treatment == "drop" else frozenset(),
            counts=counts,
        )
