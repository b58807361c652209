"""Where a step's episodes come from: independent episodes, or the pipeline of agentic groups."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rolecall.assemble import Plan, role_settings
from rolecall.engines.base import Engine
from rolecall.grading.episodes import grade_episodes
from rolecall.grading.pool import GraderPool
from rolecall.inflight import InFlight, blank_transcripts
from rolecall.partners import Partners
from rolecall.pipeline.candidates import Play
from rolecall.pipeline.source import PipelineSource, SourceSettings
from rolecall.rollout.agentic import AgenticGroups
from rolecall.rollout.collector import Collected, Collector
from rolecall.rollout.render import Renderer
from rolecall.rollout.samplers import EpisodePlan, Sampler
from rolecall.rollout.steps import EpisodeSource, StepEpisodes
from rolecall.rollout.transcript import Limits
from rolecall.run_episodes import make_collector
from rolecall.tasks.stream import TaskStream

T = TypeVar("T")


@dataclass(kw_only=True)
class IndependentSource:
    """`tasks_per_step` tasks a step, `n` independent episodes each, all of them collected before learning."""

    collector: Collector
    sampler: Sampler
    stream: TaskStream
    graders: GraderPool
    tasks_per_step: int
    inflight: InFlight | None = None
    partners: Partners | None = None
    version: Callable[[str], int] = field(default=lambda policy: 0)

    def collect(self, step: int) -> StepEpisodes:
        begun = time.monotonic()
        collected = self._collect(step)
        generated = time.monotonic()
        graded = grade_episodes(collected.episodes, self.graders)
        rights = [g.team.score for g in graded if g.team.score is not None]
        every = [g.episode for g in graded] + list(collected.abandoned)
        return StepEpisodes(
            graded=graded,
            untrained=collected.dropped,
            metrics={
                **collected.counts.metrics(),
                "reward/team": sum(rights) / max(1, len(rights)),
                "grading/failed": float(len(graded) - len(rights)),
                **(self.partners.metrics(graded) if self.partners is not None else {}),
            },
            outcomes=collected.counts.outcomes,
            tokens=sum(turn.completion.num_tokens for episode in every for turn in episode.turns),
            transcripts={one.id: one for one in collected.transcripts},
            times={"generate": generated - begun, "grade": time.monotonic() - generated},
            generating_s=generated - begun,
        )

    def _collect(self, step: int) -> Collected:
        """The step's episodes; with a journal, those that were in flight go on with their recorded calls."""
        plans: Sequence[EpisodePlan] = self.sampler.plans(self.stream.take(self.tasks_per_step))
        if self.partners is not None:
            plans = self.partners.deal(plans, step)
        if self.inflight is None:
            return self.collector.collect(plans, step)
        settings = self.collector.settings
        blanks = blank_transcripts(plans, step=step, run_seed=settings.run_seed, attempts=settings.max_retries + 1)
        recorded = self.inflight.begin(step, blanks, self.version)
        try:
            return self.collector.collect(plans, step, recorded)
        finally:
            self.inflight.end(step)

    def beside(self, work: Callable[[], T]) -> T:
        return work()

    def updated(self, versions: Mapping[str, int]) -> None:
        return

    def state(self) -> dict[str, Any]:
        return {"stream": self.stream.state()}

    def restore(self, state: Mapping[str, Any], versions: Mapping[str, int]) -> None:
        self.stream.restore(state["stream"])

    def close(self) -> None:
        self.collector.close()


def make_source(
    plan: Plan,
    renderers: Mapping[str, Renderer],
    engine: Engine,
    graders: GraderPool,
    stream: TaskStream,
    *,
    inflight: InFlight | None = None,
    partners: Partners | None = None,
) -> EpisodeSource:
    """The source that the plan's sampler and `[schedule]` ask for."""
    config, sampler = plan.config, plan.algorithm.sampler
    if isinstance(sampler, AgenticGroups):
        play = Play(
            workflow=plan.workflow,
            roles=role_settings(plan, renderers, plan.sampling),
            limits=Limits(deadline_s=config.rollout.episode_timeout_s),
            whole=frozenset(name for name, spec in plan.table.specs.items() if not spec.local),
        )
        settings = SourceSettings(
            run_seed=config.seed,
            deterministic=config.deterministic,
            tasks_per_step=config.rollout.tasks_per_step,
            max_concurrent=config.rollout.max_concurrent,
            max_retries=config.rollout.max_retries if config.rollout.on_failure == "retry" else 0,
            back_up=plan.algorithm.broadcasts,
            drop_failed=config.rollout.of_failures == "drop",
            refill=config.rollout.refill,
            max_oversampling=config.rollout.max_oversampling,
            watchdog_s=config.rollout.watchdog_s,
        )
        versions = dict.fromkeys(plan.table.specs, 0)
        return PipelineSource(play, engine, graders, stream, sampler, config.schedule, settings, versions)
    journal = inflight.record if inflight is not None else None
    return IndependentSource(
        collector=make_collector(plan, renderers, engine, plan.sampling, journal=journal),
        sampler=sampler,
        stream=stream,
        graders=graders,
        tasks_per_step=config.rollout.tasks_per_step,
        inflight=inflight,
        partners=partners,
        version=engine.version,
    )
